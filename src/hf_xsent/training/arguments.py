"""TrainingArguments with our defaults, and the reading of recipes and flags into typed arguments."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, cast, get_type_hints

import yaml
from transformers import HfArgumentParser, TrainingArguments

from hf_xsent.errors import RecipeError, nearest
from hf_xsent.training.compatibility import check_one_device, check_support
from hf_xsent.training.recipe import DataArguments, ModelArguments, RunArguments


@dataclass
class AlignmentTrainingArguments(TrainingArguments):
    """Hugging Face's arguments; only the defaults that pair training needs are ours."""

    per_device_train_batch_size: int = field(default=64, metadata={"help": "Pairs a step and process."})
    logging_steps: float = field(default=10, metadata={"help": "Log losses every so many steps."})
    eval_strategy: str = field(default="steps", metadata={"help": "When to measure dev accuracy: no, steps or epoch."})
    eval_on_start: bool = field(default=True, metadata={"help": "Measure dev accuracy before the first step."})
    load_best_model_at_end: bool = field(default=True, metadata={"help": "End with the best checkpoint on dev."})
    metric_for_best_model: str | None = field(
        default="accuracy", metadata={"help": "What makes a checkpoint the best."}
    )
    save_total_limit: int | None = field(default=2, metadata={"help": "Keep so many checkpoints beside the best."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Warm-up steps, or below 1 a share of all steps."})
    remove_unused_columns: bool = field(default=False, metadata={"help": "The collator needs the raw text."})
    keep_freed_memory: bool = field(
        default=True,
        metadata={
            "help": "On CPUs with glibc, reuse freed memory from step to step instead of returning it each time."
        },
    )
    one_language_batches: bool = field(
        default=False, metadata={"help": "Fill each batch, on all processes, with pairs of one language."}
    )
    distinct_batches: bool = field(
        default=False,
        metadata={
            "help": "Draw no sentence twice into a batch, on all processes; others of its language take its place."
        },
    )
    pairs_per_chunk: int | None = field(
        default=None,
        metadata={"help": "Encode a batch in chunks of so many pairs, twice, for its gradients in a chunk's memory."},
    )
    head_learning_rate: float | None = field(
        default=None,
        metadata={
            "help": "Peak learning rate of the objectives' heads, which may start from nothing; default: the same."
        },
    )
    frozen_word_embeddings: bool = field(
        default=False, metadata={"help": "Leave the table of word pieces as it is: less memory, quicker steps."}
    )
    frozen_layers: int = field(
        default=0,
        metadata={"help": "Leave the embeddings and so many lowest layers as they are: less memory, quicker steps."},
    )
    early_stopping_patience: int | None = field(
        default=None,
        metadata={"help": "Stop after so many dev measurements in a row without a better one."},
    )
    early_stopping_threshold: float = field(
        default=0.0, metadata={"help": "With --early_stopping_patience, better means better by more than this."}
    )
    compile_layers: bool = field(
        default=False,
        metadata={"help": "Compile the encoder's layers, once for all lengths; for GPUs."},
    )
    start_share: float = field(
        default=0.0,
        metadata={"help": "Average the trained encoder with the one it started from: so much of the start stays."},
    )
    ddp_find_unused_parameters: bool | None = field(default=False, metadata={"help": "Every weight takes part."})
    ddp_broadcast_buffers: bool | None = field(default=False, metadata={"help": "Queues are kept equal by us."})

    def __post_init__(self) -> None:
        """What the defaults assume is dropped where the run has no use for it: checkpoints, evaluation, a GPU."""
        if self.pairs_per_chunk is not None and self.pairs_per_chunk < 1:
            raise RecipeError(f"pairs_per_chunk {self.pairs_per_chunk} is not positive: leave it out for whole batches")
        if not 0 <= self.start_share < 1:
            raise RecipeError(f"start_share {self.start_share} is not a share: give 0 to below 1")
        check_support(self)
        self._check_compilation()
        if self.early_stopping_patience is not None:
            self._check_early_stopping()
        if "no" in (self.eval_strategy, self.save_strategy):
            self.load_best_model_at_end = False
        super().__post_init__()
        check_one_device(self)
        if self.device.type == "cpu" and self.fp16:
            raise RecipeError("fp16 is for GPUs, on a CPU nothing would be computed in it: use --bf16, or leave it out")
        if self.device.type == "cpu":
            self.dataloader_pin_memory = False

    def _check_compilation(self) -> None:
        if self.torch_compile or self.torch_compile_backend or self.torch_compile_mode:
            raise RecipeError(
                "torch_compile compiles the whole step anew for the lengths of each batch: use --compile_layers"
            )
        if not self.compile_layers:
            return
        if self.gradient_checkpointing or getattr(self, "activation_checkpointing", False):
            raise RecipeError("compile_layers does nothing for layers that are checkpointed: leave one of them out")
        if shutil.which(os.environ.get("CXX", "g++")) is None:
            raise RecipeError("compile_layers needs a C++ compiler: install g++, or leave the flag out")

    def _check_early_stopping(self) -> None:
        if cast(int, self.early_stopping_patience) < 1:
            raise RecipeError(f"early_stopping_patience {self.early_stopping_patience} is not positive: leave it out")
        if self.eval_strategy == "no":
            raise RecipeError("early_stopping_patience counts dev measurements, but eval_strategy is no")
        self.restore_callback_states_from_checkpoint = True  # a resumed run goes on counting


@dataclass(frozen=True)
class Recipe:
    """One run, complete."""

    model: ModelArguments
    data: DataArguments
    run: RunArguments
    training: AlignmentTrainingArguments


class _Parser(HfArgumentParser):
    """Errors are ours: one sentence, no usage text."""

    def error(self, message: str) -> NoReturn:
        raise RecipeError(message)


_RECIPE: Any = [ModelArguments, DataArguments, RunArguments, AlignmentTrainingArguments]


@cache
def recipe_keys() -> tuple[str, ...]:
    """All that a training recipe may say."""
    return tuple(key for key in _destinations(_Parser(_RECIPE)) if key != "help")


def read_recipe(arguments: Sequence[str]) -> Recipe:
    """What a training run is told."""
    return Recipe(*read_settings(arguments, _RECIPE))


def read_settings(arguments: Sequence[str], kinds: Any) -> tuple[Any, ...]:
    """``[recipe.yaml] [--flag value …]``: a flag beats the recipe, the recipe beats the default.

    One object each of ``kinds``, dataclasses of which the last one are TrainingArguments.
    """
    arguments = list(arguments)
    path = arguments.pop(0) if arguments and not arguments[0].startswith("-") else None
    parser = _Parser(kinds, allow_abbrev=False)
    if path is not None:
        recipe, types = read_recipe_file(Path(path), _destinations(parser)), get_type_hints(kinds[-1])
        arguments = [*_as_flags(path, recipe, parser, types), *arguments]
    for flag in (one.split("=")[0] for one in arguments if one.startswith("--")):
        name = flag.lstrip("-").replace("-", "_")
        if name not in _destinations(parser) and not name.startswith("no_"):
            raise RecipeError(f"unknown flag {flag}" + nearest(name, _destinations(parser)))
    try:
        return parser.parse_args_into_dataclasses(arguments)
    except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
        raise RecipeError(f"these settings do not go together: {' '.join(str(error).split())}") from error


def _as_flags(
    path: str, recipe: Mapping[str, Any], parser: argparse.ArgumentParser, hints: Mapping[str, Any]
) -> Iterator[str]:
    """The recipe as flags, so that types and choices are checked in one place; a later flag wins."""
    types = {name: str(kind) for name, kind in hints.items()}
    takes_list = {action.dest: action.nargs in ("+", "*") for action in parser._actions}
    for key, value in recipe.items():
        if key in ("objectives", "data", "dev", "links", "rules", "train") and isinstance(value, Mapping):
            value = [
                f"{name}={'null' if one is None else one}"
                for name, some in value.items()
                for one in (some if isinstance(some, list) else [some])
            ]
        if isinstance(value, Mapping) and takes_list[key]:
            raise RecipeError(f"{path}: {key} takes a list, not {value!r}")
        if isinstance(value, list) and not (value and takes_list[key]):
            if not takes_list[key] and "list" not in types.get(key, ""):
                raise RecipeError(f"{path}: {key} takes one value, not {value!r}")
            parser.set_defaults(**{key: value})  # an empty list has no flag, nor has a list for report_to
        elif isinstance(value, list):
            yield from (f"--{key}", *map(str, value))
        elif isinstance(value, Mapping):
            yield f"--{key}={json.dumps(value)}"  # as TrainingArguments takes it on the command line
        elif value is not None:
            yield f"--{key}={value}"


def _destinations(parser: argparse.ArgumentParser) -> list[str]:
    return [action.dest for action in parser._actions]


def read_recipe_file(path: Path, known: Sequence[str]) -> dict[str, Any]:
    """A YAML or JSON mapping (JSON is YAML) whose keys are all known."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"cannot read the recipe {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecipeError(f"the recipe {path} is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping):
        raise RecipeError(f"the recipe {path} holds no settings: write lines such as 'model: xlm-roberta-base'")
    for key in content:
        if key not in known:
            raise RecipeError(f"{path}: unknown key {key!r}" + nearest(str(key), known))
    return dict(cast(Mapping[str, Any], content))
