"""Measure the training cost of methods per pair, and estimate the time of a full run from a few steps."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count
from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from hf_xsent.compat import cpu_attention
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import DataError, RecipeError, did_you_mean
from hf_xsent.logs import Progress
from hf_xsent.models import METHODS
from hf_xsent.models.loading import load_tokenizer
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.callbacks import peak_memory_mib

if TYPE_CHECKING:
    from hf_xsent.data.bitext import Pair
    from hf_xsent.objectives.base import Corpus

_STEPS = 3  # of a dry run; the first one is warm-up
_OBJECTIVES = {  # names for objectives of weight 1, measured besides the methods
    "tr": ("translation_ranking",),
    "tr+mlm": ("translation_ranking", "masked_language_modeling"),
    "tr+tlm": ("translation_ranking", "translation_language_modeling"),
}
_MEASURED = (*_OBJECTIVES, "dap", "ppa", "wacse")
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

    def to_dict(self) -> dict[str, Any]:
        """Return rounded values for JSON."""
        return {name: value if isinstance(value, str) else round(value, 3) for name, value in asdict(self).items()}


def _needs_links(method: str) -> bool:
    return method in METHODS and METHODS[method][0]().needs.links


def check_methods(methods: Sequence[str]) -> None:
    """Check the names of methods before any pair is read."""
    for method in methods:
        if method not in _MEASURED:
            raise RecipeError(f"unknown method {method!r}: use {', '.join(_MEASURED)}{did_you_mean(method, _MEASURED)}")


def check_pairs(methods: Sequence[str], pairs: Sequence[Pair]) -> None:
    """Check the pairs of a batch before any model is loaded."""
    for method in methods:
        if _needs_links(method) and not all("links" in pair for pair in pairs):
            raise DataError(f"{method} reads links between words: give pairs that hf-xsent align-words has linked")
    if len(pairs) < 2:
        raise DataError(f"a batch needs at least two pairs, not {len(pairs)}")


def training_cost(
    name_or_path: str,
    pairs: Sequence[Pair],
    methods: Sequence[str] = ("tr", "tr+tlm", "dap"),
    max_length: int = 32,
    repeats: int = 5,
    device: str | torch.device = "cpu",
    corpus: Corpus | None = None,
) -> list[TrainingCost]:
    """Measure each method on the same batch of pairs: medians over ``repeats`` steps after one warm-up step.

    ``corpus`` is a bitext; the RTL head predicts only the word pieces that occur in it, as in training. Without it, the
    head predicts the full vocabulary.
    """
    check_methods(methods)
    check_pairs(methods, pairs)
    tokenizer = load_tokenizer(name_or_path)
    collate = PairCollator(tokenizer, max_length, links=any(map(_needs_links, methods)))
    batch = {
        name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in collate(pairs).items()
    }
    costs = []
    for method in Progress(methods, desc="measuring", unit=" methods"):
        settings = {"objectives": dict.fromkeys(_OBJECTIVES[method], 1.0)} if method in _OBJECTIVES else {}
        kind: Any = METHODS["alignment" if method in _OBJECTIVES else method][1]
        config = kind.config_of(None, {"max_length": max_length, **settings})
        if corpus is not None:
            config = config.fit(corpus, tokenizer)
        model = kind.from_backbone(name_or_path, config=config).to(device)
        with torch.random.fork_rng():
            torch.manual_seed(0)  # random masks change the number of operations
            costs.append(_cost(method, model, batch, len(pairs), repeats))
    return costs


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


def _seconds(work: Any) -> float:
    started = _synchronized_time()
    work()
    return _synchronized_time() - started


def _synchronized_time() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class StepTimes(TrainerCallback):
    """Time each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop the clock when the device has finished."""
        self.seconds.append(_synchronized_time() - self._started)


@contextmanager
def short_run(arguments: AlignmentTrainingArguments) -> Iterator[None]:
    """Change the arguments to a few steps in a temporary folder, without dev measurements and checkpoints."""
    with TemporaryDirectory() as folder:
        arguments.output_dir = folder
        arguments.max_steps = _STEPS
        arguments.eval_strategy = IntervalStrategy.NO
        arguments.save_strategy = SaveStrategy.NO
        arguments.eval_on_start = arguments.load_best_model_at_end = False
        arguments.early_stopping_patience = None
        arguments.report_to = []
        yield


def pairs_per_step(arguments: AlignmentTrainingArguments) -> int:
    """Return the pairs of one optimizer step, over all processes."""
    return arguments.train_batch_size * arguments.world_size * arguments.gradient_accumulation_steps


def count_steps(arguments: AlignmentTrainingArguments, pairs: int) -> int:
    """Return the number of steps of the full run."""
    epochs_in_steps = math.ceil(arguments.num_train_epochs * pairs / pairs_per_step(arguments))
    return arguments.max_steps if arguments.max_steps > 0 else epochs_in_steps


def forecast(arguments: AlignmentTrainingArguments, steps: int, seconds: Sequence[float]) -> str:
    """Describe the estimated cost of the full run, from the seconds of the steps of a dry run."""
    step = statistics.median(seconds[1:] or seconds)
    return (
        f"{steps:,} steps of {step:.2f} s, {pairs_per_step(arguments) / step:.1f} pairs/s: "
        f"about {steps * step / 3600:.1f} hours; peak memory {peak_memory_mib():,} MiB"
    )
