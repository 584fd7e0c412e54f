"""MEXMA against the numbers of its authors' code, and against a computation sentence by sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F
from transformers import XLMRobertaConfig, XLMRobertaModel

from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.objectives.mexma import koleo_loss

FOLDER = Path(os.environ.get("HF_XSENT_ASSETS", "")) / "parity" / "mexma"
STORED = json.loads((FOLDER / "mexma.json").read_text()) if (FOLDER / "mexma.json").is_file() else {"cases": {}}
PLACES = {  # theirs to ours
    "encoder.": "encoder.",
    "unmasking_head.layer.": "objectives.mexma.layers.encoder.encoder.layer.",
    "mlp_head.0.bias": "objectives.mexma.bias",
}
SMALL = dict(
    num_hidden_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    intermediate_size=64,
    vocab_size=100,
    max_position_embeddings=64,
    type_vocab_size=1,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    pad_token_id=1,
)


def _model(encoder: dict[str, Any], **settings: Any) -> SentenceEncoderForPreTraining:
    config = AlignmentConfig(
        encoder_config=XLMRobertaConfig(**encoder),
        max_length=16,
        pooling="cls",
        objectives={"mexma": settings},
        mask_token_id=99,
        unknown_token_id=3,
        special_token_ids=[0, 1, 2, 3, 99],
    )
    encoder_model = XLMRobertaModel(config.encoder_config, add_pooling_layer=False)
    return SentenceEncoderForPreTraining(config, encoder=encoder_model).double()


def _ours(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    found = {}
    for key, tensor in tensors.items():
        name = key.removeprefix(prefix)
        place = next((one for one in PLACES if name.startswith(one)), None)
        if key.startswith(prefix) and place is not None and "pooler" not in name:
            found[PLACES[place] + name.removeprefix(place)] = tensor.double()
    return found


def _give_masks(model: SentenceEncoderForPreTraining, sides: list[tuple[Tensor, Tensor, Tensor]]) -> None:
    """Let the masking of each side in turn return given ids and labels, found by the tokens' places."""
    objective: Any = model.objectives["mexma"]
    waiting = list(sides)

    def masking(_: Tensor) -> tuple[Tensor, Tensor]:
        ids, labels, mask = waiting.pop(0)
        lengths = mask.sum(1)
        order = lengths.sort(stable=True).indices
        flat = [(ids[row, :n], labels[row, :n]) for row, n in zip(order.tolist(), lengths[order].tolist(), strict=True)]
        return torch.cat([one for one, _ in flat]), torch.cat([one for _, one in flat]) != -100

    objective.masking = masking


@pytest.mark.skipif(not STORED["cases"], reason="HF_XSENT_ASSETS holds no numbers of the authors' code")
@pytest.mark.parametrize("name", list(STORED["cases"]))
def test_losses_and_gradients_are_those_of_the_authors_code(name: str) -> None:
    case, tensors = STORED["cases"][name], load_file(FOLDER / "mexma.safetensors")
    arguments, expected = case["args"], case["float64"]
    model = _model(
        STORED["config"],
        head_layers=arguments["number_of_transformer_layers_in_head"],
        mlm_weight=arguments["mlm_loss_weight"],
        alignment_weight=arguments["cls_loss_weight"],
        koleo_weight=arguments["koleo_loss_weight"],
    )
    missing, unexpected = model.load_state_dict(_ours(tensors, f"{name}.w."), strict=False)
    assert not unexpected and all(".encoder.embeddings." in one for one in missing)  # the head's own, unused
    source, target = ({what: tensors[f"{name}.in.{side}_{what}"] for what in _INPUTS} for side in ("src", "trg"))
    _give_masks(model, [(one["input_ids"], one["labels"], one["attention_mask"]) for one in (source, target)])
    output = model(source["clean"], source["attention_mask"], target["clean"], target["attention_mask"])
    output.loss.backward()

    assert output.loss.item() == pytest.approx(expected["total"], rel=1e-12)
    gradients = {key: one.grad for key, one in model.named_parameters() if one.grad is not None}
    theirs = _ours(tensors, f"{name}.grad.")
    assert {*theirs} <= {*gradients}
    for key, gradient in theirs.items():
        if not key.endswith("key.bias"):  # noise around zero
            torch.testing.assert_close(
                gradients[key], gradient, atol=1e-10, rtol=1e-9, msg=lambda m, k=key: f"{k}: {m}"
            )


_INPUTS = ("input_ids", "attention_mask", "labels", "clean")


def _plain_losses(model: Any, pairs: list[tuple[Tensor, Tensor]], masked: list[tuple[Tensor, Tensor]]) -> Tensor:
    """The equations, sentence by sentence: no packing, no kernels."""
    encode = lambda ids: model.encoder(input_ids=ids[None], attention_mask=torch.ones_like(ids[None])).last_hidden_state  # noqa: E731
    clean = [[encode(ids)[0, 0] for ids in pair] for pair in pairs]
    x, y = (torch.stack([one[side] for one in clean]) for side in range(2))
    total = (x - y).square().mean()
    for vectors in (x, y):
        scaled = vectors / vectors.norm(dim=1, keepdim=True)
        for i in range(len(scaled)):
            nearest = min((scaled[i] - scaled[j]).norm() for j in range(len(scaled)) if j != i)
            total = total - 0.01 / 2 / len(scaled) * nearest.log()
    objective = model.objectives["mexma"]
    for side in range(2):
        losses = []
        for number, pair in enumerate(pairs):
            ids, labels = masked[side][0][number], masked[side][1][number]
            hidden = torch.cat((clean[number][1 - side][None, None], encode(ids)[:, 1:]), 1)
            for layer in objective.layers.encoder.encoder.layer:
                hidden = layer(hidden)
                hidden = hidden[0] if isinstance(hidden, tuple) else hidden
            logits = hidden[0] @ model.get_input_embeddings().weight.T + objective.bias
            wanted = labels != -100
            losses += [F.cross_entropy(logits[wanted], pair[side][wanted], reduction="none")]
        total = total + torch.cat(losses).mean() / 2
    return total


def test_the_loss_is_that_of_the_equations_sentence_by_sentence() -> None:
    torch.manual_seed(0)
    model = _model(SMALL, head_layers=2)
    lengths = [(5, 7), (9, 4), (6, 6), (3, 8)]
    pairs = [
        tuple(torch.cat((torch.tensor([0]), torch.randint(4, 99, (n - 2,)), torch.tensor([2]))) for n in both)
        for both in lengths
    ]  # noqa: E501
    masked, inputs = [], []
    for side in range(2):
        ids, labels = [], []
        for pair in pairs:
            chosen = torch.rand(len(pair[side])) < 0.5
            chosen[[0, -1]] = False
            ids.append(torch.where(chosen, 99, pair[side]))
            labels.append(torch.where(chosen, pair[side], -100))
        masked.append((ids, labels))
        pad = lambda rows, filling: torch.nn.utils.rnn.pad_sequence(rows, True, filling)  # noqa: E731
        mask = pad([torch.ones_like(one) for one in ids], 0)
        inputs.append((pad(ids, 1), pad(labels, -100), mask, pad([pair[side] for pair in pairs], 1)))
    _give_masks(model, [one[:3] for one in inputs])
    output = model(inputs[0][3], inputs[0][2], inputs[1][3], inputs[1][2])
    torch.testing.assert_close(output.loss, _plain_losses(model, pairs, masked), atol=1e-6, rtol=0)
    output.loss.backward()
    used = [name for name, one in model.named_parameters() if one.requires_grad and one.grad is None]
    assert used == [], "every trained weight takes part in every step"


def test_koleo_takes_the_nearest_other_vector_and_sends_gradients_to_both() -> None:
    vectors = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    scaled = F.normalize(vectors, dim=1)
    distances = torch.stack([min((scaled[i] - scaled[j]).norm() for j in range(5) if j != i) for i in range(5)])
    plain = -distances.log().mean()
    loss = koleo_loss(vectors)
    torch.testing.assert_close(loss, plain, atol=1e-6, rtol=0)
    (ours,), (theirs,) = torch.autograd.grad(loss, vectors), torch.autograd.grad(plain, vectors)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
