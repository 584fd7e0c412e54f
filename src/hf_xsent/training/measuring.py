"""Measure what training takes: methods beside each other, for a pair of sentences; a recipe, by a dry run."""

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
from tqdm import tqdm
from transformers import TrainerCallback
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from hf_xsent.compat import cpu_attention
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import DataError, RecipeError, nearest
from hf_xsent.models.loading import load_tokenizer
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.callbacks import peak_memory_mib

if TYPE_CHECKING:
    from hf_xsent.data.bitext import Pair

DRY_RUN_STEPS = 3  # the first one sets up and does not count
METHODS: dict[str, dict[str, Any]] = {
    "tr": {"translation_ranking": 1.0},
    "tr+mlm": {"translation_ranking": 1.0, "masked_language_modeling": 1.0},
    "tr+tlm": {"translation_ranking": 1.0, "translation_language_modeling": 1.0},
    "dap": {"translation_ranking": 1.0, "representation_translation": 0.8},
    "ppa": {
        "momentum_contrast": 1.0,
        "translation_language_modeling": {"weight": 1.0, "reset_positions": False},
    },
    "wacse": {"translation_ranking": 0.8, "aligned_word_prediction": 0.1, "word_translation_ranking": 0.1},
}
_SETTINGS: dict[str, dict[str, Any]] = {"ppa": {"random_input_shuffling": True}}
_NEEDS_LINKS = {"wacse"}


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


# PyTorch has no formula for the attention that a CPU takes.
_FORMULAS = {cpu_attention(): _attention}


@dataclass(frozen=True)
class TrainingCost:
    """The cost of one pair of sentences."""

    method: str
    forward_gflops: float
    training_ms: float  # forward and backward, and what is due after a step
    encoding_ms: float  # of both sentences, once trained; the same for all methods that keep the encoder as it is

    def to_dict(self) -> dict[str, Any]:
        """Rounded, for JSON."""
        return {name: value if isinstance(value, str) else round(value, 3) for name, value in asdict(self).items()}


def check_methods(methods: Sequence[str], pairs: Sequence[Pair]) -> None:
    """Refuse what cannot be measured, before any model is opened."""
    for method in methods:
        if method not in METHODS:
            raise RecipeError(f"unknown method {method!r}: use {', '.join(METHODS)}{nearest(method, METHODS)}")
        if method in _NEEDS_LINKS and not all("links" in pair for pair in pairs):
            raise DataError(f"{method} reads links between words: give pairs that hf-xsent align-words has linked")
    if len(pairs) < 2:
        raise DataError(f"a batch needs two pairs at least, not {len(pairs)}")


def training_cost(
    name_or_path: str,
    pairs: Sequence[Pair],
    methods: Sequence[str] = ("tr", "tr+tlm", "dap"),
    max_length: int = 32,
    repeats: int = 5,
    device: str | torch.device = "cpu",
) -> list[TrainingCost]:
    """Measure each method on the same batch of pairs; medians over ``repeats`` steps after one that does not count."""
    check_methods(methods, pairs)
    collate = PairCollator(load_tokenizer(name_or_path), max_length, links=bool(_NEEDS_LINKS & set(methods)))
    batch = {
        name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in collate(pairs).items()
    }
    costs = []
    for method in tqdm(methods, desc="measuring", unit=" methods", disable=None):
        model: Any = SentenceEncoderForPreTraining.from_backbone(
            name_or_path, objectives=METHODS[method], max_length=max_length, **_SETTINGS.get(method, {})
        )
        model.to(device)
        with torch.random.fork_rng():
            torch.manual_seed(0)  # masks decide what is computed: equal calls count the same
            costs.append(_cost(method, model, batch, len(pairs), repeats))
    return costs


def _cost(
    method: str, model: SentenceEncoderForPreTraining, batch: Mapping[str, Any], pairs: int, repeats: int
) -> TrainingCost:
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
        training.append(_seconds(lambda: _step(model, batch)))
        model.zero_grad()
        model.eval()
    return TrainingCost(
        method,
        counter.get_total_flops() / 1e9 / pairs,
        1000 * statistics.median(training[1:]) / pairs,
        1000 * statistics.median(encoding[1:]) / pairs,
    )


def _step(model: SentenceEncoderForPreTraining, batch: Mapping[str, Any]) -> None:
    loss = model(**batch).loss
    assert loss is not None
    loss.backward()
    model.end_step()


def _seconds(work: Any) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


@dataclass(frozen=True)
class Forecast:
    """What the whole run takes."""

    steps: int
    seconds_per_step: float
    pairs_per_second: float
    peak_mib: int

    def __str__(self) -> str:
        hours = self.steps * self.seconds_per_step / 3600
        return (
            f"{self.steps:,} steps of {self.seconds_per_step:.2f} s, {self.pairs_per_second:.1f} pairs/s: "
            f"about {hours:.1f} hours; peak memory {self.peak_mib:,} MiB"
        )


class StepTimes(TrainerCallback):
    """Time each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Stop it when the device is done."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self._started)


@contextmanager
def rehearsal(arguments: AlignmentTrainingArguments) -> Iterator[None]:
    """Run a few steps, and measure and save nothing, in a folder that is deleted."""
    with TemporaryDirectory() as folder:
        arguments.output_dir = folder
        arguments.max_steps = DRY_RUN_STEPS
        arguments.eval_strategy = IntervalStrategy.NO
        arguments.save_strategy = SaveStrategy.NO
        arguments.eval_on_start = arguments.load_best_model_at_end = False
        arguments.early_stopping_patience = None
        arguments.report_to = []
        yield


def whole_steps(arguments: AlignmentTrainingArguments, pairs: int) -> int:
    """Return the number of steps of the whole run."""
    if arguments.max_steps > 0:
        return arguments.max_steps
    a_step = arguments.train_batch_size * arguments.world_size * arguments.gradient_accumulation_steps
    return math.ceil(arguments.num_train_epochs * pairs / a_step)


def forecast(arguments: AlignmentTrainingArguments, steps: int, times: StepTimes) -> Forecast:
    """Estimate the whole run from the steps that were run."""
    seconds = statistics.median(times.seconds[1:] or times.seconds)
    a_step = arguments.train_batch_size * arguments.world_size * arguments.gradient_accumulation_steps
    return Forecast(steps, seconds, a_step / seconds, peak_memory_mib())
