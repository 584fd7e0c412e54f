from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

from hf_xsent import DapConfig, DapForSentenceEmbedding, WacseForSentenceEmbedding, XlmrWithRTLHead
from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.families import backbone_of
from hf_xsent.objectives.registry import read_objectives

Batch = dict[str, Tensor]


def _batch(folder: Path, sentences: list[str]) -> Batch:
    encoded = AutoTokenizer.from_pretrained(folder)(sentences, padding=True, return_tensors="pt")
    return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}


def _shaken(model: torch.nn.Module) -> Any:
    """Weights that no new model has, so that one that was not loaded shows."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.eval()


def _assert_equal_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    assert one.state_dict().keys() == other.state_dict().keys()
    for (name, weight), expected in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(weight, expected), name


# Round trips


def test_a_sentence_model_opens_for_more_training(tiny_encoders: Path, tmp_path: Path) -> None:
    model = _shaken(DapForSentenceEmbedding.from_backbone(str(tiny_encoders), max_length=20, normalize=True))
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_encoders).save_pretrained(tmp_path)  # knows the id of [MASK]
    assert not (tmp_path / "heads.safetensors").exists()
    again, info = AutoModelForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert type(again) is XlmrWithRTLHead
    assert all(name.startswith("objectives.") for name in info["missing_keys"]) and not info["unexpected_keys"]
    _assert_equal_weights(again.encoder, model.encoder)
    head = again.objectives["representation_translation"].layers
    _assert_equal_weights(backbone_of(head.encoder).layers, again.backbone.layers[-2:])
    assert (again.config.max_length, again.config.normalize) == (20, True)


def test_every_setting_survives_the_round_trip(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("peft")
    settings: dict[str, Any] = {
        "pooling": "max",
        "normalize": True,
        "max_length": 17,
        "prompts": {"query": "query: "},
        "default_prompt_name": "query",
        "dropout": 0.2,
        "languages": ["de", "en"],
        "language_std": 0.1,
        "objectives": {
            "translation_ranking": {"weight": 0.5, "temperature": 0.1, "margin": 0.3, "symmetric": True},
            "representation_translation": {
                "weight": 0.8,
                "direction": "both",
                "predicted_languages": ["de", "en"],
                "head_layers": 1,
            },
        },
        "encoder_layers": 2,
        "training_mlp": True,
        "random_input_shuffling": True,
        "lora_rank": 2,
    }
    assert {*settings} == {*DapConfig.setting_names()}, "a setting is missing here"
    model = XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"]), **settings)
    model.save_pretrained(tmp_path)
    config = DapConfig.from_pretrained(tmp_path)
    expected = settings | {"objectives": read_objectives(settings["objectives"])}
    assert {name: getattr(config, name) for name in settings} == expected
    assert config.encoder_config.model_type == "bert"
    assert all(getattr(DapConfig(), name) != value for name, value in expected.items()), "a default proves nothing"
    for name in ("mask_token_id", "unknown_token_id", "special_token_ids"):  # what the tokenizer decided
        assert getattr(config, name) == getattr(model.config, name) != getattr(DapConfig(), name)


def test_a_checkpoint_names_no_path_of_this_machine(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = encoder_folders["bert"]
    XlmrWithRTLHead.from_backbone(str(folder)).save_pretrained(tmp_path)
    assert str(folder) not in (tmp_path / "config.json").read_text()


def test_weights_of_a_checkpoint_keep_their_precision(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    model = _shaken(DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), dtype=torch.bfloat16))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    model.save_pretrained(tmp_path)
    for opened in (AutoModel.from_pretrained(tmp_path), AutoModel.from_pretrained(tmp_path, dtype="auto")):
        assert {parameter.dtype for parameter in opened.parameters()} == {torch.bfloat16}
        _assert_equal_weights(opened, model)
    full = AutoModel.from_pretrained(tmp_path, dtype=torch.float32)
    assert {parameter.dtype for parameter in full.parameters()} == {torch.float32}


# Language embeddings


def test_new_language_embeddings_change_nothing(tiny_encoders: Path, sentences: list[str]) -> None:
    plain = DapForSentenceEmbedding.from_backbone(str(tiny_encoders)).eval()
    model = DapForSentenceEmbedding.from_backbone(str(tiny_encoders), languages=["de", "en"]).eval()
    assert not model.language_embeddings.weight.any()
    batch = _batch(tiny_encoders, sentences)
    ids = torch.arange(len(sentences)) % 2
    with torch.no_grad():
        assert torch.equal(model(**batch, language_ids=ids).sentence_embedding, plain(**batch).sentence_embedding)


@pytest.mark.parametrize(("settings", "spread"), [({}, 0.02), ({"language_std": 1.0}, 1.0)])
def test_language_embeddings_of_wacse_start_random(
    encoder_folders: dict[str, Path], settings: dict[str, Any], spread: float
) -> None:
    languages = [f"l{number}" for number in range(30)]
    torch.manual_seed(0)
    model = WacseForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), languages=languages, **settings)
    assert model.language_embeddings.weight.std().item() == pytest.approx(spread, rel=0.1)
    assert model.language_embeddings.weight.mean().abs() < spread / 5


def test_language_embeddings_that_a_checkpoint_lacks_start_at_zero(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    _shaken(XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"]))).save_pretrained(tmp_path)
    model = XlmrWithRTLHead.from_pretrained(tmp_path, languages=["de", "en"])
    assert model.language_embeddings.weight.shape == (2, 32)
    assert not model.language_embeddings.weight.any()


def test_a_config_of_a_model_does_not_open_a_folder_with_its_modules(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    model = XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"]))
    model.save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match="^config takes what AutoConfig.from_pretrained returns: state settings as"):
        XlmrWithRTLHead.from_pretrained(tmp_path, config=model.config)


def test_each_sentence_gets_its_own_language(tiny_encoders: Path, sentences: list[str]) -> None:
    model = _shaken(DapForSentenceEmbedding.from_backbone(str(tiny_encoders), languages=["de", "en"], pooling="mean"))
    batch = _batch(tiny_encoders, sentences)
    ids = torch.arange(len(sentences)) % 3 % 2
    with torch.no_grad():
        mixed = model(**batch, language_ids=ids).sentence_embedding
        whole = torch.stack([model(**batch, language_ids=torch.full_like(ids, i)).sentence_embedding for i in (0, 1)])
    torch.testing.assert_close(mixed, whole[ids, torch.arange(len(ids))], atol=1e-6, rtol=0)
    assert (whole[0] - whole[1]).abs().max() > 1e-3


def test_a_model_with_languages_wants_to_know_them(encoder_folders: dict[str, Path]) -> None:
    folder = encoder_folders["bert"]
    model = DapForSentenceEmbedding.from_backbone(str(folder), languages=["de", "en"])
    with pytest.raises(ModelError, match=r"pass language_ids, .* \['de', 'en'\]"):
        model(**_batch(folder, ["a"]))


# Forward


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
@pytest.mark.parametrize("normalize", [False, True])
def test_forward_gives_hugging_faces_states_and_the_vector_of_embed(
    tiny_encoders: Path, sentences: list[str], pooling: str, normalize: bool
) -> None:
    model = DapForSentenceEmbedding.from_backbone(str(tiny_encoders), pooling=pooling, normalize=normalize).eval()
    batch = _batch(tiny_encoders, sentences)
    with torch.no_grad():
        output = model(**batch)
        theirs = AutoModel.from_pretrained(tiny_encoders).eval()(**batch).last_hidden_state
        embedded = model.embed([batch["input_ids"]], [batch["attention_mask"]])
    real = batch["attention_mask"][..., None].bool()
    torch.testing.assert_close(output.last_hidden_state, theirs * real, atol=1e-5, rtol=0)
    assert output.pooler_output is output.sentence_embedding
    torch.testing.assert_close(embedded, output.sentence_embedding, atol=1e-6, rtol=0)

    expected = {
        "cls": theirs[:, 0],
        "mean": (theirs * real).sum(1) / real.sum(1),
        "max": theirs.masked_fill(~real, -torch.inf).amax(1),
    }[pooling]
    expected = torch.nn.functional.normalize(expected, dim=-1) if normalize else expected
    torch.testing.assert_close(output.sentence_embedding, expected, atol=1e-5, rtol=0)


def test_without_a_mask_every_token_counts(encoder_folders: dict[str, Path]) -> None:
    model = DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), pooling="mean").eval()
    ids = torch.tensor([[2, 7, 8, 3], [2, 9, 0, 3]])
    with torch.no_grad():
        assert torch.equal(model(ids).pooler_output, model(ids, attention_mask=torch.ones_like(ids)).pooler_output)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_attention_asked_for_reaches_the_encoder(
    encoder_folders: dict[str, Path], tmp_path: Path, attention: str
) -> None:
    model = DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), attn_implementation=attention)
    assert model.encoder.config._attn_implementation == attention
    model.save_pretrained(tmp_path)
    assert "attn_implementation" not in (tmp_path / "config.json").read_text()
    opened = AutoModel.from_pretrained(tmp_path, attn_implementation=attention)
    assert opened.encoder.config._attn_implementation == attention


# What is refused, in one sentence


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"pooling": "means"}, r"pooling 'means' is unknown: use cls, mean, max; did you mean 'mean'\?"),
        ({"pooling": "sum"}, "pooling 'sum' is unknown: use cls, mean, max"),
        ({"poolin": "cls"}, r"DapConfig has no setting 'poolin'; did you mean 'pooling'\?"),
        ({"dropout": 1.0}, "dropout 1.0 is not at least 0 and below 1"),
        ({"max_length": 257}, "max_length 257 does not fit: this encoder takes 3 to 256 tokens"),
        ({"encoder_config": None}, "DapConfig has no setting 'encoder_config'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tiny_encoders: Path, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError, match=f"^{told}") as error:
        DapForSentenceEmbedding.from_backbone(str(tiny_encoders), **settings)
    assert "\n" not in str(error.value)


def test_the_longest_sentence_that_fits_is_taken(tiny_encoders: Path) -> None:
    model = DapForSentenceEmbedding.from_backbone(str(tiny_encoders), max_length=256).eval()
    with torch.no_grad():
        assert model(torch.full((1, 256), 7)).sentence_embedding.isfinite().all()


def test_a_model_without_encoder_is_refused() -> None:
    with pytest.raises(ModelError, match="no encoder_config: use from_backbone"):
        DapForSentenceEmbedding(DapConfig())


def test_config_is_not_shared_between_two_models(encoder_folders: dict[str, Path]) -> None:
    config = DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"])).config
    one, other = DapForSentenceEmbedding(config), DapForSentenceEmbedding(config)
    assert one.encoder.config is not other.encoder.config


def test_setting_names_are_neither_transformers_own_nor_derived() -> None:
    names = AlignmentConfig.setting_names()
    assert {"pooling", "training_mlp", "objectives"} <= set(names)
    assert not {"encoder_config", "mask_token_id", "dtype", "architectures", "id2label"} & set(names)


def test_the_error_for_attention_weights_says_how_to_get_them(encoder_folders: dict[str, Path]) -> None:
    folder = encoder_folders["bert"]
    batch = _batch(folder, ["Nous mangeons du pain."])
    model = DapForSentenceEmbedding.from_pretrained(folder, attn_implementation="eager")
    with pytest.raises(ModelError, match="open the model with attn_implementation='eager', and call model.encoder"):
        model(**batch, output_attentions=True)
    assert len(model.encoder(**batch, output_attentions=True).attentions) == 3
