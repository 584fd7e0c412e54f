from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hf_xsent.models.objectives import AlignmentConfig
from torch import Tensor, nn
from transformers import AutoTokenizer

from hf_xsent import XlmrWithRTLHead
from hf_xsent.data.collators import PairCollator
from hf_xsent.errors import RecipeError
from hf_xsent.models import objectives
from hf_xsent.objectives.pairs import SentenceObjective, SentencePairs
from hf_xsent.objectives.translation_ranking import translation_ranking_loss

Pairs = list[tuple[str, str]]


def _batch(folder: Path, pairs: Pairs) -> dict[str, Tensor]:
    examples = [{"source": source, "target": target, "language": "de"} for source, target in pairs]
    return PairCollator(AutoTokenizer.from_pretrained(folder), max_length=64)(examples)


def _model(folder: Path, **settings: Any) -> XlmrWithRTLHead:
    settings.setdefault("objectives", {"translation_ranking": 1.0})
    return XlmrWithRTLHead.from_backbone(str(folder), **settings).eval()


class _Distance(SentenceObjective):
    def forward(self, pairs: SentencePairs) -> Tensor:
        return (pairs.source - pairs.target).square().mean()


@pytest.fixture
def _second_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(objectives.OBJECTIVES, "distance", lambda config: _Distance())


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


def test_settings_reach_the_objective(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    settings: dict[str, Any] = {
        "temperature": 0.2,
        "margin": 0.3,
        "margin_before_temperature": True,
        "symmetric": True,
        "mask_repeated": False,
    }
    (objective,) = _model(encoder_folders["bert"], **settings).objectives.values()
    assert {name: getattr(objective, name) for name in settings} == settings


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
    model = _model(tiny_encoders, symmetric=True, pooling="mean", temperature=0.01)
    order = torch.randperm(len(pairs))
    batch = _batch(tiny_encoders, pairs)
    turned = {name: tensor[order] for name, tensor in batch.items()}
    torch.testing.assert_close(model(**turned).loss, model(**batch).loss, atol=1e-4, rtol=0)
    wrong = batch | {"source_input_ids": batch["source_input_ids"][order]}
    wrong["source_attention_mask"] = batch["source_attention_mask"][order]
    assert (model(**wrong).loss - model(**batch).loss).abs() > 0.01  # pairs that do not belong together cost more


def test_repeated_sentences_are_found_in_the_batch(tiny_encoders: Path, pairs: Pairs) -> None:
    """One target under two sources is no wrong answer; with the mask off it is."""
    repeated = [*pairs[:4], (pairs[5][0], pairs[0][1])]
    batch = _batch(tiny_encoders, repeated)
    with_mask, without = (_model(tiny_encoders, mask_repeated=on) for on in (True, False))
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
    model = _model(tiny_encoders, languages=["de", "en"], pooling="mean", temperature=0.01)
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


# What is refused


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"objectives": {"translation_rankin": 1.0}},
            "unknown objective 'translation_rankin': use translation_ranking, representation_translation, ",
        ),
        ({"objectives": {}}, "no objective is chosen: name at least one of translation_ranking"),
        ({"objectives": {"translation_ranking": 0.0}}, "the weight of objective 'translation_ranking' is 0.0: give"),
        ({"objectives": {"translation_ranking": -1.0}}, "the weight of objective 'translation_ranking' is -1.0: give"),
        ({"objectives": {"translation_ranking": float("nan")}}, "the weight of objective 'translation_ranking' is nan"),
        ({"temperature": 0.0}, "temperature 0.0 is not positive"),
        ({"temperature": -0.1}, "temperature -0.1 is not positive"),
        ({"temperature": float("nan")}, "temperature nan is not positive"),
        ({"pooling": "maxx"}, "unknown pooling 'maxx'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(RecipeError) as error:
        AlignmentConfig(**settings)
    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("settings", [{"temperature": "warm"}, {"objectives": ["translation_ranking"]}])
def test_settings_of_a_wrong_type_are_refused(encoder_folders: dict[str, Path], settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(RecipeError, match=name) as error:
        XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"]), **settings)
    assert "\n" not in str(error.value)
