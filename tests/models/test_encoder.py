"""The encoder of pipelines: the same vectors in a dict, a DataFrame, an Arrow table and a data set."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from datasets.fingerprint import Hasher
from safetensors.torch import load_file, save_file

from hf_xsent import Encoder, SentenceEmbedder
from hf_xsent.errors import ModelError
from hf_xsent.models.encoder import MADE_BY

TEXTS = ["Der Hund schläft im Garten.", "We eat bread.", "今日は寒いです。"]


@pytest.fixture
def encoder(encoder_folders: dict[str, Path]) -> Encoder:
    return Encoder(str(encoder_folders["bert"]), device="cpu")


def test_batches_of_all_kinds_get_the_same_vectors(encoder: Encoder) -> None:
    expected = SentenceEmbedder.from_pretrained(str(encoder.name), device="cpu").encode(TEXTS)
    np.testing.assert_array_equal(encoder({"text": np.array(TEXTS), "id": [1, 2, 3]})["embedding"], expected)
    frame = encoder(pd.DataFrame({"text": TEXTS}, index=[5, 6, 7]))
    np.testing.assert_array_equal(np.stack(frame["embedding"]), expected)
    for given in ({"text": TEXTS}, {"text": TEXTS, "embedding": [0, 0, 0]}):
        np.testing.assert_array_equal(encoder(pl.DataFrame(given))["embedding"].to_numpy(), expected)
    table = encoder(pa.table({"text": TEXTS, "id": [1, 2, 3]}))
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), expected.shape[1])
    assert json.loads(table.schema.field("embedding").metadata[MADE_BY]) == encoder.identity
    np.testing.assert_array_equal(np.stack(table["embedding"].to_pylist()), expected)
    mapped = datasets.Dataset.from_dict({"text": TEXTS}).map(encoder, batched=True)
    np.testing.assert_array_equal(np.asarray(mapped["embedding"], np.float32), expected)
    rows = datasets.Dataset.from_dict({"text": TEXTS}).map(encoder)
    np.testing.assert_allclose(np.asarray(rows["embedding"], np.float32), expected, atol=1e-6)


def test_new_weights_in_an_opened_folder_are_read(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(encoder_folders["bert"], tmp_path / "model")
    before = Encoder(str(folder), device="cpu")
    vectors = before.encode(TEXTS)
    fingerprint = Hasher.hash(before)
    weights = load_file(folder / "model.safetensors")
    save_file({name: 2 * weight for name, weight in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    assert np.abs(Encoder(str(folder), device="cpu").encode(TEXTS) - vectors).max() > 1e-3
    assert Hasher.hash(Encoder(str(folder), device="cpu")) != fingerprint, "datasets would return the cached vectors"


def test_a_new_commit_of_a_hub_model_has_another_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = tmp_path / "models--org--name"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    fingerprints = set()
    for number in range(2):
        folder = cached / "snapshots" / f"{number:040x}"
        for file, text in ((folder / "config.json", "{}"), (cached / "refs" / "main", folder.name)):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        fingerprints.add(Hasher.hash(Encoder("org/name")))
    assert len(fingerprints) == 2, "datasets would return the cached vectors"


def test_an_empty_table_gets_a_column_of_the_same_type(encoder: Encoder) -> None:
    """SentenceTransformer returns an array without a width."""
    from sentence_transformers import SentenceTransformer

    for model in (encoder, Encoder(SentenceTransformer(str(encoder.name), device="cpu"))):
        empty, full = (model(pa.table({"text": pa.array(texts, pa.string())})) for texts in ([], TEXTS))
        assert len(empty) == 0 and empty.schema == full.schema


@pytest.mark.parametrize(
    "batch",
    [kind({"sentence": TEXTS}) for kind in (dict, pa.table, pd.DataFrame, pl.DataFrame)],
)
def test_a_batch_without_the_column_is_named(encoder: Encoder, batch: Any) -> None:
    with pytest.raises(ModelError, match="the batch has no column 'text', only sentence: give column"):
        encoder(batch)


def test_a_single_sentence_is_no_list_of_characters(encoder: Encoder) -> None:
    with pytest.raises(ModelError, match=r"encode takes a list of sentences, not str: use \[sentence\]"):
        encoder.encode("Where is the station?")


def test_a_lazy_frame_is_to_be_collected_first(encoder: Encoder) -> None:
    with pytest.raises(ModelError, match=r"a LazyFrame has no rows yet: give the frame that its collect\(\) returns"):
        encoder(pl.LazyFrame({"text": TEXTS}))


@pytest.mark.parametrize(
    "batch", [datasets.Dataset.from_dict({"text": TEXTS}), [{"text": text} for text in TEXTS], TEXTS]
)
def test_what_has_no_columns_is_no_batch(encoder: Encoder, batch: Any) -> None:
    with pytest.raises(ModelError, match=r"a batch has columns, .*: of a Dataset, map\(encoder, batched=True\)"):
        encoder(batch)


def test_a_pickled_encoder_holds_settings_and_opens_the_model_itself(encoder: Encoder) -> None:
    expected = encoder.encode(TEXTS)
    pickled = pickle.dumps(encoder)
    assert len(pickled) < 2000
    np.testing.assert_array_equal(pickle.loads(pickled).encode(TEXTS), expected)


def test_columns_precision_and_length_can_be_chosen(encoder_folders: dict[str, Path]) -> None:
    folder = str(encoder_folders["bert"])
    encoder = Encoder(folder, column="a", output="v", vectors="float16", max_length=5, device="cpu")
    table = encoder(pa.table({"a": TEXTS}))
    assert table.schema.field("v").type.value_type == pa.float16()
    assert encoder.identity["max_length"] == "5"
    assert Encoder(folder, least_max_length=8, max_length=5, device="cpu").identity["max_length"] == "5"


def test_an_object_that_encodes_is_a_model_and_others_are_not() -> None:
    class Lengths:
        def encode(self, texts: list[str]) -> np.ndarray:
            return np.array([[len(text), 1.0] for text in texts], np.float32)

    assert Encoder(Lengths()).encode(["abc"]).tolist() == [[3, 1]]
    assert Encoder(Lengths()).identity == Encoder(Lengths()).identity
    tables = [
        torch.nn.Embedding.from_pretrained(torch.full((2, 2), value, dtype=torch.bfloat16)) for value in (1, 1, 2)
    ]
    first, equal, other = (SimpleNamespace(encode=Lengths().encode, model=table) for table in tables)
    assert Encoder(first).identity == Encoder(equal).identity != Encoder(other).identity
    with pytest.raises(ModelError, match="int has no encode"):
        Encoder(3)
    with pytest.raises(ModelError, match="pooling applies to a model given by its folder"):
        Encoder(Lengths(), pooling="cls")
    with pytest.raises(ModelError, match="^device applies to a model given by its folder"):
        Encoder(Lengths(), device="cuda")


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_an_object_may_return_tensors_that_require_gradients(kind: torch.dtype) -> None:
    class Model:
        def encode(self, texts: list[str]) -> torch.Tensor:
            return torch.ones(len(texts), 3, dtype=kind, requires_grad=True)

    np.testing.assert_array_equal(Encoder(Model()).encode(["a", "b"]), np.ones((2, 3)))


def test_a_precision_of_vectors_that_would_round_them_to_zero_is_refused() -> None:
    with pytest.raises(ModelError, match="^vectors 'int8' is unknown: use float32 or float16$"):
        Encoder("exported", vectors="int8")
