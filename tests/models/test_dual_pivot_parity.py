"""Every stored case of the dual pivot authors' code is reproduced in float64: variant ``authors``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from every_objective import sentence_pairs
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from hf_xsent import DualPivotConfig, DualPivotForPreTraining, DualPivotForSentenceEmbedding
from hf_xsent.models.linear_map import LinearMap
from hf_xsent.objectives import triplet
from hf_xsent.objectives.adversarial import Adversarial, CycleConsistency
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.triplet import TripletRanking
from hf_xsent.settings.model import VARIANT_OBJECTIVES
from hf_xsent.tensors.packing import pack

ASSETS = os.environ.get("HF_XSENT_ASSETS")
OPTIMIZER = ("objectives.adversarial.moments", "objectives.adversarial.steps_taken")  # zero at the start
FOLDER = Path(ASSETS or "") / "parity" / "dual_pivot"
NO_MARGIN = 4.0  # above any difference of cosines: no random negative is dropped
LEARNING_RATE = 1e-3

PLACES = {  # theirs to ours
    "lens.layer_pooler.weight": "layer_scores",
    "lens.layer_pooler.layer_norm.": "layer_norm.",
    "lens.feedforward._linear_layers.0.": "linear_map.",
    "cycle.0._linear_layers.0.": "objectives.cycle.to_target.",
    "cycle.1._linear_layers.0.": "objectives.cycle.to_source.",
    "critic._linear_layers.0.": "objectives.adversarial.critic.",
}
DROPOUTS = {  # theirs to ours, with the calls of one of ours
    "lens.feedforward._dropout.0": ("linear_map", [(0, 1)]),
    "cycle.0._dropout.0": ("objectives.cycle.to_target", [(0,), (1,)]),
    "cycle.1._dropout.0": ("objectives.cycle.to_source", [(0,), (1,)]),
    "critic._dropout.0": ("objectives.adversarial.critic", [(0,), (1,)]),
}


def _cases() -> Iterator[Any]:
    for file in sorted(FOLDER.glob("*.json")) if ASSETS else []:
        for name in json.loads(file.read_text())["cases"]:
            yield pytest.param(file, name, id=f"{file.stem}-{name}")


class Case:
    """One stored case: its arguments, expected numbers and tensors."""

    def __init__(self, file: Path, name: str) -> None:
        content = json.loads(file.read_text())["cases"][name]
        self.args, self.expected = content["args"], content.get("float64", {})
        self.tensors = load_file(file.with_suffix(".safetensors"))
        self.name = name

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return this case's tensors with a prefix, by the rest of their names."""
        prefix = f"{self.name}.{prefix}"
        return {key.removeprefix(prefix): one for key, one in self.tensors.items() if key.startswith(prefix)}

    def vectors(self) -> list[Tensor]:
        stored = [self.tensors[f"in.{self.args['inputs']}.vectors_{side}"] for side in (0, 1)]
        return [one.clone().requires_grad_() for one in stored]

    def batch(self, name: str) -> dict[str, Any]:
        """Return a batch whose hidden states are the stored ones, in packed order."""
        states, masks = ([self.tensors[f"in.{name}.{what}_{side}"] for side in (0, 1)] for what in ("states", "mask"))
        packed = pack([torch.zeros_like(mask, dtype=torch.long) for mask in masks], masks)
        flat = torch.cat([one[mask] for one, mask in zip(states, masks, strict=True)])[packed.token_order]
        numbers = torch.arange(len(masks[0]))
        return {
            "layer_states": flat.unbind(1), "packed": packed, "masks": masks,
            "source_identity": numbers, "target_identity": numbers,
        }  # fmt: skip

    def ranking(self, criterion: dict[str, Any]) -> dict[str, Any]:
        margin = NO_MARGIN if criterion["margin"] is None else criterion["margin"]
        return {"negatives": criterion["num_random_samples"] + 1, "margin": margin}

    def give_draws(self, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Their draws instead of ours: for each loss, those of rows (theirs [1]), then those of columns."""
        drawn = self.part(f"{prefix}drawn.")
        masks = iter([mask for call in sorted(drawn) for mask in (drawn[call][1], drawn[call][0].T)])
        monkeypatch.setattr(triplet, "draw_bernoulli", lambda others, count: next(masks).clone())


class Kept(nn.Module):
    """Dropout that keeps what was stored."""

    def __init__(self, masks: Iterable[Tensor], probability: float) -> None:
        super().__init__()
        self.masks, self.probability = iter(masks), probability

    def forward(self, values: Tensor) -> Tensor:
        return values * next(self.masks) / (1 - self.probability)


def _model(case: Case, lens: dict[str, Any], states: Tensor, **settings: Any) -> Any:
    pooler, (layers, width) = lens["layer_pooler"], states.shape[-2:]
    mixes = pooler["type"] == "linear"
    encoder = BertConfig(
        vocab_size=8, hidden_size=width, num_hidden_layers=layers - 1, num_attention_heads=1, intermediate_size=4
    )
    stated: dict[str, Any] = {
        "variant": "authors",
        "pooling": "mean" if lens["vec_encoder"]["averaged"] else "sum",
        "normalize": lens["norm_unit_slice"],
        "layers": [pooler["layer"]] if pooler["type"] == "one" else None,
        "layer_mix": mixes,
        "layer_norm": mixes and pooler["do_layer_norm"],
        "linear_map": lens["feedforward"] is not None,
        "map_bias": case.args["biases"],
        "dropout": case.args.get("dropout", 0.0),
    }
    config = DualPivotConfig(encoder_config=encoder, **stated | settings)
    kind = DualPivotForPreTraining if "objectives" in settings else DualPivotForSentenceEmbedding
    model: Any = kind(config, encoder=BertModel(encoder, add_pooling_layer=False)).double()
    weights = _named(case.part("w."), case.args["biases"])
    if not stated["linear_map"] or not settings.get("linear_map", True):
        weights = {name: one for name, one in weights.items() if not name.startswith("linear_map")}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and {name for name in missing if not name.startswith("encoder.")} <= {*OPTIMIZER}
    return model


def _named(theirs: dict[str, Tensor], biases: bool) -> dict[str, Tensor]:
    """Rename their tensors; biases that are 0 and frozen have no place in a model without them."""
    found = {}
    for name, tensor in theirs.items():
        prefix = next(one for one in PLACES if name.startswith(one))
        if biases or not ("_linear_layers" in name and name.endswith("bias")):
            found[PLACES[prefix] + name.removeprefix(prefix)] = tensor
        else:
            assert not tensor.any()
    return found


def _assert_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        torch.testing.assert_close(
            one.detach(), theirs[name], atol=1e-10, rtol=1e-10, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.skipif(not ASSETS, reason="HF_XSENT_ASSETS is not set")
@pytest.mark.parametrize(("file", "name"), list(_cases()))
def test_values_gradients_and_weights_are_those_of_the_authors_code(
    file: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = json.loads(file.read_text())["cases"][name]["kind"]
    {"lens": _lens, "triplet": _triplet, "cycle": _cycle, "critic": _critic, "train": _train}[kind](
        Case(file, name), monkeypatch
    )


def _lens(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, lens = case.batch(case.args["inputs"]), case.args["lens"]
    states = torch.stack(batch["layer_states"], 1)
    model = _model(case, lens, states).eval()
    unmapped = _model(case, lens, states, linear_map=False, normalize=False).eval()
    source, target = model.extract_tokens(batch["layer_states"], batch["packed"]).chunk(2)
    pooled = unmapped.extract_tokens(batch["layer_states"], batch["packed"]).chunk(2)
    ours = {"vectors_0": source, "vectors_1": target, "similarity": source @ target.T}
    ours |= {"pooled_0": pooled[0], "pooled_1": pooled[1]}
    stored = case.part("")
    _assert_equal(ours, {key: stored[key] for key in ours})


def _triplet(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = case.vectors()
    case.give_draws("", monkeypatch)
    settings: Any = VARIANT_OBJECTIVES["authors"]["triplet_ranking"] | case.ranking(case.args["criterion"])
    objective = TripletRanking(TripletRanking.Settings(**settings), SimpleNamespace())  # type: ignore[arg-type]
    loss = objective.sentence_loss(_pairs(source, target))
    loss.backward()
    assert loss.item() == pytest.approx(case.expected["loss"], rel=1e-12, abs=1e-13)
    assert source.grad is not None and target.grad is not None
    stored = case.part("grad.")
    _assert_equal(
        {"vectors_0": source.grad, "vectors_1": target.grad}, {key: stored[key] for key in ("vectors_0", "vectors_1")}
    )


def _pairs(source: Tensor, target: Tensor) -> SentencePairs:
    return sentence_pairs(source, target)


def _units(*vectors: Tensor) -> list[Tensor]:
    """The lens returns vectors of length 1."""
    return [nn.functional.normalize(one, dim=-1) for one in vectors]


def _parts(case: Case, width: int) -> Any:
    return SimpleNamespace(
        encoder_config=SimpleNamespace(hidden_size=width),
        linear_map=lambda outputs: LinearMap(width, outputs, case.args["biases"]),
    )


def _load(objective: nn.Module, case: Case, prefix: str) -> None:
    weights = _named(case.part("w."), case.args["biases"])
    own = {name.removeprefix(prefix): weight for name, weight in weights.items()}
    optimizer = {name: buffer for name, buffer in objective.named_buffers() if f"{prefix}{name}" in OPTIMIZER}
    objective.double().load_state_dict(own | optimizer)


def _cycle(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = case.vectors()
    case.give_draws("", monkeypatch)
    settings: Any = VARIANT_OBJECTIVES["authors"]["cycle"] | case.ranking(case.args["criterion"])
    objective = CycleConsistency(CycleConsistency.Settings(**settings), _parts(case, source.shape[1]))
    _load(objective, case, "objectives.cycle.")
    loss = objective.sentence_loss(_pairs(*_units(source, target)))
    loss.backward()
    assert loss.item() == pytest.approx(case.expected["loss"], rel=1e-12, abs=1e-13)
    stored = case.part("grad.")
    inputs = {"vectors_0": source.grad, "vectors_1": target.grad}
    _assert_equal(inputs, {key: stored.pop(key) for key in inputs})  # type: ignore[arg-type]
    ours = {f"objectives.cycle.{key}": one.grad for key, one in objective.named_parameters()}
    _assert_equal(ours, _named_gradients(stored, case))  # type: ignore[arg-type]


def _named_gradients(theirs: dict[str, Tensor], case: Case) -> dict[str, Tensor]:
    kept = {name: one for name, one in theirs.items() if case.args["biases"] or "_linear_layers.0.bias" not in name}
    return _named(kept, True)


def _critic(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = case.vectors()
    objective = Adversarial(Adversarial.Settings(), _parts(case, source.shape[1]))
    _load(objective, case, "objectives.adversarial.")
    weights = {name: one.detach().requires_grad_() for name, one in objective.critic.named_parameters()}
    loss = objective.critic_loss(*_units(source, target), weights)
    assert loss.item() == pytest.approx(case.expected["critic_loss"], rel=1e-12, abs=1e-13)
    loss.backward()
    stored = case.part("grad.")
    vectors = {key: stored.pop(key) for key in ("vectors_0", "vectors_1")}
    ours = {f"objectives.adversarial.critic.{name}": one.grad for name, one in weights.items()}
    _assert_equal(ours, _named_gradients(stored, case))  # type: ignore[arg-type]
    (-objective.sentence_loss(_pairs(*_units(source, target)))).backward()  # the encoder's loss is the negative
    _assert_equal({"vectors_0": source.grad, "vectors_1": target.grad}, vectors)  # type: ignore[dict-item]


def _train(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    args, theirs = case.args, case.args["model"]
    ranking = case.ranking(theirs["criterion"])
    objectives: dict[str, Any] = {"triplet_ranking": ranking}
    if "critic" in theirs:
        adversarial = {"critic_steps": args["critic_steps"]}
        objectives = {"adversarial": adversarial, "cycle": ranking | {"weight": args["lamda"]}}
    batches = [case.batch(name) for name in args["inputs"]]
    model = _model(case, theirs["lens"], torch.stack(batches[0]["layer_states"], 1), objectives=objectives).train()
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    optimizer = torch.optim.Adam(trained.values(), lr=LEARNING_RATE)
    for number, step in enumerate(case.expected["steps"]):
        prefix, batch = f"step.{number}.", batches[step["batch"]]
        _keep(model, case, prefix, batch)
        case.give_draws(prefix, monkeypatch)
        if step["player"] == "critic":
            gradients: dict[str, Any] = {}
            loss = _critic_step(model, batch, gradients)
            moved = {
                f"objectives.adversarial.critic.{name}": weight
                for name, weight in model.objectives["adversarial"].critic.named_parameters()
            }
        else:
            optimizer.zero_grad()
            output = model(**batch)
            output.loss.backward()
            loss, moved = output.loss.item(), trained
            gradients = {name: one.grad.clone() for name, one in moved.items()}
            optimizer.step()
            for ours, stored, sign in (("adversarial", "critic_loss", -1), ("cycle", "cycle_loss", 1)):
                if ours in output.losses:
                    assert sign * output.losses[ours].item() == pytest.approx(step[stored], rel=1e-10, abs=1e-11)
        assert loss == pytest.approx(step["loss"], rel=1e-10, abs=1e-11)
        _assert_equal(gradients, _named_gradients(case.part(f"{prefix}grad."), case))
        weights = _named(case.part(f"{prefix}w."), args["biases"])
        _assert_equal(moved, {name: one for name, one in weights.items() if name in moved})


def _critic_step(model: Any, batch: dict[str, Any], gradients: dict[str, Any]) -> float:
    """Take a step and return its loss; fill in its gradients."""
    losses: list[float] = []
    objective = model.objectives["adversarial"]
    compute = objective.critic_loss

    def remember(*arguments: Any) -> Tensor:
        loss: Tensor = compute(*arguments)
        losses.append(loss.item())
        return loss

    objective.critic_loss = remember
    with torch.no_grad():
        pairs = model.sentence_pairs(batch)
    gradient = objective.critic_gradient(pairs)
    objective.critic_loss = compute
    named = dict(objective.critic.named_parameters())
    parts = gradient.split([weight.numel() for weight in named.values()])
    for (name, weight), part in zip(named.items(), parts, strict=True):
        gradients[f"objectives.adversarial.critic.{name}"] = part.view_as(weight)
    objective._step(gradient, LEARNING_RATE)
    return losses[0]


def _keep(model: Any, case: Case, prefix: str, batch: dict[str, Any]) -> None:
    """Their dropout masks of a step instead of ours, in cases that have any."""
    kept, probability = case.part(f"{prefix}kept."), case.args["dropout"]
    if not kept:
        return
    tokens = [kept[f"lens.layer_pooler.dropout.{side}"] for side in (0, 1) if "lens.layer_pooler.dropout.0" in kept]
    if tokens:  # theirs are as wide as the longest sentence of the side
        flat = [one[mask[:, : one.shape[1]]] for one, mask in zip(tokens, batch["masks"], strict=True)]
        model.token_dropout = Kept([torch.cat(flat)[batch["packed"].token_order]], probability)
    for theirs, (ours, calls) in DROPOUTS.items():
        if f"{theirs}.0" in kept:
            masks = [torch.cat([kept[f"{theirs}.{side}"] for side in call]) for call in calls]
            model.get_submodule(ours).dropout = Kept(masks, probability)
