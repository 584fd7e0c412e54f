from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from every_objective import sentence_pairs
from torch import Tensor
from transformers import AutoTokenizer

from hf_xsent import AlignmentTrainer, AlignmentTrainingArguments, DapForSentenceEmbedding, XlmrWithRTLHead
from hf_xsent.objectives.interpolation import Interpolation
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.runs.run import Run

Pairs = list[tuple[str, str]]


def _by_loop(source: Tensor, target: Tensor, start_source: Tensor, start_target: Tensor) -> float:
    """Mean over sides, sentences and dimensions of the squared distance to the middle of the start."""
    total, count = 0.0, 0
    for x, y, start_x, start_y in zip(source, target, start_source, start_target, strict=True):
        for a, b, start_a, start_b in zip(*(row.tolist() for row in (x, y, start_x, start_y)), strict=True):
            middle = (start_a + start_b) / 2
            total += (a - middle) ** 2 + (b - middle) ** 2
            count += 2
    return total / count


def test_both_sides_are_pulled_to_the_middle_of_the_start() -> None:
    source, target, start_source, start_target = torch.randn(4, 3, 5, dtype=torch.float64)
    pairs = sentence_pairs(source, target).taught("interpolation", {"source": start_source, "target": start_target})
    parts: Any = None  # it builds nothing
    loss = Interpolation(ObjectiveSettings(), parts).sentence_loss(pairs)
    assert loss.item() == pytest.approx(_by_loop(source, target, start_source, start_target), rel=1e-12)


def _trainer(folder: Path, out: Path, pairs: Pairs, model: Any = None, **arguments: Any) -> AlignmentTrainer:
    chosen = AlignmentTrainingArguments(str(out), use_cpu=True, report_to="none", max_steps=1, **arguments)
    return AlignmentTrainer(model, chosen, {"de": pairs}, processing_class=AutoTokenizer.from_pretrained(folder))


@pytest.mark.parametrize("chunk", [None, 5])
def test_the_teacher_is_the_frozen_start_also_in_chunks(
    tiny_encoders: Path, tmp_path: Path, pairs: Pairs, chunk: int | None
) -> None:
    embedding: dict[str, Any] = {"pooling": "mean", "max_length": 64, "dropout": 0.0}
    start = DapForSentenceEmbedding.from_backbone(str(tiny_encoders), **embedding).eval()
    torch.manual_seed(0)
    model: Any = XlmrWithRTLHead.from_backbone(str(tiny_encoders), objectives={"interpolation": 1}, **embedding)
    trainer = _trainer(tiny_encoders, tmp_path, pairs, model, pairs_per_chunk=chunk)
    trainer.run = Run(tmp_path)
    trainer.before_training()  # which copies the start
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.02)
    trainer.current_gradient_accumulation_steps = 1
    rows: Any = trainer.train_dataset
    examples = [rows[row] for row in range(len(rows))]
    loss = trainer.training_step(model, trainer.data_collator(examples))

    sides = [[example[side] for example in examples] for side in ("source", "target")]
    started = [torch.tensor(start.encode(side)) for side in sides]
    now = [torch.tensor(model.eval().encode(side)) for side in sides]
    assert loss.item() == pytest.approx(_by_loop(*now, *started), rel=1e-4)

    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.train().zero_grad()
    batch = trainer.data_collator(examples)
    vectors = model.encode_pairs(batch).sentences
    middle = (started[0] + started[1]) / 2
    (((vectors.source - middle) ** 2).mean() / 2 + ((vectors.target - middle) ** 2).mean() / 2).backward()
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            torch.testing.assert_close(gradients[name], weight.grad, atol=1e-6, rtol=1e-3, msg=name)
