from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer

from hf_xsent import (
    DapForSentenceEmbedding,
    Encoder,
    SentenceEmbedder,
    SentenceEncoderForPreTraining,
    XlmrWithRTLHead,
)
from hf_xsent.errors import ModelError


def _embedder(folder: Path, **settings: Any) -> SentenceEmbedder:
    model = DapForSentenceEmbedding.from_backbone(str(folder), **settings)
    return SentenceEmbedder(model.eval(), AutoTokenizer.from_pretrained(folder))


def _pooled_by_hugging_face(
    folder: Path, sentences: list[str], pooling: str = "mean", max_length: int = 128, layer: int | None = None
) -> np.ndarray:
    batch = AutoTokenizer.from_pretrained(folder)(
        sentences, padding=True, truncation=True, max_length=max_length, return_tensors="pt"
    )
    with torch.no_grad():
        output = AutoModel.from_pretrained(folder).eval()(**batch, output_hidden_states=True)
    states = output.last_hidden_state if layer is None else output.hidden_states[layer]
    mask = batch["attention_mask"][..., None]
    pooled = {
        "cls": lambda: states[:, 0],
        "mean": lambda: (states * mask).sum(1) / mask.sum(1),
        "max": lambda: states.masked_fill(mask == 0, -torch.inf).amax(1),
    }[pooling]()
    return np.asarray(pooled)


def _legacy(mode: str) -> dict[str, Any]:
    flags = {
        "cls": "cls_token",
        "mean": "mean_tokens",
        "max": "max_tokens",
        "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    }
    return {"word_embedding_dimension": 32, **{f"pooling_mode_{flag}": mode == key for key, flag in flags.items()}}


def _version_6(mode: str) -> dict[str, Any]:
    return {"embedding_dimension": 32, "pooling_mode": mode, "include_prompt": True}


_TYPES = {
    _legacy: dict.fromkeys(("Transformer", "Pooling", "Normalize", "Dense"), "sentence_transformers.models"),
    _version_6: {
        "Transformer": "sentence_transformers.base.modules.transformer",
        "Pooling": "sentence_transformers.sentence_transformer.modules.pooling",
        "Normalize": "sentence_transformers.base.modules.normalize",
        "Dense": "sentence_transformers.base.modules.dense",
    },
}


def _sentence_transformer(encoder: Path, folder: Path, layout: Any, pooling: str, **settings: Any) -> Path:
    """The encoder with the files that sentence-transformers adds."""
    shutil.copytree(encoder, folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"} | settings.get("more", {})
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{_TYPES[layout][kind]}.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(layout(pooling)))
    if "max_seq_length" in settings:
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": settings["max_seq_length"]}))
    return folder


# Vectors


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_vectors_do_not_depend_on_company_or_order(tiny_encoders: Path, sentences: list[str], pooling: str) -> None:
    embedder = _embedder(tiny_encoders, pooling=pooling)
    expected = _pooled_by_hugging_face(tiny_encoders, sentences, pooling)
    for tokens in (1, 30, 100, 8192):
        embedder.tokens_per_batch = tokens
        np.testing.assert_allclose(embedder.encode(sentences), expected, atol=1e-5)
    np.testing.assert_allclose(embedder.encode(sentences[::-1])[::-1], expected, atol=1e-5)
    assert embedder.encode(sentences).dtype == np.float32


def test_no_sentences_give_no_vectors(encoder_folders: dict[str, Path]) -> None:
    vectors = _embedder(encoder_folders["bert"]).encode([])
    assert vectors.shape == (0, 32) and vectors.dtype == np.float32


def test_an_empty_sentence_has_a_vector(tiny_encoders: Path) -> None:
    """Its special tokens are there."""
    vectors = _embedder(tiny_encoders).encode(["", "Where is the station?"])
    np.testing.assert_allclose(
        vectors, _pooled_by_hugging_face(tiny_encoders, ["", "Where is the station?"], "cls"), atol=1e-5
    )


def test_sentences_are_cut_at_the_models_length_or_the_callers(tiny_encoders: Path, sentences: list[str]) -> None:
    model = DapForSentenceEmbedding.from_backbone(str(tiny_encoders), max_length=9, pooling="mean").eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_encoders)
    for embedder, length in ((SentenceEmbedder(model, tokenizer), 9), (SentenceEmbedder(model, tokenizer, 5), 5)):
        expected = _pooled_by_hugging_face(tiny_encoders, sentences, max_length=length)
        np.testing.assert_allclose(embedder.encode(sentences), expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("layer", [0, 2])
def test_any_layer_can_be_pooled(tiny_encoders: Path, sentences: list[str], pooling: str, layer: int) -> None:
    embedder = SentenceEmbedder.from_pretrained(str(tiny_encoders), pooling=pooling, layer=layer, device="cpu")
    expected = _pooled_by_hugging_face(tiny_encoders, sentences, pooling, layer=layer)
    np.testing.assert_allclose(embedder.encode(sentences), expected, atol=1e-5)


@pytest.mark.parametrize("layer", [-1, 4])
def test_a_layer_there_is_not_is_refused(encoder_folders: dict[str, Path], layer: int) -> None:
    with pytest.raises(
        ModelError, match=rf"layer {layer} does not exist: this encoder has layers 0 \(embeddings\) to 3"
    ):
        SentenceEmbedder.from_pretrained(str(encoder_folders["bert"]), layer=layer)


@pytest.mark.parametrize("training", [False, True])
def test_the_model_stays_in_the_mode_it_was_in(encoder_folders: dict[str, Path], training: bool) -> None:
    embedder = _embedder(encoder_folders["bert"])
    embedder.model.train(training)
    one, other = embedder.encode(["a b c"]), embedder.encode(["a b c"])
    assert np.array_equal(one, other)  # no dropout
    assert all(module.training == training for module in embedder.model.modules())


def test_frozen_parts_stay_frozen(encoder_folders: dict[str, Path]) -> None:
    """A part that its owner put into eval mode within a training model is not switched on by an evaluation."""
    embedder = _embedder(encoder_folders["bert"])
    embedder.model.train()
    embedder.model.encoder.embeddings.eval()
    embedder.encode(["a"])
    assert not embedder.model.encoder.embeddings.training
    assert embedder.model.encoder.encoder.training


@pytest.mark.parametrize(
    ("sentences", "error"),
    [
        ("Where is the station?", "encode takes a list of sentences, not str: use"),
        (1, "encode takes a list of sentences, not int: use"),
        ([None], "^encode takes a list of strings, but sentence 0 is None: remove it$"),
        (["a", float("nan")], "sentence 1 is nan"),
    ],
)
def test_what_is_no_list_of_strings_is_refused(encoder_folders: dict[str, Path], sentences: Any, error: str) -> None:
    with pytest.raises(ModelError, match=error):
        _embedder(encoder_folders["bert"]).encode(sentences)


def test_sentences_may_be_any_iterable(encoder_folders: dict[str, Path], sentences: list[str]) -> None:
    embedder = _embedder(encoder_folders["bert"])
    expected = embedder.encode(sentences)
    for given in (iter(sentences), np.array(sentences)):
        np.testing.assert_array_equal(embedder.encode(given), expected)


def test_only_a_token_that_a_text_has_needs_an_embedding(encoder_folders: dict[str, Path]) -> None:
    embedder = _embedder(encoder_folders["bert"])
    embedder.tokenizer.add_tokens(["newtok"])
    assert embedder.encode(["a token"]).shape == (1, 32)
    with pytest.raises(ModelError, match="has the token 'newtok', but the encoder no embedding for it: use its own"):
        embedder.encode(["a token", "a newtok"])


# Languages


def test_language_embeddings_are_chosen_by_name(tiny_encoders: Path, sentences: list[str]) -> None:
    embedder = _embedder(tiny_encoders, languages=["de", "en"])
    torch.nn.init.normal_(embedder.model.language_embeddings.weight)
    german, english = (embedder.encode(sentences, language=language) for language in ("de", "en"))
    assert np.abs(german - english).max() > 1e-3
    with torch.no_grad():
        embedder.model.language_embeddings.weight[0] = embedder.model.language_embeddings.weight[1]
    assert np.array_equal(embedder.encode(sentences, language="de"), english)


@pytest.mark.parametrize("language", [None, "fr"])
def test_a_language_without_embedding_is_refused(encoder_folders: dict[str, Path], language: str | None) -> None:
    embedder = _embedder(encoder_folders["bert"], languages=["de", "en"])
    with pytest.raises(ModelError, match="^this model has language embeddings for de, en: pass one to its method"):
        embedder.encode(["a"], language=language)


def test_the_second_argument_is_the_name_of_a_prompt_as_in_sentence_transformers(
    encoder_folders: dict[str, Path],
) -> None:
    embedder = _embedder(encoder_folders["bert"], prompts={"query": "find: "})
    named = embedder.encode(["A dog."], "query")
    np.testing.assert_array_equal(named, embedder.encode(["find: A dog."]))
    assert np.abs(named - embedder.encode(["A dog."])).max() > 1e-3


def test_a_folder_is_read_after_a_change_of_the_current_folder(
    encoder_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(encoder_folders["bert"].parent)
    name = encoder_folders["bert"].name
    model, encoder = SentenceEncoderForPreTraining.from_pretrained(name), Encoder(name)
    monkeypatch.chdir(tmp_path)
    np.testing.assert_allclose(encoder.encode(["A dog."]), model.encode(["A dog."]), atol=1e-6)


# What is opened, and with which settings


def test_a_folder_of_ours_without_weights_is_an_error(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"])).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"^the model folder '.+' has no readable weights \(model\.safetensors\): .+"):
        SentenceEmbedder.from_pretrained(str(tmp_path))


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_there_is_not_is_an_error(encoder_folders: dict[str, Path], device: str) -> None:
    with pytest.raises(ModelError, match=f"^device '{device}' is not available, use cpu or cuda: "):
        SentenceEmbedder.from_pretrained(str(encoder_folders["bert"]), device=device)


@pytest.mark.parametrize("model_class", [XlmrWithRTLHead, DapForSentenceEmbedding])
def test_our_own_folder_keeps_its_settings(
    tiny_encoders: Path, tmp_path: Path, sentences: list[str], model_class: Any
) -> None:
    model = model_class.from_backbone(str(tiny_encoders), pooling="max", max_length=11, normalize=True)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_encoders).save_pretrained(tmp_path)
    embedder = SentenceEmbedder.from_pretrained(str(tmp_path), device="cpu")
    assert (embedder.pooling, embedder.max_length) == ("max", 11)
    expected = _pooled_by_hugging_face(tiny_encoders, sentences, "max", 11)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(embedder.encode(sentences), expected, atol=1e-5)

    other = SentenceEmbedder.from_pretrained(str(tmp_path), pooling="cls", max_length=7, device="cpu")
    assert (other.pooling, other.max_length) == ("cls", 7)
    expected = _pooled_by_hugging_face(tiny_encoders, sentences, "cls", 7)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(other.encode(sentences), expected, atol=1e-5)


def test_a_plain_encoder_is_pooled_by_its_mean_and_takes_all_its_positions(
    tiny_encoders: Path, sentences: list[str]
) -> None:
    embedder = SentenceEmbedder.from_pretrained(str(tiny_encoders), device="cpu")
    assert (embedder.pooling, embedder.max_length, embedder.model.config.normalize) == ("mean", 256, False)
    np.testing.assert_allclose(embedder.encode(sentences), _pooled_by_hugging_face(tiny_encoders, sentences), atol=1e-5)
    assert SentenceEmbedder.from_pretrained(str(tiny_encoders), max_length=6).max_length == 6
    long = [" ".join(sentences)]
    assert embedder.encode(long).shape == (1, 32)


@pytest.mark.parametrize("length", [257, 4096])
def test_a_length_over_the_positions_is_brought_down_or_refused(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], length: int
) -> None:
    """Never an index error in the middle of an evaluation."""
    folder = encoder_folders["bert"]
    DapForSentenceEmbedding.from_backbone(str(folder)).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    for model in (folder, tmp_path):
        try:
            embedder = SentenceEmbedder.from_pretrained(str(model), max_length=length, device="cpu")
        except (ModelError, ValueError) as error:
            assert "256" in str(error)
        else:
            assert embedder.encode([" ".join(sentences * 3)]).shape == (1, 32)


@pytest.mark.parametrize("layout", [_legacy, _version_6])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_a_sentence_transformers_folder_states_its_pooling(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], layout: Any, pooling: str
) -> None:
    encoder = encoder_folders["xlm-roberta"]
    folder = _sentence_transformer(encoder, tmp_path / "st", layout, pooling, max_seq_length=10)
    embedder = SentenceEmbedder.from_pretrained(str(folder), device="cpu")
    assert (embedder.pooling, embedder.max_length, embedder.model.config.normalize) == (pooling, 10, False)
    expected = _pooled_by_hugging_face(encoder, sentences, pooling, 10)
    np.testing.assert_allclose(embedder.encode(sentences), expected, atol=1e-5)
    assert SentenceEmbedder.from_pretrained(str(folder), pooling="mean", max_length=6, device="cpu").max_length == 6


@pytest.mark.parametrize("layout", [_legacy, _version_6])
def test_modules_and_poolings_that_we_lack_are_refused(
    encoder_folders: dict[str, Path], tmp_path: Path, layout: Any
) -> None:
    encoder = encoder_folders["bert"]
    more = {"2_Normalize": "Normalize", "3_Dense": "Dense"}
    folder = _sentence_transformer(encoder, tmp_path / "dense", layout, "mean", more=more)
    with pytest.raises(ModelError, match="has a module Dense: open it with sentence_transformers.SentenceTransformer"):
        SentenceEmbedder.from_pretrained(str(folder))
    folder = _sentence_transformer(encoder, tmp_path / "sqrt", layout, "mean_sqrt_len_tokens")
    with pytest.raises(ModelError, match="has the pooling .*mean_sqrt_len_tokens, which is not supported: open it"):
        SentenceEmbedder.from_pretrained(str(folder))


@pytest.mark.parametrize(("activation", "normalize"), [(nn.Tanh(), True), (nn.Identity(), False)])
def test_a_linear_layer_after_pooling_is_applied_as_in_labse(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], activation: nn.Module, normalize: bool
) -> None:
    from sentence_transformers.models import Dense, Normalize, Pooling, Transformer

    from sentence_transformers import SentenceTransformer

    encoder = encoder_folders["bert"]
    modules = [Transformer(str(encoder)), Pooling(32, "cls"), Dense(32, 32, activation_function=activation)]
    model = SentenceTransformer(modules=[*modules, *([Normalize()] if normalize else [])], device="cpu")
    model.save(str(tmp_path / "st"))
    embedder = SentenceEmbedder.from_pretrained(str(tmp_path / "st"), device="cpu")
    expected = model.encode(sentences)
    np.testing.assert_allclose(embedder.encode(sentences), expected, atol=1e-6)
    np.testing.assert_allclose(embedder.encode(sentences, truncate_dim=8), expected[:, :8], atol=1e-6)
    with pytest.raises(ModelError, match="maps its last layer: it has no other layers"):
        SentenceEmbedder.from_pretrained(str(tmp_path / "st"), layer=1, device="cpu").encode(sentences)
    with pytest.raises(ModelError, match="has a linear layer after cls pooling, not mean: keep its pooling"):
        SentenceEmbedder.from_pretrained(str(tmp_path / "st"), pooling="mean", device="cpu")


@pytest.mark.parametrize(("width", "options"), [(16, {}), (32, {"use_residual": True})], ids=["width", "residual"])
def test_a_layer_of_other_width_or_with_a_residual_is_refused(
    encoder_folders: dict[str, Path], tmp_path: Path, width: int, options: dict[str, bool]
) -> None:
    from sentence_transformers.models import Dense, Pooling, Transformer

    from sentence_transformers import SentenceTransformer

    modules = [Transformer(str(encoder_folders["bert"])), Pooling(32), Dense(32, width)]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "st"))
    file = tmp_path / "st" / "2_Dense" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | options))  # which versions before 5.7 lack
    with pytest.raises(
        ModelError, match="st' has a module Dense of other width or a residual: open it with sentence_trans"
    ):
        SentenceEmbedder.from_pretrained(str(tmp_path / "st"))


def test_half_precision_models_give_float32_vectors(encoder_folders: dict[str, Path], sentences: list[str]) -> None:
    folder = str(encoder_folders["bert"])
    half = SentenceEmbedder.from_pretrained(folder, precision="bfloat16", device="cpu")
    assert half.model.dtype == torch.bfloat16
    full = SentenceEmbedder.from_pretrained(folder, device="cpu")
    assert full.model.dtype == torch.float32
    vectors = half.encode(sentences)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, full.encode(sentences), atol=0.1)


@pytest.mark.parametrize("dim", [0, 33])
def test_a_dim_there_is_not_is_refused(encoder_folders: dict[str, Path], dim: int) -> None:
    with pytest.raises(
        ModelError, match=f"^dim {dim} does not exist: the embeddings of this model have 32 dimensions$"
    ):
        SentenceEmbedder.from_pretrained(str(encoder_folders["bert"]), device="cpu", dim=dim)


@pytest.mark.parametrize("dim", [5, 64])  # sentence-transformers takes more than the width as the width
def test_vectors_are_cut_as_sentence_transformers_cuts_them(
    dim: int, encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(encoder_folders["bert"]), device="cpu", truncate_dim=dim)
    theirs.save(cut := str(tmp_path / "cut"))
    expected = theirs.encode(sentences)
    assert expected.shape == (len(sentences), min(dim, 32))
    for ours in (
        SentenceEmbedder.from_pretrained(cut, device="cpu"),
        SentenceEncoderForPreTraining.from_backbone(cut),
        SentenceEncoderForPreTraining.from_sentence_transformer(theirs),
    ):
        np.testing.assert_allclose(ours.encode(sentences), expected, atol=1e-5)


def test_a_hub_id_states_its_pooling_as_a_folder_does(encoder_folders: dict[str, Path], sentences: list[str]) -> None:
    from huggingface_hub.constants import HF_HUB_CACHE

    cached = Path(HF_HUB_CACHE) / "models--someone--encoder"
    folder = _sentence_transformer(encoder_folders["bert"], cached / "snapshots" / ("1" * 40), _legacy, "cls")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("1" * 40)
    embedder = SentenceEmbedder.from_pretrained("someone/encoder", device="cpu")
    assert embedder.pooling == "cls"
    expected = SentenceEmbedder.from_pretrained(str(folder), device="cpu").encode(sentences)
    np.testing.assert_array_equal(embedder.encode(sentences), expected)


def test_a_model_that_converts_to_lower_case_is_refused(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = _sentence_transformer(encoder_folders["bert"], tmp_path / "st", _version_6, "mean")
    (folder / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    with pytest.raises(ModelError, match="converts its input to lower case"):
        SentenceEmbedder.from_pretrained(str(folder), device="cpu")


def test_a_models_own_prompt_stands_before_each_sentence(
    encoder_folders: dict[str, Path], sentences: list[str], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = _sentence_transformer(encoder_folders["bert"], tmp_path / "st", _version_6, "mean")
    stated = {"prompts": {"query": "the dog: ", "other": "x"}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(stated))
    embedder = SentenceEmbedder.from_pretrained(str(folder), device="cpu")
    assert embedder.prompt == "the dog: "
    theirs = SentenceTransformer(str(folder), device="cpu").encode(sentences)
    np.testing.assert_allclose(embedder.encode(sentences), theirs, atol=1e-5)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(_version_6("mean") | {"include_prompt": False}))
    for default in ("query", None):  # encode_query adds the prompt of queries without a default, too
        stated["default_prompt_name"] = default
        (folder / "config_sentence_transformers.json").write_text(json.dumps(stated))
        with pytest.raises(ModelError, match="pools without its prompt"):
            SentenceEmbedder.from_pretrained(str(folder), device="cpu")
