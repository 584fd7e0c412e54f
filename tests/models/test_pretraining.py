from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForPreTraining, AutoTokenizer

from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import RecipeError
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.pretraining import AlignmentForSentenceEmbedding, SentenceEncoderForPreTraining
from hf_xsent.objectives import registry
from hf_xsent.objectives.base import SentenceObjective
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.translation_ranking import translation_ranking_loss

Pairs = list[tuple[str, str]]


def _batch(folder: Path, pairs: Pairs) -> dict[str, Tensor]:
    examples = [{"source": source, "target": target, "language": "de"} for source, target in pairs]
    return PairCollator(AutoTokenizer.from_pretrained(folder), max_length=64)(examples)


def _model(folder: Path, **settings: Any) -> SentenceEncoderForPreTraining:
    settings.setdefault("objectives", {"translation_ranking": 1.0})
    return SentenceEncoderForPreTraining.from_backbone(str(folder), **settings).eval()


class _Distance(SentenceObjective):
    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        return (pairs.source - pairs.target).square().mean()


@pytest.fixture
def _second_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("distance")
    module.Distance = _Distance
    monkeypatch.setitem(sys.modules, "hf_xsent.objectives.distance", module)
    monkeypatch.setitem(registry.OBJECTIVES, "distance", "distance:Distance")


@pytest.mark.usefixtures("_second_objective")
def test_the_loss_is_the_weighted_sum_and_each_is_returned(tiny_encoders: Path, pairs: Pairs) -> None:
    model = _model(tiny_encoders, objectives={"translation_ranking": 0.5, "distance": 3})
    batch = _batch(tiny_encoders, pairs)
    output = model(**batch)
    source, target = (
        model.embed([batch[f"{side}_input_ids"]], [batch[f"{side}_attention_mask"]]) for side in ("source", "target")
    )
    ranking = translation_ranking_loss(source, target)
    distance = (source - target).square().mean()
    assert list(output.losses) == ["translation_ranking", "distance"]
    torch.testing.assert_close(output.losses["translation_ranking"], ranking.detach(), atol=1e-4, rtol=0)
    torch.testing.assert_close(output.losses["distance"], distance.detach())
    torch.testing.assert_close(output.loss, 0.5 * ranking + 3 * distance, atol=1e-4, rtol=1e-5)
    assert output.loss.requires_grad
    assert not any(loss.requires_grad for loss in output.losses.values())


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_does_not_count(tiny_encoders: Path, pairs: Pairs, pooling: str) -> None:
    model = _model(tiny_encoders, pooling=pooling)
    batch = _batch(tiny_encoders, pairs)
    padding = model.config.encoder_config.pad_token_id
    wide = {
        name: nn.functional.pad(tensor, (0, 9), value=padding if name.endswith("ids") else 0)
        for name, tensor in batch.items()
    }
    torch.testing.assert_close(model(**wide).loss, model(**batch).loss, atol=1e-5, rtol=0)


def test_the_order_of_pairs_does_not_count(tiny_encoders: Path, pairs: Pairs) -> None:
    ranking = {"symmetric": True, "temperature": 0.01}
    model = _model(tiny_encoders, pooling="mean", objectives={"translation_ranking": ranking})
    order = torch.randperm(len(pairs))
    batch = _batch(tiny_encoders, pairs)
    turned = {name: tensor[order] for name, tensor in batch.items()}
    torch.testing.assert_close(model(**turned).loss, model(**batch).loss, atol=1e-4, rtol=0)
    wrong = batch | {"source_input_ids": batch["source_input_ids"][order]}
    wrong["source_attention_mask"] = batch["source_attention_mask"][order]
    assert (model(**wrong).loss - model(**batch).loss).abs() > 0.01  # pairs that do not belong together cost more


def test_repeated_sentences_are_found_in_the_batch(tiny_encoders: Path, pairs: Pairs) -> None:
    """One target of two sources is no negative; with the mask off it is."""
    repeated = [*pairs[:4], (pairs[5][0], pairs[0][1])]
    batch = _batch(tiny_encoders, repeated)
    with_mask, without = (
        _model(tiny_encoders, pooling="cls", objectives={"translation_ranking": {"mask_repeated": on}})
        for on in (True, False)
    )
    source, target = with_mask.embed(
        [batch["source_input_ids"], batch["target_input_ids"]],
        [batch["source_attention_mask"], batch["target_attention_mask"]],
    ).chunk(2)
    identity = torch.tensor([0, 1, 2, 3, 0])
    expected = translation_ranking_loss(source, target, target_identity=identity)
    torch.testing.assert_close(with_mask(**batch).loss, expected)
    torch.testing.assert_close(without(**batch).loss, translation_ranking_loss(source, target))
    assert without(**batch).loss - expected > 0.01


def test_each_side_gets_its_language(tiny_encoders: Path, pairs: Pairs) -> None:
    ranking = {"translation_ranking": {"temperature": 0.01}}
    model = _model(tiny_encoders, languages=["de", "en"], pooling="mean", objectives=ranking)
    nn.init.normal_(model.language_embeddings.weight)
    batch = _batch(tiny_encoders, pairs)
    ids = torch.tensor([0, 1]).repeat_interleave(len(pairs))
    source, target = (
        model.embed([batch[f"{side}_input_ids"]], [batch[f"{side}_attention_mask"]], ids[rows])
        for side, rows in (("source", slice(len(pairs))), ("target", slice(len(pairs), None)))
    )
    expected = translation_ranking_loss(source, target, temperature=0.01)
    torch.testing.assert_close(model(**batch, language_ids=ids).loss, expected, atol=1e-4, rtol=0)
    assert (model(**batch, language_ids=1 - ids).loss - expected).abs() > 1e-3


def test_dropout_differs_between_two_equal_steps(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    model = _model(encoder_folders["bert"]).train()
    batch = _batch(encoder_folders["bert"], pairs)
    assert model(**batch).loss != model(**batch).loss


def test_dropout_can_be_set_whatever_the_family_calls_it(tiny_encoders: Path, pairs: Pairs) -> None:
    batch = _batch(tiny_encoders, pairs)
    still = _model(tiny_encoders, dropout=0.0).train()
    assert still(**batch).loss == still(**batch).loss
    noisy = _model(tiny_encoders, dropout=0.3).train()
    assert noisy(**batch).loss != noisy(**batch).loss


def test_a_mix_without_a_preset_is_saved_and_opened_by_the_auto_classes(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    folder = encoder_folders["bert-mlm"]
    mix = {"translation_ranking": {"temperature": 0.1}, "masked_language_modeling": 0.5}
    model = _model(folder, objectives=mix, max_length=32)
    model.save_pretrained(tmp_path)
    again = AutoModelForPreTraining.from_pretrained(tmp_path).eval()
    assert type(again) is SentenceEncoderForPreTraining
    assert again.config.objectives == model.config.objectives
    batch = _batch(folder, pairs)
    ranking = [one(**batch).losses["translation_ranking"] for one in (model, again)]
    assert torch.equal(*ranking)
    assert type(AutoModel.from_pretrained(tmp_path)) is AlignmentForSentenceEmbedding


def test_ranking_alone_is_the_default() -> None:
    assert AlignmentConfig().objectives == registry.read_objectives({"translation_ranking": 1.0})


# What a config says of its objectives


def test_the_needs_of_all_objectives_are_joined() -> None:
    config = AlignmentConfig(objectives={"word_translation_ranking": 1.0, "distillation": {"teacher": "some/model"}})
    assert (config.needs.links, config.needs.teacher, config.needs.pairs) == (True, {"target"}, True)
    assert config.needs.embeddings == config.needs.states == {"source", "target"}
    assert not (config.needs.mask_token or config.needs.momentum_encoder or config.needs.frozen_encoder)
    assert config.teachers() == {"distillation": "some/model"}
    unpaired = AlignmentConfig(objectives={"masked_language_modeling": 1.0})
    assert unpaired.needs.mask_token and not unpaired.needs.pairs and unpaired.teachers() == {}


def test_languages_of_the_data_must_have_an_embedding_where_others_have() -> None:
    rtl = {"representation_translation": {"direction": "both", "predicted_languages": ["de", "en"]}}
    configs = {
        "languages": AlignmentConfig(languages=["de", "en"]),
        "objectives.representation_translation.predicted_languages": AlignmentConfig(objectives=rtl),
    }
    for setting, config in configs.items():
        assert config.embedded_languages == ["de", "en"]
        config.check_languages({"de", "en"})
        cure = f"the encoder that the model starts from, with {setting} de, en, fr, or without {setting}$"
        with pytest.raises(
            RecipeError, match=f"^language 'fr' of the data has no embedding, .* cannot learn it: .*{cure}"
        ):
            config.check_languages({"de", "en", "fr"})
    assert AlignmentConfig().embedded_languages is None
    AlignmentConfig().check_languages({"fr"})


def test_a_replaced_config_keeps_all_else() -> None:
    config = AlignmentConfig(objectives={"translation_ranking": {"temperature": 0.1}}, mask_token_id=7, pooling="mean")
    changed = config.replaced(max_length=9)
    assert (changed.max_length, changed.mask_token_id, changed.pooling) == (9, 7, "mean")
    assert changed.objectives == config.objectives
    assert config.max_length != 9


# Errors
