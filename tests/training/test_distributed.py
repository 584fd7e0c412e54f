"""Several processes must give the gradients of one process with the whole batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from every_objective import teacher_vectors
from processes import answers_of, caching_trainer
from projected import register_projected
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoTokenizer

from hf_xsent import XlmrWithRTLHead
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.training.large_batch import cached_loss

Pairs = list[tuple[str, str]]
RANKING = {"symmetric": True, "margin": 0.2}
BOTH = {"weight": 0.8, "direction": "both", "predicted_languages": ["de", "en"]}
MIXES: dict[str, dict[str, Any]] = {
    "TR": {"translation_ranking": RANKING},
    "TR with hard negatives": {"translation_ranking": RANKING | {"hard_negatives": 2, "own_side": True}},
    "TR of several widths": {"matryoshka": RANKING | {"dims": [32, 8]}},
    "TR + distillation": {"translation_ranking": RANKING, "distillation": 5.0},
    "DAP": {"translation_ranking": RANKING, "representation_translation": BOTH},
    "DAP of padded positions": {"representation_translation": BOTH | {"positions": "padded"}},
    "WACSE": {
        "translation_ranking": RANKING | {"weight": 0.8},
        "aligned_word_prediction": 0.1,
        "word_translation_ranking": 0.1,
    },
    "TR + an objective with weights": {"translation_ranking": RANKING, "projected": 0.5},
    "MEXMA": {"mexma": {"head_layers": 1, "koleo_weight": 0.1}},
}


def _model(folder: str, mix: str) -> XlmrWithRTLHead:
    torch.manual_seed(0)
    model = XlmrWithRTLHead.from_backbone(folder, max_length=64, dropout=0.0, objectives=MIXES[mix]).double()
    if "mexma" in MIXES[mix]:  # mask the same tokens however the batch is split
        model.objectives["mexma"].masking = lambda ids: (torch.where(ids % 3 == 0, 4, ids), ids % 3 == 0)
    return model


def _batch(folder: str, pairs: Pairs) -> dict[str, Tensor]:
    """Some of the pairs have word links."""
    counts = {"source": 2, "target": 2}
    collator = PairCollator(AutoTokenizer.from_pretrained(folder), 64, ["de", "en"], links=True, negatives=counts)
    examples: list[dict[str, Any]] = [
        {"source": source, "target": target, "language": "de"} for source, target in pairs
    ]
    for pair in examples:  # some processes and chunks have none
        if pair["source"].startswith(("D", "L")):
            pair |= {"source_negatives": [pair["source"][:9], "Le pain"], "target_negatives": ["The cat drinks bread."]}
    linked = [example | {"links": "0-1 1-0 2-2 2-1"} if "e" in example["source"] else example for example in examples]
    table = torch.randn(64, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return collator(linked) | teacher_vectors(table[[len(target) for _, target in pairs]])


def _gradient(model: torch.nn.Module) -> Tensor:
    zero = torch.zeros(1, dtype=torch.float64)
    return torch.cat([zero if one.grad is None else one.grad.flatten() for one in model.parameters()])


def _sizes(world: int, count: int) -> list[int]:
    """Uneven: the first process has more, the last one less."""
    even = count // world
    return [even + 1, *[even] * (world - 2), count - even * (world - 1) - 1]


def _gradients(rank: int, world: int, folder: str, pairs: Pairs) -> dict[str, Tensor]:
    gradients = {}
    register_projected()
    start = sum(_sizes(world, len(pairs))[:rank])
    own = pairs[start : start + _sizes(world, len(pairs))[rank]]
    halves = [own[: len(own) // 2], own[len(own) // 2 :]]
    for mix in MIXES:
        model = _model(folder, mix)
        parallel = DistributedDataParallel(model, broadcast_buffers=False)  # as AlignmentTrainingArguments has it
        parallel(**_batch(folder, own)).loss.backward()
        gradients[mix] = _gradient(model)
        model.zero_grad()

        with parallel.no_sync():
            (parallel(**_batch(folder, halves[0])).loss / 2).backward()
        (parallel(**_batch(folder, halves[1])).loss / 2).backward()
        gradients[f"{mix}, accumulated"] = _gradient(model)
        model.zero_grad()

        per_chunk = -(-len(own) // 2) if "padded" in mix else 2  # processes agree on the positions of each chunk
        cached_loss(caching_trainer(), parallel, _batch(folder, own), per_chunk).loss.backward()
        gradients[f"{mix}, cached"] = _gradient(model)
    return gradients


def _assert_equal(name: str, gradient: Tensor, theirs: Tensor) -> None:
    cosine = torch.nn.functional.cosine_similarity(gradient, theirs, dim=0).item()
    assert cosine >= 1 - 1e-9, (name, cosine)
    assert (gradient.norm() / theirs.norm()).item() == pytest.approx(1, abs=1e-9), name


@pytest.mark.usefixtures("projected")
@pytest.mark.parametrize("world", [2, 4])
def test_gradients_are_those_of_one_process(encoder_folders: dict[str, Path], pairs: Pairs, world: int) -> None:
    """With uneven batches, accumulation, caching, and sentences that repeat across processes."""
    folder = str(encoder_folders["bert"])
    pairs = [*pairs, (pairs[0][0], pairs[1][1]), (pairs[3][0], pairs[3][1])]
    gradients = answers_of(world, _gradients, world, folder, pairs)[0]
    starts = [sum(_sizes(world, len(pairs))[:rank]) for rank in range(world + 1)]
    parts = [pairs[a:b] for a, b in zip(starts, starts[1:], strict=False)]
    for mix in MIXES:
        model = _model(folder, mix)
        model(**_batch(folder, pairs)).loss.backward()
        _assert_equal(mix, gradients[mix], _gradient(model))
        _assert_equal(f"{mix}, cached", gradients[f"{mix}, cached"], _gradient(model))
        model.zero_grad()
        for half in range(2):  # a micro-batch is what all processes hold at one time
            some = [pair for part in parts for pair in (part[: len(part) // 2], part[len(part) // 2 :])[half]]
            (model(**_batch(folder, some)).loss / 2).backward()
        _assert_equal(f"{mix}, accumulated", gradients[f"{mix}, accumulated"], _gradient(model))
