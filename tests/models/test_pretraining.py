from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoTokenizer, BertConfig, BertModel

from hf_xsent import DapConfig, DapForPreTraining
from hf_xsent.data.collators import PairCollator
from hf_xsent.errors import RecipeError
from hf_xsent.models import pretraining
from hf_xsent.models.pretraining import AlignmentConfig
from hf_xsent.objectives.pair_encoding import PairEncoding
from hf_xsent.objectives.translation_ranking import translation_ranking_loss

Pairs = list[tuple[str, str]]


def _batch(folder: Path, pairs: Pairs) -> dict[str, Tensor]:
    examples = [{"source": source, "target": target, "language": "de"} for source, target in pairs]
    return PairCollator(AutoTokenizer.from_pretrained(folder), max_length=64)(examples)


def _model(folder: Path, **settings: Any) -> DapForPreTraining:
    return DapForPreTraining.from_backbone(str(folder), **settings).eval()


class _Distance(nn.Module):
    def forward(self, pairs: PairEncoding) -> Tensor:
        return (pairs.source - pairs.target).square().mean()


@pytest.fixture
def _second_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pretraining.OBJECTIVES, "distance", lambda config: _Distance())


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


# The authors' numbers


@pytest.mark.parametrize("case", ["tr", "tr_both"])
def test_loss_and_gradients_are_those_of_the_authors_code(assets: Path, case: str) -> None:
    stored = json.loads((assets / "parity" / "dap.json").read_text())
    tensors = load_file(assets / "parity" / "dap.safetensors")
    expected = stored["cases"][case]
    config = BertConfig(**stored["config"])
    encoder = BertModel(config, add_pooling_layer=False).double()
    prefix = f"{case}.w.bert."
    weights = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    encoder.load_state_dict({name: weight for name, weight in weights.items() if "pooler" not in name})
    settings = {
        "temperature": expected["args"]["temp"],
        "symmetric": case == "tr_both",
        "max_length": config.max_position_embeddings,
    }
    model = DapForPreTraining(DapConfig(encoder_config=config, **settings), encoder=encoder)
    ids, mask = tensors["in.input_ids"], tensors["in.attention_mask"]
    vectors = model.embed([ids[:, 0], ids[:, 1]], [mask[:, 0], mask[:, 1]])
    head = (tensors[f"{case}.w.mlp.dense.{name}"].double() for name in ("weight", "bias"))
    source, target = nn.functional.linear(vectors, *head).tanh().chunk(2)  # theirs trains through such a layer
    (objective,) = model.objectives.values()
    loss = objective(PairEncoding(source, target, torch.arange(4), torch.arange(4)))
    loss.backward()
    assert loss.item() == pytest.approx(expected["float64"]["tr"], rel=1e-12)
    prefix = f"{case}.grad.total.bert."
    gradients = {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
    norms = expected["float64"]["grad_norm_by_parameter"]["total"]
    compared = {f"bert.{name}": one.grad for name, one in encoder.named_parameters() if one.grad is not None}
    assert compared.keys() == {name for name in norms if name.startswith("bert.")}
    for name, gradient in compared.items():
        assert gradient.norm().item() == pytest.approx(norms[name], rel=1e-11, abs=1e-14), name
        stored_gradient = gradients[name.removeprefix("bert.")].double()  # kept in float32
        torch.testing.assert_close(gradient, stored_gradient, atol=1e-7, rtol=1e-6)


# What is refused


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"objectives": {"translation_rankin": 1.0}},
            "unknown objective 'translation_rankin': use translation_ranking; did you mean 'translation_ranking'?",
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
        DapForPreTraining.from_backbone(str(encoder_folders["bert"]), **settings)
    assert "\n" not in str(error.value)
