"""Layers are compiled once, whatever the lengths, and compute what they did."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from hf_xsent import AlignmentTrainer, AlignmentTrainingArguments, XlmrWithRTLHead
from hf_xsent.data.sampling.collators import PairCollator

Pairs = list[tuple[str, str]]


def _arguments(folder: Path, **settings: Any) -> AlignmentTrainingArguments:
    return AlignmentTrainingArguments(output_dir=str(folder), use_cpu=True, report_to="none", **settings)


def _trainer(folder: Path, out: Path, dropout: float, **settings: Any) -> AlignmentTrainer:
    torch.manual_seed(0)
    model = XlmrWithRTLHead.from_backbone(
        str(folder), max_length=64, dropout=dropout, pooling="mean", objectives={"translation_ranking": 1.0}
    )
    trainer = AlignmentTrainer(
        model, _arguments(out, **settings), processing_class=AutoTokenizer.from_pretrained(folder)
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def _step(trainer: AlignmentTrainer, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    trainer.model.zero_grad()
    torch.manual_seed(1)
    loss = trainer.training_step(trainer.model, dict(batch))
    return loss, {name: one.grad.clone() for name, one in trainer.model.named_parameters() if one.grad is not None}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs g++")
def test_compiled_layers_train_equally_and_are_compiled_once(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    from torch._dynamo.utils import counters

    folder = encoder_folders["bert"]
    collator = PairCollator(AutoTokenizer.from_pretrained(folder), 64)
    examples = [{"source": one, "target": other, "language": "de"} for one, other in pairs]
    batches = [collator(examples[:count]) for count in (16, 7, 11)]
    plain, compiled = (_trainer(folder, tmp_path, 0.0, compile_layers=on) for on in (False, True))
    counters.clear()
    graphs = []
    for batch in batches:
        (loss, gradients), (same_loss, same_gradients) = _step(plain, batch), _step(compiled, batch)
        torch.testing.assert_close(same_loss, loss, atol=1e-5, rtol=1e-5)
        assert gradients.keys() == same_gradients.keys()
        for name, gradient in gradients.items():
            scale = gradient.abs().max().item()
            torch.testing.assert_close(same_gradients[name], gradient, atol=1e-6 + 2e-5 * scale, rtol=0, msg=name)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] == graphs[-1] > 0
    assert list(compiled.model.state_dict()) == list(plain.model.state_dict())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling for a CPU needs g++")
def test_dropout_is_repeated_in_the_second_pass_of_gradient_caching(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    folder = encoder_folders["bert"]
    model = _trainer(folder, tmp_path, 0.1, compile_layers=True).model.train()
    batch = PairCollator(AutoTokenizer.from_pretrained(folder), 64)(
        [{"source": one, "target": other, "language": "de"} for one, other in pairs]
    )
    ids, masks = [batch["source_input_ids"]], [batch["source_attention_mask"]]
    vectors = []
    for seed, graded in ((1, False), (1, True), (2, True)):
        torch.manual_seed(seed)
        with torch.set_grad_enabled(graded):
            vectors.append(model.embed(ids, masks).detach())
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[1], vectors[2])
