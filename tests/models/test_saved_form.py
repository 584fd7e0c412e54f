"""Runs, checkpoints and exports have one form: a plain encoder, and a file of what only training needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForPreTraining, PreTrainedModel

from hf_xsent import (
    DapForSentenceEmbedding,
    DualPivotForPreTraining,
    MoCoAlignedBert,
    WacseForPreTraining,
    XlmrWithRTLHead,
    export_sentence_transformer,
)
from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.models import METHODS
from hf_xsent.models.saved_form import HEADS_FILE, load_saved_weights, saved_weights

QUEUE = {"momentum_contrast": {"queue_size": 4}, "translation_language_modeling": 1.0}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "dap": (XlmrWithRTLHead, {"training_mlp": True}),
    "ppa": (MoCoAlignedBert, {"objectives": QUEUE}),
    "wacse": (WacseForPreTraining, {"languages": ["de", "en"]}),
    "dual-pivot": (DualPivotForPreTraining, {"objectives": {"adversarial": 1.0, "cycle": 1.0}}),
    "the authors' dual-pivot": (DualPivotForPreTraining, {"variant": "authors"}),
    "adapters": (XlmrWithRTLHead, {"lora_rank": 2}),
}


def _changed(encoder: Path, kind: Any, settings: dict[str, Any]) -> Any:
    model = kind.from_backbone(str(encoder), pooling="mean", max_length=16, **settings)
    with torch.no_grad():
        for weight in model.state_dict().values():
            if weight.is_floating_point():
                weight.add_(0.05 * torch.randn_like(weight))
    return model.eval()


@pytest.mark.parametrize("name", KINDS)
def test_all_weights_come_back_exactly(encoder_folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    kind, settings = KINDS[name]
    model = _changed(encoder_folders["bert"], kind, settings)
    model.save_pretrained(tmp_path)
    resumed = kind.from_backbone(str(encoder_folders["bert"]), pooling="mean", max_length=16, **settings)
    load_saved_weights(resumed, tmp_path)
    opened = AutoModelForPreTraining.from_pretrained(tmp_path)
    assert type(opened) is kind and opened.config.saved_settings() == model.config.saved_settings()
    for weight_name, weight in model.state_dict().items():
        assert torch.equal(resumed.state_dict()[weight_name], weight), weight_name
        assert torch.equal(opened.state_dict()[weight_name], weight), weight_name
    trained = {weight_name for weight_name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {weight_name for weight_name, weight in opened.named_parameters() if weight.requires_grad}


@pytest.mark.parametrize("name", ["dap", "ppa", "dual-pivot", "adapters"])
def test_sentence_transformers_opens_an_unexported_run(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], name: str
) -> None:
    from sentence_transformers import SentenceTransformer

    kind, settings = KINDS[name]
    model = _changed(encoder_folders["xlm-roberta"], kind, settings | {"normalize": True})
    model.save_pretrained(tmp_path / "run")
    export_sentence_transformer(tmp_path / "run", tmp_path / "export")
    expected = model.encode(sentences)
    for folder in (tmp_path / "run", tmp_path / "export"):
        for plain in ({}, {"hf_xsent": None}):  # None: as if this package were not imported
            theirs = SentenceTransformer(str(folder), device="cpu", config_kwargs=plain)
            np.testing.assert_allclose(theirs.encode(sentences), expected, atol=1e-5)
        np.testing.assert_allclose(AutoModel.from_pretrained(folder).encode(sentences), expected, atol=1e-5)
    assert (tmp_path / "run" / HEADS_FILE).is_file() and not (tmp_path / "export" / HEADS_FILE).exists()
    settings = json.loads((tmp_path / "export" / "config.json").read_text())["hf_xsent"]
    assert "objectives" not in settings and settings["max_length"] == 16


def test_weights_gathered_from_processes_are_saved(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    model = _changed(encoder_folders["bert"], XlmrWithRTLHead, {"lora_rank": 2})
    gathered = {name: weight.clone() for name, weight in model.state_dict().items()}
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    model.save_pretrained(tmp_path, state_dict=gathered)
    saved = saved_weights(tmp_path)
    assert all(torch.equal(saved[name], weight) for name, weight in gathered.items())
    adapter = "encoder.layer.0.attention.self.query"
    weight = gathered[f"encoder.{adapter}.base_layer.weight"]
    up, down = (gathered[f"encoder.{adapter}.lora_{matrix}.default.weight"] for matrix in "BA")
    merged = load_file(tmp_path / "model.safetensors")[f"{adapter}.weight"]
    torch.testing.assert_close(merged, weight + 2 * up @ down)


def test_a_folder_saved_again_has_no_heads_of_before(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"])).save_pretrained(tmp_path)
    DapForSentenceEmbedding.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert not (tmp_path / HEADS_FILE).exists()


def test_a_model_saved_over_an_export_is_alone_there(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    """The facts of the export have its results, and its ONNX and GGUF files other weights."""
    folder = export_sentence_transformer(str(encoder_folders["bert"]), tmp_path / "out", verify=False)
    files = ["onnx/model.onnx", "gguf/model-f16.gguf", "openvino/openvino_model.xml", "runtimes.json", "README.md"]
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("of the export", encoding="utf-8")
    (folder / "notes.txt").write_text("of the user", encoding="utf-8")
    DapForSentenceEmbedding.from_pretrained(folder).save_pretrained(folder)
    assert not any((folder / name).exists() for name in [*files, "training.json"])
    assert (folder / "notes.txt").is_file()


def test_a_model_saved_in_another_number_of_files_is_that_of_the_last_save(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    model = DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]))
    for size in ("1GB", "50KB", "1GB"):
        with torch.no_grad():
            model.encoder.embeddings.word_embeddings.weight.normal_()
        model.save_pretrained(tmp_path, max_shard_size=size)
        np.testing.assert_array_equal(AutoModel.from_pretrained(tmp_path).encode(sentences), model.encode(sentences))
    assert not (tmp_path / "model.safetensors.index.json").exists()


def test_the_weights_of_languages_in_another_order_are_not_loaded(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    both = {"objectives": {"representation_translation": {"direction": "both", "predicted_languages": ["de", "en"]}}}
    for kind, settings in ((WacseForPreTraining, {"languages": ["de", "en"]}), (XlmrWithRTLHead, both)):
        folder = tmp_path / kind.__name__
        model = kind.from_backbone(str(encoder_folders["bert"]), **settings)
        model.save_pretrained(folder)
        load_saved_weights(model, folder)
        other = kind.from_backbone(str(encoder_folders["bert"]), **_in_another_order(settings))
        with pytest.raises(RecipeError, match="has embeddings of the languages de, en: set languages to the same list"):
            load_saved_weights(other, folder)


def _in_another_order(settings: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(settings).replace('["de", "en"]', '["en", "de"]'))


def test_a_model_saved_beside_files_of_the_user_deletes_none(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "other.onnx").write_text("of the user", encoding="utf-8")
    XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"])).save_pretrained(tmp_path)
    assert (tmp_path / "onnx" / "other.onnx").is_file(), "the folder held no export of ours"


def test_who_can_read_the_config_can_read_the_weights(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"])).save_pretrained(tmp_path)
    names = ("config.json", "model.safetensors", HEADS_FILE)
    assert len({(tmp_path / name).stat().st_mode for name in names}) == 1


def test_a_model_saved_over_that_of_sentence_transformers_has_its_own_prompts(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer

    model = DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), prompts={"query": "ask: "})
    model.save_pretrained(tmp_path)
    opened = SentenceTransformer(str(tmp_path), device="cpu")
    for _ in range(2):
        opened.prompts["query"] = "find: "
        opened.save_pretrained(str(tmp_path))
        assert DapForSentenceEmbedding.from_pretrained(tmp_path).config.prompts["query"] == "find: "
    model.save_pretrained(tmp_path, safe_serialization=True)
    assert DapForSentenceEmbedding.from_pretrained(tmp_path).config.prompts["query"] == "ask: "


@pytest.mark.parametrize("name", ["wacse", "the authors' dual-pivot"])
def test_what_no_plain_encoder_computes_opens_with_this_package_alone(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], name: str
) -> None:
    from sentence_transformers import SentenceTransformer

    kind, settings = KINDS[name]
    model = _changed(encoder_folders["bert"], kind, settings)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == model.config.model_type
    opened, theirs = AutoModel.from_pretrained(tmp_path), SentenceTransformer(str(tmp_path), device="cpu")
    if model.config.languages:
        np.testing.assert_allclose(
            opened.encode(sentences, language="de"), model.encode(sentences, language="de"), atol=1e-6
        )
        with pytest.raises(ModelError, match="this model has language embeddings"):
            theirs.encode(sentences)
    else:
        for other in (opened, theirs):
            np.testing.assert_allclose(other.encode(sentences), model.encode(sentences), atol=1e-5)


def test_other_settings_than_those_of_the_heads_are_one_sentence(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"])).save_pretrained(tmp_path)
    weights = load_file(tmp_path / HEADS_FILE)
    name = next(name for name in weights if name.endswith("bias"))
    from safetensors.torch import save_file

    save_file(weights | {name: torch.zeros(3)}, tmp_path / HEADS_FILE)
    with pytest.raises(ModelError, match=r"has objectives.* of shape \(3,\), but the settings need"):
        XlmrWithRTLHead.from_pretrained(tmp_path)


OVER_PIECES: dict[str, tuple[Any, dict[str, Any]]] = {
    "RTL": (XlmrWithRTLHead, {}),
    "TLM": (XlmrWithRTLHead, {"translation_language_modeling": 1.0}),
    "MLM": (XlmrWithRTLHead, {"masked_language_modeling": {"untied_embeddings": True}}),
    "MEXMA": (XlmrWithRTLHead, {"mexma": 1.0}),
    "PPA": (MoCoAlignedBert, QUEUE),
}


def _pairs(model: Any, words: str = "") -> dict[str, torch.Tensor]:
    batch = model.tokenizer([f"The dog sleeps {words}", f"Where is it? {words}"], padding=True, return_tensors="pt")
    sides = ("source", "target")
    return {f"{side}_{key}": batch[key] for side in sides for key in ("input_ids", "attention_mask")}


@pytest.mark.parametrize("name", OVER_PIECES)
@pytest.mark.parametrize("encoder", ["bert-mlm", "modernbert"])
def test_a_model_with_new_tokens_trains_and_opens_again(
    encoder_folders: dict[str, Path], tmp_path: Path, name: str, encoder: str
) -> None:
    kind, objectives = OVER_PIECES[name]
    settings = {"objectives": objectives} if objectives else {}
    model = kind.from_backbone(str(encoder_folders[encoder]), max_length=32, **settings)
    before = {key: weight.clone() for key, weight in model.objectives.state_dict().items()}
    words = [f"new{number}" for number in range(5)]
    model.tokenizer.add_tokens(words)
    model.resize_token_embeddings(len(model.tokenizer))
    for key, weight in model.objectives.state_dict().items():
        kept = weight if weight.shape == before[key].shape else weight[: len(before[key])]
        assert torch.equal(kept, before[key]), key
    model.train()(**_pairs(model, " ".join(words))).loss.backward()
    assert model.get_input_embeddings().weight.grad is not None
    model.save_pretrained(tmp_path)
    opened = AutoModelForPreTraining.from_pretrained(tmp_path)
    assert all(torch.equal(weight, opened.state_dict()[key]) for key, weight in model.state_dict().items())
    assert len(opened.tokenizer) == opened.get_input_embeddings().num_embeddings


@pytest.mark.parametrize("kind", [XlmrWithRTLHead, MoCoAlignedBert, DualPivotForPreTraining])
@pytest.mark.parametrize("encoder", ["bert", "xlm-roberta", "modernbert"])
def test_heads_have_the_dtype_of_the_encoder(
    encoder_folders: dict[str, Path], sentences: list[str], kind: Any, encoder: str
) -> None:
    model = kind.from_backbone(str(encoder_folders[encoder]), dtype=torch.bfloat16, max_length=32)
    dtypes = {weight.dtype for weight in model.state_dict().values() if weight.is_floating_point()}
    assert dtypes == {torch.bfloat16}
    assert model(**_pairs(model)).loss.isfinite()
    assert model.encode(sentences[:2]).shape == (2, 32)


def test_language_embeddings_have_the_dtype_of_the_encoder(encoder_folders: dict[str, Path]) -> None:
    options: Any = {"dtype": torch.bfloat16, "languages": ["de", "en"]}
    model = DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), **options)
    assert model.encode(["A dog."], language="en").shape == (1, 32)


def test_embeddings_that_are_not_normalized_reopen_so(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    settings = {"normalize": False, "pooling": "mean", "max_length": 16}
    model = METHODS["dual-pivot"][1].from_backbone(str(encoder_folders["bert"]), **settings).eval()
    model.save_pretrained(tmp_path)
    reopened = METHODS["dual-pivot"][1].from_pretrained(str(tmp_path)).eval()
    assert reopened.config.normalize is False
    assert abs(model.encode(["A dog."]) - reopened.encode(["A dog."])).max() < 1e-5


def test_saving_uploads_too_if_asked_to(
    encoder_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads: list[Any] = []
    monkeypatch.setattr(
        PreTrainedModel, "push_to_hub", lambda self, *names, **options: uploads.append((names, options))
    )
    model = DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]))
    model.save_pretrained(tmp_path / "mine")
    model.save_pretrained(tmp_path / "mine", push_to_hub=True)
    model.save_pretrained(tmp_path / "mine", push_to_hub=True, repo_id="org/mine", private=True)
    assert uploads == [(("mine",), {}), (("org/mine",), {"private": True})]
