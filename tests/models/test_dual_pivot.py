"""The extraction over a frozen encoder: outputs, saved files, and that the encoder does not train."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentence_transformers.sentence_transformer.modules import Dense
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

from hf_xsent import (
    DualPivotConfig,
    DualPivotForPreTraining,
    DualPivotForSentenceEmbedding,
    SentenceEmbedder,
    export_sentence_transformer,
)
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.models.sentence_encoder import View
from sentence_transformers import SentenceTransformer

Pairs = list[tuple[str, str]]
UNSUPERVISED = {"adversarial": 1.0, "cycle": 5.0}


def _model(folder: Path, **settings: object) -> DualPivotForPreTraining:
    """With an extraction that is not the one it starts from."""
    model = DualPivotForPreTraining.from_backbone(str(folder), max_length=64, **settings)
    with torch.no_grad():
        for weight in (model.layer_scores, None if model.linear_map is None else model.linear_map.weight):
            if weight is not None:
                weight.add_(torch.randn_like(weight))
    return model


def _batch(folder: Path, pairs: Pairs) -> dict[str, torch.Tensor]:
    examples = [{"source": source, "target": target, "language": "de"} for source, target in pairs]
    return PairCollator(AutoTokenizer.from_pretrained(folder), 64)(examples)


def test_the_vector_is_the_mapped_sum_over_tokens_of_mixed_layers(tiny_encoders: Path, sentences: list[str]) -> None:
    model = _model(tiny_encoders, normalize=False)
    batch = AutoTokenizer.from_pretrained(tiny_encoders)(sentences, padding=True, return_tensors="pt")
    ours = model.embed([batch["input_ids"]], [batch["attention_mask"]])
    for row, (ids, mask) in enumerate(zip(batch["input_ids"], batch["attention_mask"], strict=True)):
        states = model.encoder(ids[mask.bool()][None], output_hidden_states=True).hidden_states
        weights = model.layer_scores.softmax(0)
        mixed = sum(weight * state[0] for weight, state in zip(weights, states, strict=True))
        torch.testing.assert_close(ours[row], model.linear_map(mixed.sum(0)), atol=2e-4, rtol=1e-4)


def test_untrained_it_is_the_average_of_the_layers(tiny_encoders: Path, sentences: list[str]) -> None:
    model = DualPivotForSentenceEmbedding.from_backbone(str(tiny_encoders))
    batch = AutoTokenizer.from_pretrained(tiny_encoders)(sentences, padding=True, return_tensors="pt")
    sums = model.layer_sums([batch["input_ids"]], [batch["attention_mask"]])
    torch.testing.assert_close(model(**batch).sentence_embedding, torch.nn.functional.normalize(sums.mean(1), dim=-1))


def test_other_methods_do_not_start_from_a_mix_of_layers(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    DualPivotForPreTraining.from_backbone(str(encoder_folders["bert"])).save_pretrained(tmp_path)
    with pytest.raises(RecipeError, match="dual pivot's mix of the layers of a frozen encoder: start from the encoder"):
        SentenceEncoderForPreTraining.from_backbone(str(tmp_path))
    with pytest.raises(ModelError, match="open it with AutoModelForPreTraining$"):
        SentenceEncoderForPreTraining.from_pretrained(str(tmp_path))


def test_layer_scores_are_loaded_for_the_same_layers_only(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    trained, run, export = _model(encoder_folders["bert"], layers=[1, 3]), str(tmp_path / "run"), tmp_path / "export"
    trained.save_pretrained(run)
    start = DualPivotForPreTraining.from_backbone
    for folder in (run, str(export_sentence_transformer(trained, str(export)))):
        followed, others, whole = start(folder), start(folder, layers=[0, 2]), start(folder, layers=[0, 1, 2, 3])
        assert followed.config.layers == [1, 3]
        torch.testing.assert_close(followed.mixing_weights, trained.mixing_weights)
        assert others.mixing_weights.tolist() == [0.5, 0, 0.5, 0]
        assert whole.mixing_weights.tolist() == [0.25] * 4
        assert torch.equal(others.linear_map.weight, trained.linear_map.weight)
        with pytest.raises(ModelError, match=r"mixes other layers than \[0, 2\]: use from_backbone to start new heads"):
            DualPivotForPreTraining.from_pretrained(folder, layers=[0, 2])


def _changed(folder: str, change: Callable[[SentenceTransformer], None]) -> SentenceTransformer:
    """A model that was changed in sentence-transformers and saved over its folder."""
    model = SentenceTransformer(folder, device="cpu")
    with torch.no_grad():
        change(model)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"layers": [3]}, lambda model: model[1].layer_weights.add_(0.1)),
        ({}, lambda model: model[1].layer_weights[0].sub_(0.5)),
        ({"layer_mix": False}, lambda model: model[1].layer_weights[0].add_(1)),
        ({}, lambda model: model.__delitem__(3)),  # the linear map
        ({"variant": "authors"}, lambda model: model.append(Dense(32, 32))),
    ],
)
def test_what_only_sentence_transformers_computes_opens_there(
    settings: Any, change: Any, encoder_folders: dict[str, Path], sentences: list[str], tmp_path: Path
) -> None:
    folder = str(tmp_path)
    DualPivotForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), **settings).save_pretrained(folder)
    expected = _changed(folder, change).encode(sentences)
    again = SentenceTransformer(folder, device="cpu").encode(sentences)
    torch.testing.assert_close(again, expected, atol=1e-5, rtol=1e-4)
    for opening in (SentenceEmbedder.from_pretrained, DualPivotForSentenceEmbedding.from_pretrained):
        with pytest.raises(ModelError, match="open it with sentence_transformers.SentenceTransformer$"):
            opening(folder)
    started = DualPivotForSentenceEmbedding.from_backbone(folder)  # from the encoder alone
    assert started.mixing_weights.tolist() == [0.25] * 4


@pytest.mark.parametrize("layers", [None, [1, 3]])
def test_a_mix_of_layers_that_sentence_transformers_trained_is_opened(
    layers: list[int] | None, encoder_folders: dict[str, Path], sentences: list[str], tmp_path: Path
) -> None:
    _model(encoder_folders["bert"], layers=layers).save_pretrained(tmp_path)
    changed = _changed(str(tmp_path), lambda model: model[1].layer_weights.mul_(2)[1].zero_())
    ours = SentenceEmbedder.from_pretrained(str(tmp_path), device="cpu")
    torch.testing.assert_close(ours.encode(sentences), changed.encode(sentences), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_settings_of_encode_that_change_in_sentence_transformers_are_followed(
    variant: str, encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    def change(model: SentenceTransformer) -> None:
        model.prompts, model.default_prompt_name = {"query": "the dog "}, "query"
        model.max_seq_length, model.truncate_dim = 6, 8

    folder, start = str(tmp_path), str(encoder_folders["bert"])
    DualPivotForSentenceEmbedding.from_backbone(start, variant=variant).save_pretrained(folder)
    _changed(folder, change)
    ours = SentenceEmbedder.from_pretrained(folder, device="cpu")
    assert (ours.prompt, ours.max_length, ours.width) == ("the dog ", 6, 8)
    assert AutoModel.from_pretrained(folder).config.max_length == 6
    assert DualPivotForSentenceEmbedding.from_pretrained(folder, max_length=5).config.max_length == 5
    if variant == "authors":  # transformers reads other arguments into such a config
        assert AutoModel.from_pretrained(folder, max_length=5).config.max_length == 5


def test_a_mix_of_layers_has_no_other_pooling(encoder_folders: dict[str, Path], sentences: list[str]) -> None:
    model = DualPivotForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]))
    embedder = SentenceEmbedder(model, AutoTokenizer.from_pretrained(encoder_folders["bert"]))
    with pytest.raises(ModelError, match="mixes its layers and has no pooling 'cls'"):
        embedder.encode_views(sentences, [View(None, "sum"), View(None, "cls")])
    mixed, single = embedder.encode_views(sentences, [View(None, "sum"), View(2, "cls")])
    assert mixed.shape == single.shape


def test_single_layers_without_mix_or_map_are_the_plain_sums(tiny_encoders: Path, sentences: list[str]) -> None:
    model = DualPivotForSentenceEmbedding.from_backbone(
        str(tiny_encoders), layers=[2], layer_mix=False, linear_map=False, normalize=False
    )
    embedder = SentenceEmbedder(model, AutoTokenizer.from_pretrained(tiny_encoders))
    of_layer = SentenceEmbedder(model, embedder.tokenizer, layer=2)
    assert abs(embedder.encode(sentences) - of_layer.encode(sentences)).max() < 1e-5
    assert model.mixing_weights.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    "objectives",
    [{"triplet_ranking": {"margin": 0.3}}, {"adversarial": 1.0, "cycle": {"weight": 5.0, "margin": 0.3}}],
    ids=["pairs", "no pairs"],
)
def test_features_give_the_losses_and_gradients_of_the_encoder(
    objectives: dict[str, Any], tiny_encoders: Path, pairs: Pairs
) -> None:
    model = _model(tiny_encoders, objectives=objectives)
    batch = _batch(tiny_encoders, pairs)
    through = model(**batch)
    through.loss.backward()
    expected = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    sides = [[batch[f"{side}_{what}"] for side in ("source", "target")] for what in ("input_ids", "attention_mask")]
    identities = {f"{side}_identity": torch.arange(len(pairs)) for side in ("source", "target")}
    features = model(layer_sums=model.layer_sums(*sides), **identities)
    features.loss.backward()
    torch.testing.assert_close(features.loss, through.loss)
    for name, one in model.named_parameters():
        assert (one.grad is None) == (name not in expected), name
        if one.grad is not None:
            torch.testing.assert_close(one.grad, expected[name])


def test_only_extraction_and_maps_learn_also_after_loading(tiny_encoders: Path, pairs: Pairs, tmp_path: Path) -> None:
    model = _model(tiny_encoders, objectives=UNSUPERVISED)
    model.save_pretrained(tmp_path)
    for one in (model, AutoModelForPreTraining.from_pretrained(tmp_path).train()):
        assert not any(weight.requires_grad for weight in one.encoder.parameters())
        assert not one.encoder.training
        one(**_batch(tiny_encoders, pairs)).loss.backward()
        learning = {name for name, weight in one.named_parameters() if weight.grad is not None}
        maps = {f"objectives.cycle.{name}.weight" for name in ("to_target", "to_source")}
        assert learning == {"layer_scores", "linear_map.weight", *maps}
    assert not any(one.requires_grad for one in AutoModel.from_pretrained(tmp_path).encoder.parameters())


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"pooling": "cls"}, "^pooling 'cls' is unknown: use sum, mean"),
        (
            {"objectives": {"representation_translation": 1.0}},
            "^dual pivot freezes the encoder, which representation_translation trains: use objectives over sentences",
        ),
        ({"objectives": {"momentum_contrast": 1.0}}, "^dual pivot freezes the encoder, which momentum_contrast trains"),
        ({"layers": [4]}, r"layers \[4\] do not exist: this encoder has 0 \(embeddings\) to 3"),
        ({"layers": []}, r"layers \[\] do not exist"),
        ({"lora_rank": 2}, "remove lora_rank"),
        ({"random_input_shuffling": True}, "remove random_input_shuffling"),
        ({"layer_mix": False, "linear_map": False}, "layer_mix and linear_map are both false"),
    ],
)
def test_settings_that_cannot_be_are_errors(
    settings: dict[str, object], told: str, encoder_folders: dict[str, Path]
) -> None:
    with pytest.raises(RecipeError, match=told):
        DualPivotForPreTraining.from_backbone(str(encoder_folders["xlm-roberta"]), **settings)


def test_objectives_over_a_frozen_encoder_need_dual_pivot(encoder_folders: dict[str, Path]) -> None:
    with pytest.raises(RecipeError, match="^adversarial trains over a frozen encoder: use method dual-pivot"):
        SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"]), objectives=UNSUPERVISED)


# The variant of the authors; test_dual_pivot_parity.py has its numbers

AUTHORS = {"pooling": "mean", "dropout": 0.1, "layer_norm": True, "map_bias": True, "map_start": "random"}
AUTHORS_COSTS = {"hinge": False, "random_negatives": "bernoulli", "mask_repeated": False}


def test_a_variant_is_the_default_of_settings_that_are_not_stated() -> None:
    paper, authors = DualPivotConfig(), DualPivotConfig(variant="authors")
    for name, value in AUTHORS.items():
        assert getattr(authors, name) == value != getattr(paper, name), name
    assert authors.paired_rows and not paper.paired_rows
    for name, value in AUTHORS_COSTS.items():
        assert getattr(authors.objectives["triplet_ranking"], name) == value, name
        assert getattr(paper.objectives["triplet_ranking"], name) != value, name
    stated = DualPivotConfig(
        variant="authors", layer_norm=False, dropout=0.0, objectives={"cycle": {"hinge": True, "negatives": 2}}
    )
    assert not stated.layer_norm and stated.dropout == 0 and stated.map_bias
    cycle = stated.objectives["cycle"]
    assert cycle.hinge and cycle.negatives == 2 and cycle.random_negatives == "bernoulli"
    with pytest.raises(RecipeError, match="variant 'author' is unknown: use paper, authors"):
        DualPivotConfig(variant="author")


@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_a_variant_comes_back_whole(
    variant: str, encoder_folders: dict[str, Path], sentences: list[str], tmp_path: Path
) -> None:
    folder = encoder_folders["bert"]
    model = _model(folder, variant=variant, objectives=UNSUPERVISED)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForPreTraining.from_pretrained(tmp_path)
    assert loaded.config.recipe() == model.config.recipe()
    assert loaded.encoder.config.hidden_dropout_prob == model.encoder.config.hidden_dropout_prob > 0
    for name, weight in model.named_parameters():
        assert torch.equal(loaded.get_parameter(name), weight), name
    embedded = AutoModel.from_pretrained(tmp_path)
    assert (embedded.layer_norm is None) == (variant == "paper")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    before, after = (SentenceEmbedder(one, tokenizer).encode(sentences) for one in (model, embedded))
    assert abs(before - after).max() < 1e-6


def test_dropout_is_of_training_alone_and_of_each_step(tiny_encoders: Path, pairs: Pairs) -> None:
    model = _model(tiny_encoders, variant="authors", objectives=UNSUPERVISED)
    batch = model.encoded(_batch(tiny_encoders, pairs))
    model.eval()
    assert torch.equal(model.sentence_pairs(batch).source, model.sentence_pairs(batch).source)
    model.train()
    assert not torch.equal(model.sentence_pairs(batch).source, model.sentence_pairs(batch).source)


@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_the_extraction_computes_in_the_dtype_of_the_model(
    variant: str, encoder_folders: dict[str, Path], sentences: list[str]
) -> None:
    model = _model(encoder_folders["bert"], variant=variant, layer_mix=variant == "authors").double().eval()
    batch = AutoTokenizer.from_pretrained(encoder_folders["bert"])(sentences, padding=True, return_tensors="pt")
    vectors = model.embed([batch["input_ids"]], [batch["attention_mask"]])
    assert vectors.dtype == torch.float64
    if variant == "paper":
        sums = model.layer_sums([batch["input_ids"]], [batch["attention_mask"]])
        expected = torch.nn.functional.normalize(sums.mean(1) @ model.linear_map.weight.T, dim=-1)
        torch.testing.assert_close(model.extract(sums), expected, atol=1e-14, rtol=1e-14)
    assert model.half().embed([batch["input_ids"]], [batch["attention_mask"]]).dtype == torch.float16


def test_maps_start_as_the_identity_or_at_random(encoder_folders: dict[str, Path]) -> None:
    models = [
        DualPivotForPreTraining.from_backbone(str(encoder_folders["bert"]), variant=variant, objectives=UNSUPERVISED)
        for variant in ("paper", "authors")
    ]
    identity, random = (one.linear_map.weight for one in models)
    width = len(identity)
    assert torch.equal(identity, torch.eye(width))
    for weight in (random, models[0].objectives["cycle"].to_target.weight, models[1].linear_map.bias):
        assert weight.std() > 0 and weight.abs().max() <= width**-0.5  # as torch starts a linear layer
