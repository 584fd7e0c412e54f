"""Measure the training cost of methods per pair: operations, time of a step, time to encode."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from hf_xsent.compat import cpu_attention
from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import DataError
from hf_xsent.evaluation.report import versions
from hf_xsent.files import check_writable, write_json
from hf_xsent.logs import Progress
from hf_xsent.models import METHODS
from hf_xsent.models.loading import load_tokenizer
from hf_xsent.pages.tables import Table
from hf_xsent.settings.command import command
from hf_xsent.training.measuring import synchronized_time
from hf_xsent.training.settings import CostSettings

_OBJECTIVES = {  # names for objectives of weight 1, measured besides the methods
    "tr": ("translation_ranking",),
    "tr+mlm": ("translation_ranking", "masked_language_modeling"),
    "tr+tlm": ("translation_ranking", "translation_language_modeling"),
}
_FORMULAS = {  # PyTorch has no FLOP formula for the attention kernel of CPUs
    cpu_attention(): lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value)
}


@dataclass(frozen=True)
class TrainingCost:
    """The cost of one pair of sentences."""

    method: str
    forward_gflops: float
    training_ms: float  # forward pass, backward pass and end_step
    encoding_ms: float  # both sentences, by the trained encoder


@dataclass(frozen=True)
class TrainingCosts:
    """The costs of several methods."""

    methods: Sequence[TrainingCost]

    def __str__(self) -> str:
        """Format one line per method."""
        first = self.methods[0]
        rows = [
            [cost.method, cost.forward_gflops, cost.training_ms, cost.training_ms / first.training_ms, cost.encoding_ms]
            for cost in self.methods
        ]
        return str(Table(["method", "forward GFLOP", "training ms", f"of {first.method}", "encoding ms"], rows))


@command(CostSettings)
def measure_cost(settings: CostSettings) -> TrainingCosts:
    """Measure FLOPs and time per pair of training methods (tr, tr+mlm, tr+tlm, dap, ppa, wacse) on an encoder.

    All methods train on the same batch of pairs; times are medians over ``repeats`` steps after a warm-up step.

    ```python
    from hf_xsent import measure_cost

    for cost in measure_cost("xlm-roberta-base", {"de": "pairs.tsv"}, methods=["tr", "dap"]).methods:
        print(cost.method, cost.forward_gflops, cost.training_ms)
    ```
    """
    if settings.output is not None:
        check_writable(settings.output)
    bitext = load_bitext(settings.data)
    pairs = [bitext[number] for number in range(min(settings.batch_pairs, len(bitext)))]
    for method in settings.methods:
        if _needs_links(method) and not all("links" in pair for pair in pairs):
            raise DataError(f"{method} reads links between words: give pairs that hf-xsent align-words has linked")
    device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_tokenizer(settings.model)
    collated = PairCollator(tokenizer, settings.max_length, links=any(map(_needs_links, settings.methods)))(pairs)
    batch = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in collated.items()}
    costs = []
    for method in Progress(settings.methods, desc="measuring", unit=" methods"):
        objectives = {"objectives": dict.fromkeys(_OBJECTIVES[method], 1.0)} if method in _OBJECTIVES else {}
        kind: Any = METHODS["alignment" if method in _OBJECTIVES else method][1]
        config = kind.config_of(None, {"max_length": settings.max_length, **objectives})
        config = config.fit(bitext.languages, bitext.sentences, tokenizer)
        model = kind.from_backbone(settings.model, config=config).to(device)
        with torch.random.fork_rng():
            torch.manual_seed(0)  # random masks change the number of operations
            costs.append(_cost(method, model, batch, len(pairs), settings.repeats))
    if settings.output is not None:
        measured_with = {"model": settings.model, "pairs": len(pairs), "max_length": settings.max_length}
        measured_with |= {"repeats": settings.repeats, "device": device}
        content = {"settings": measured_with, "versions": versions(), "methods": [asdict(cost) for cost in costs]}
        write_json(settings.output, content)
    return TrainingCosts(costs)


def _needs_links(method: str) -> bool:
    return method in METHODS and METHODS[method][0]().needs.links


def _cost(method: str, model: Any, batch: Mapping[str, Any], pairs: int, repeats: int) -> TrainingCost:
    def train() -> None:
        model(**batch).loss.backward()
        model.end_step()

    model.eval()
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=_FORMULAS) as counter:
        model(**batch)
    ids, masks = (
        [batch[f"{side}_{kind}"] for side in ("source", "target")] for kind in ("input_ids", "attention_mask")
    )
    training, encoding = [], []
    for _ in range(repeats + 1):
        with torch.no_grad():
            encoding.append(_seconds(lambda: model.embed(ids, masks)))
        model.train()
        training.append(_seconds(train))
        model.zero_grad()
        model.eval()
    return TrainingCost(
        method,
        counter.get_total_flops() / 1e9 / pairs,
        1000 * statistics.median(training[1:]) / pairs,
        1000 * statistics.median(encoding[1:]) / pairs,
    )


def _seconds(work: Callable[[], object]) -> float:
    started = synchronized_time()
    work()
    return synchronized_time() - started
