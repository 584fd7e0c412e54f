"""Every objective gives each trained weight a gradient on every process and chunk, also where it has nothing to learn.

In each case some pairs are empty for the objective: they have no word links, no token to mask, or the other direction.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from every_objective import BOTH_DIRECTIONS, small, teacher_vectors, trained_by_default
from processes import answers_of, caching_trainer
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoTokenizer

from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import RecipeError
from hf_xsent.models import METHODS
from hf_xsent.objectives.registry import objective_class
from hf_xsent.tensors.packing import hash_sentences
from hf_xsent.training.large_batch import cached_loss

Pairs = list[tuple[str, str]]
CASES: dict[str, dict[str, Any]] = {name: {name: small(name)} for name in trained_by_default()} | {
    "AWP, sampled": {"aligned_word_prediction": {"sampled_pieces": 1}},
    "MLM, sampled": {"masked_language_modeling": {"untied_embeddings": True, "sampled_pieces": 1}},
    "RTL, nothing masked": {"representation_translation": BOTH_DIRECTIONS | {"masked_share": 1e-12}},
    "TR, RTL and AWP": {
        "translation_ranking": 1, "representation_translation": BOTH_DIRECTIONS, "aligned_word_prediction": 1
    },
}  # fmt: skip


@cache
def _tokenizer(folder: str) -> Any:
    return AutoTokenizer.from_pretrained(folder)


def _halves(folder: str, pairs: Pairs) -> tuple[Pairs, Pairs]:
    """Split the pairs by the direction that RTL chooses for them, two of each."""
    ids = _tokenizer(folder)([target for _, target in pairs], padding=True, return_tensors="pt")
    odd = (hash_sentences(ids["input_ids"], ids["attention_mask"]) % 2).bool().tolist()
    return [p for p, one in zip(pairs, odd, strict=True) if one][:2], [
        p for p, one in zip(pairs, odd, strict=True) if not one
    ][:2]


def _model(folder: str, case: str, empty: Pairs) -> torch.nn.Module:
    """Build the model; objectives that mask tokens mask every token that no empty pair has."""
    torch.manual_seed(0)
    model = METHODS["alignment"][1].from_backbone(folder, max_length=64, dropout=0.0, objectives=CASES[case]).double()
    tokenizer = _tokenizer(folder)
    never = torch.tensor(tokenizer([side for pair in empty for side in pair], padding=True)["input_ids"]).unique()

    def masking(ids: Tensor) -> tuple[Tensor, Tensor]:
        masked = ~torch.isin(ids, never)
        return torch.where(masked, tokenizer.mask_token_id, ids), masked

    for objective in model.objectives.values():
        if hasattr(objective, "masking"):
            objective.masking = masking
    return model


def _batch(folder: str, case: str, pairs: Pairs, empty: Pairs) -> dict[str, Tensor]:
    languages = ["de", "en"] if "representation_translation" in CASES[case] else None
    examples = [
        {"source": source, "target": target, "language": "de"}
        | ({} if (source, target) in empty else {"links": "0-0 1-1"})
        for source, target in pairs
    ]
    batch = PairCollator(_tokenizer(folder), 64, languages, links=True)(examples)
    table = torch.randn(64, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return batch | teacher_vectors(table[[len(target) for _, target in pairs]])


def _gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


def _trained(model: torch.nn.Module) -> set[str]:
    return {name for name, one in model.named_parameters() if one.requires_grad}


def _learn(rank: int, folder: str, pairs: Pairs) -> dict[str, dict[str, Tensor]]:
    """Rank 0 holds the empty pairs; in chunks of one pair, its last chunk is empty too, and rank 1's first."""
    found = {}
    halves = _halves(folder, pairs)
    empty = halves[0]
    own = (halves[0], halves[1])[rank]
    for case in CASES:
        model = _model(folder, case, empty)
        parallel = DistributedDataParallel(model, broadcast_buffers=False)  # as AlignmentTrainingArguments has it
        for way in ("whole", "chunks"):
            if way == "chunks" and any(one.needs.momentum_encoder for one in model.objectives.values()):  # refused
                continue
            for _ in range(2):  # torch notices a weight without a gradient in the next step
                model.zero_grad()
                batch = _batch(folder, case, own, empty)
                if way == "whole":
                    parallel(**batch).loss.backward()
                else:
                    cached_loss(caching_trainer(), parallel, batch, 1).loss.backward()
            found[f"{case}, {way}"] = _gradients(model)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_batch_without_anything_to_learn_gives_every_weight_a_gradient(
    tiny_encoders: Path, pairs: Pairs, case: str
) -> None:
    folder = str(tiny_encoders)
    for empty in _halves(folder, pairs):
        model = _model(folder, case, empty).train()
        for some in (empty, empty[:1]):
            model.zero_grad()
            loss = model(**_batch(folder, case, some, empty)).loss
            loss.backward()
            assert set(_gradients(model)) == _trained(model)
            assert loss.isfinite() and all(one.isfinite().all() for one in _gradients(model).values())


def test_two_processes_train_where_one_has_nothing_to_learn(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    folder = str(encoder_folders["bert"])
    first, second = answers_of(2, _learn, folder, pairs)
    empty, full = _halves(folder, pairs)
    for way in first:
        case = way.rpartition(", ")[0]
        model = _model(folder, case, empty)
        assert set(first[way]) == _trained(model), way
        for name, one in first[way].items():
            torch.testing.assert_close(one, second[way][name])
        if "sampled" in case or "nothing masked" in case:  # random
            continue
        model(**_batch(folder, case, [*empty, *full], empty)).loss.backward()
        for name, one in _gradients(model).items():
            torch.testing.assert_close(first[way][name], one, msg=lambda text, at=(way, name): f"{at}: {text}")


@pytest.mark.parametrize("case", [name for name in trained_by_default() if not objective_class(name).needs.embeddings])
def test_a_layer_that_no_objective_reads_is_refused(encoder_folders: dict[str, Path], pairs: Pairs, case: str) -> None:
    with pytest.raises(RecipeError, match="training_mlp .* no objective"):
        METHODS["alignment"][1].from_backbone(
            str(encoder_folders["bert"]), training_mlp=True, max_length=64, objectives=CASES[case]
        )
