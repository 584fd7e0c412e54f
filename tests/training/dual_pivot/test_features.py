"""Features: encoded once, kept whole, refused where they are another encoder's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import normalizers

from hf_xsent import DualPivotForPreTraining, SentenceEmbedder
from hf_xsent.data.sides import TextSides
from hf_xsent.errors import DataError
from hf_xsent.evaluation.task import ModelEncoder, count_cut
from hf_xsent.models.loading import load_tokenizer
from hf_xsent.training.dual_pivot import features as features_module
from hf_xsent.training.dual_pivot.features import CachedEncoder, FeatureCache, FeatureRows


@pytest.fixture
def model(encoder_folders: dict[str, Path]) -> DualPivotForPreTraining:
    return DualPivotForPreTraining.from_backbone(str(encoder_folders["bert"]), max_length=32)


@pytest.fixture
def cache(model: DualPivotForPreTraining, encoder_folders: dict[str, Path], tmp_path: Path) -> FeatureCache:
    return FeatureCache(tmp_path / "features", model, load_tokenizer(str(encoder_folders["bert"])), "float32")


def test_a_row_is_the_sum_over_tokens_of_each_layer(cache: FeatureCache, sentences: list[str]) -> None:
    found = cache.layer_sums(sentences)
    for row, sentence in enumerate(sentences):
        ids = cache.embedder.tokenizer([sentence], truncation=True, max_length=32, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            states = cache.embedder.model.encoder(ids, output_hidden_states=True).hidden_states
        expected = torch.stack([state[0].sum(0) for state in states])
        torch.testing.assert_close(torch.from_numpy(found.sums[row].copy()), expected, atol=2e-4, rtol=1e-4)


def test_what_a_killed_run_encoded_is_not_encoded_again(
    cache: FeatureCache, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features_module, "_BLOCK", 4)
    encode, seen = cache.embedder.encode, []

    def killed_in_the_third_block(block: Sequence[str], **options: str) -> np.ndarray:
        seen.append(list(block))
        if len(seen) == 3:
            raise KeyboardInterrupt
        return encode(block, **options)

    monkeypatch.setattr(cache.embedder, "encode", killed_in_the_third_block)
    with pytest.raises(KeyboardInterrupt):
        cache.layer_sums(sentences)
    assert not [*cache.store.folder.glob("*.npy")]
    found = cache.layer_sums(sentences)
    assert [sentence for block in (*seen[:2], *seen[3:]) for sentence in block] == sentences
    monkeypatch.setattr(cache.embedder, "encode", encode)
    again = FeatureCache(cache.store.folder.parent / "other", cache.embedder.model, cache.embedder.tokenizer, "float32")
    np.testing.assert_allclose(found.sums, again.layer_sums(sentences).sums, atol=2e-5)
    assert not [*cache.store.folder.glob("*.part"), *cache.store.folder.glob("*.lock")]


def test_sentences_are_known_by_what_they_say(cache: FeatureCache, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        first = cache.layer_sums(["We eat bread.", "It is cold."])
        assert cache.layer_sums(("We eat bread.", "It is cold.")).key == first.key
        assert cache.layer_sums(["It is cold.", "We eat bread."]).key != first.key
    assert caplog.text.count("encoding 2 sentences into") == 2
    assert (first.identities == cache.layer_sums(["we EAT  bread.", "It is cold."]).identities).all()


def test_features_of_another_tokenizer_or_config_are_not_taken(
    cache: FeatureCache, encoder_folders: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    folder, model = cache.store.folder, cache.embedder.model
    cache.layer_sums(["We eat bread."])
    same = FeatureCache(folder, model, load_tokenizer(str(encoder_folders["bert"])), "float32")
    with caplog.at_level("INFO"):
        same.layer_sums(["We eat bread."])
        assert "encoding" not in caplog.text
        other: Any = load_tokenizer(str(encoder_folders["bert"]))
        other.backend_tokenizer.normalizer = normalizers.Replace("e", "a")
        FeatureCache(folder, model, other, "float32").layer_sums(["We eat bread."])
        model.encoder.config.hidden_act = "relu"
        FeatureCache(folder, model, cache.embedder.tokenizer, "float32").layer_sums(["We eat bread."])
    assert caplog.text.count("encoding 1 sentences into") == 2


def test_features_of_another_precision_of_the_encoder_are_not_taken(cache: FeatureCache) -> None:
    folder, model = cache.store.folder, cache.embedder.model
    sums = []
    for dtype in (torch.bfloat16, torch.float32):  # of equal weights
        features = FeatureCache(folder, model.to(dtype), cache.embedder.tokenizer, "float32")
        sums.append(features.layer_sums(["We eat bread."]).sums)
    assert (sums[0] != sums[1]).any()


def test_float16_is_close_and_half_as_large(cache: FeatureCache, sentences: list[str]) -> None:
    half = FeatureCache(cache.store.folder, cache.embedder.model, cache.embedder.tokenizer)
    whole, found = (CachedEncoder(one, cache.embedder.model).encode(sentences) for one in (cache, half))
    assert abs(whole - found).max() < 2e-3
    assert 2 * half.layer_sums(sentences).sums.nbytes == cache.layer_sums(sentences).sums.nbytes


@pytest.mark.parametrize("role", ["", "query", "document"])
def test_embeddings_from_features_are_those_of_the_model(cache: FeatureCache, sentences: list[str], role: str) -> None:
    model, texts = cache.embedder.model, [*sentences, " ".join(sentences)]
    model.config.dim, model.config.prompts = 8, {"query": "Who eats bread? ", "document": "It is cold. "}
    read, expected = map(ModelEncoder, (CachedEncoder(cache, model), SentenceEmbedder(model, cache.embedder.tokenizer)))
    for _ in range(2):  # encoded, and from the cache
        np.testing.assert_allclose(read.as_role(role, texts), expected.as_role(role, texts), atol=1e-5)
        inputs = [(role, text) for text in texts]
        assert count_cut(read, inputs) == count_cut(expected, inputs) and texts[-1] in "".join(read.embedder.cut)
        read = ModelEncoder(CachedEncoder(cache, model))


def test_what_cannot_be_is_an_error(cache: FeatureCache, model: DualPivotForPreTraining) -> None:
    with pytest.raises(DataError, match="list of sentences to encode is empty"):
        cache.layer_sums([])
    with pytest.raises(DataError, match="both sides of 'de' hold the same sentences"):
        FeatureRows(TextSides({"de": (["Brot", "Milch"], ["Brot", "Milch"])}), cache)
    with torch.no_grad():
        model.encoder.embeddings.word_embeddings.weight.fill_(torch.inf)
    with pytest.raises(DataError, match="'Brot' has a NaN or infinite feature in float32"):
        cache.layer_sums(["Brot"])


@pytest.mark.parametrize("shuffle_independently", [False, True])
def test_batches_hold_the_features_of_their_rows(shuffle_independently: bool, cache: FeatureCache) -> None:
    texts = {
        "de": (["Brot", "Milch", "Wo ist der Bahnhof?"], ["bread", "milk", "Where is the station?"]),
        "fr": (["Elle habite à Paris.", "Il fait froid."], ["She lives in Paris."]),
    }
    sides = TextSides(texts, shuffle_independently)
    rows = [4, 0, 3, 2]
    batch = FeatureRows(sides, cache).__getitems__(rows)
    pairs = sides.__getitems__(rows)
    for number, side in enumerate(("source", "target")):
        alone = [cache.layer_sums([pair[side]]) for pair in pairs]
        found = batch["layer_sums"].chunk(2)[number]
        torch.testing.assert_close(
            found, torch.stack([torch.from_numpy(one.sums[0].copy()) for one in alone]), atol=2e-5, rtol=1e-4
        )
        identities = [int(one.identities[0].astype(np.int64)) for one in alone]
        assert batch[f"{side}_identity"].tolist() == identities
