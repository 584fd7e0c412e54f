"""Compare the gradients of several processes and of gradient caching with those of one process, for random settings."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoTokenizer

from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.models import METHODS
from hf_xsent.training.large_batch import cached_loss

sys.path.append(str(Path(__file__).parents[1] / "helpers"))

from every_objective import teacher_vectors  # noqa: E402
from processes import caching_trainer  # noqa: E402

from ..conftest import (  # noqa: E402
    PAIRS,
    bert_encoder,
    make_unigram_tokenizer,
    make_wordpiece_tokenizer,
    xlm_roberta_encoder,
)
from .forking import answers_of, preload  # noqa: E402

FAMILIES = ("bert", "xlm-roberta")
LANGUAGES = ["de", "en"]
TOLERANCE = 1e-6  # of the norm; weights are float64


class Case:
    """Random settings, and a batch that several processes share unevenly."""

    def __init__(self, seed: int, world: int) -> None:
        rng = random.Random(seed)
        self.rng, self.seed = rng, seed
        self.family = rng.choice(FAMILIES)
        self.settings: dict[str, Any] = {
            "objectives": self._objectives(rng),
            "pooling": rng.choice(("cls", "mean", "sum")),
            "normalize": rng.random() < 0.3,
            "languages": LANGUAGES if rng.random() < 0.2 else None,
        }
        if "momentum_contrast" in self.settings["objectives"]:
            self.settings["languages"] = None
        self.sizes = [rng.randint(1, 4) for _ in range(world)]
        self.chunk = rng.randint(1, 4)
        self.pairs = [rng.choice(PAIRS) for _ in range(sum(self.sizes))]  # some repeat
        self.links = [rng.choice((None, "0-0", "0-1 1-0 2-2")) for _ in self.pairs]
        self.share = rng.randint(2, 9)  # one in so many tokens is masked

    @staticmethod
    def _objectives(rng: random.Random) -> dict[str, Any]:
        some: dict[str, dict[str, Any]] = {
            "translation_ranking": {"symmetric": rng.random() < 0.5, "margin": rng.choice((0, 0.3))},
            "matryoshka": {"dims": [32, 8]},
            "representation_translation": {
                "head_layers": rng.randint(1, 2),
                "direction": rng.choice(("source_to_target", "target_to_source", "both")),
                "predicted_languages": LANGUAGES,
            },
            "momentum_contrast": {"queue_size": rng.randint(1, 9)},
            "translation_language_modeling": {"untied_embeddings": rng.random() < 0.5},
            "masked_language_modeling": {"untied_embeddings": rng.random() < 0.5},
            "aligned_word_prediction": {},
            "word_translation_ranking": {"temperature": rng.choice((0.1, 1))},
            "distillation": {},
            "mexma": {"head_layers": 1, "koleo_weight": rng.choice((0, 0.1))},
            "triplet_ranking": {"margin": 0.5},
        }
        names = rng.sample(sorted(some), rng.randint(1, 4))
        return {name: some[name] | {"weight": rng.choice((0.1, 1.0, 2.5))} for name in names}

    def model(self, folder: str) -> Any:
        """Build the model in float64; masks depend on tokens only, not on how the batch is split."""
        torch.manual_seed(self.seed)
        kind = METHODS["alignment"][1]
        model: Any = kind.from_backbone(f"{folder}/{self.family}", max_length=64, dropout=0.0, **self.settings)
        mask = model.config.mask_token_id

        def masking(ids: Tensor) -> tuple[Tensor, Tensor]:
            masked = (ids % self.share == 0) & (ids > 5)
            return torch.where(masked, mask, ids), masked

        for objective in model.objectives.values():
            if hasattr(objective, "masking"):
                objective.masking = masking
        return model.double()

    def batch(self, folder: str, rows: slice) -> dict[str, Tensor]:
        """Collate some of the pairs."""
        tokenizer = AutoTokenizer.from_pretrained(f"{folder}/{self.family}")
        examples = [
            {"source": source, "target": target, "language": "de"} | ({"links": links} if links else {})
            for (source, target), links in zip(self.pairs[rows], self.links[rows], strict=True)
        ]
        table = torch.randn(128, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        batch = PairCollator(tokenizer, 64, LANGUAGES, links=True)(examples)
        return batch | teacher_vectors(table[[len(target) % 128 for _, target in self.pairs[rows]]])

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.family}, {self.settings}, pairs per process {self.sizes}, chunks {self.chunk}"


def attack(seed: int, count: int) -> dict[str, int]:
    """Compare ``count`` random settings on 2, 3 or 4 processes; return the counts, or raise an AssertionError."""
    preload()
    findings, compared = [], 0
    with tempfile.TemporaryDirectory(prefix="hf-xsent-attack-") as folder:
        answers_of(1, _build, folder)
        for number, world in enumerate((2, 3, 4)):
            seeds = [seed * 100_003 + one for one in range(number, count, 3)]
            if not seeds:
                continue
            alone = answers_of(1, _alone, world, folder, seeds)[0]
            for rank, found in enumerate(answers_of(world, _together, world, folder, seeds)):
                for name, gradients in found.items():
                    compared += 1
                    one = int(name.split()[0])
                    if problem := _difference(gradients, alone[str(one)]):
                        findings.append(f"rank {rank} of {world}, {name}, {Case(one, world)}: {problem}")
    counts = {"gradients compared": compared, "settings": count, "findings in gradients": len(findings)}
    if findings:
        raise AssertionError("\n".join([str(counts), *findings]))
    return counts


def _difference(found: dict[str, Tensor], expected: dict[str, Tensor]) -> str:
    if found.keys() != expected.keys():
        return f"weights without a gradient: {sorted(found.keys() ^ expected.keys())[:3]}"
    whole, theirs = (torch.cat([one[name].flatten() for name in sorted(one)]) for one in (found, expected))
    if not whole.isfinite().all():
        return "NaN or infinite"
    difference = float((whole - theirs).norm() / theirs.norm().clamp_min(1e-12))
    return f"gradients differ by {difference:.1e} of their norm" if difference > TOLERANCE else ""


def _build(rank: int, folder: str) -> None:
    for name, build, make in (
        ("bert", bert_encoder, make_wordpiece_tokenizer),
        ("xlm-roberta", xlm_roberta_encoder, make_unigram_tokenizer),
    ):
        torch.manual_seed(0)
        tokenizer = make()
        build(tokenizer, mlm=True).save_pretrained(f"{folder}/{name}")
        tokenizer.save_pretrained(f"{folder}/{name}")


def _gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    return {
        name: one.grad.clone() for name, one in model.named_parameters() if one.requires_grad and one.grad is not None
    }


def _alone(rank: int, world: int, folder: str, seeds: list[int]) -> dict[str, dict[str, Tensor]]:
    found = {}
    for seed in seeds:
        case = Case(seed, world)
        model = case.model(folder)
        model(**case.batch(folder, slice(None))).loss.backward()
        found[str(seed)] = _gradients(model)
    return found


def _together(rank: int, world: int, folder: str, seeds: list[int]) -> dict[str, dict[str, Tensor]]:
    found = {}
    for seed in seeds:
        case = Case(seed, world)
        start = sum(case.sizes[:rank])
        batch = case.batch(folder, slice(start, start + case.sizes[rank]))
        model = case.model(folder)
        parallel = DistributedDataParallel(model, broadcast_buffers=False)  # as AlignmentTrainingArguments has it
        parallel(**batch).loss.backward()
        found[f"{seed} whole"] = _gradients(model)
        if "momentum_contrast" not in model.objectives:  # refused
            model.zero_grad()
            cached_loss(caching_trainer(), parallel, batch, case.chunk).loss.backward()
            found[f"{seed} in chunks"] = _gradients(model)
    return found
