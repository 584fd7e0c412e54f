"""Record what determines the results of a run in its output folder, and compare it when the run resumes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_xsent.data.arrow import read_batches
from hf_xsent.data.bitext import Bitext
from hf_xsent.data.pivot import PivotBitext
from hf_xsent.data.sides import TextSides
from hf_xsent.errors import OutputError
from hf_xsent.files import digest, is_local, write_json
from hf_xsent.models.run_folder import RUN_STATE_FILE
from hf_xsent.training.settings import TrainingSettings

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from hf_xsent.training.recipe import Recipe

_SAMPLED_ROWS = 200  # of each language
_SHOWN = 8  # differences in an error

_OF_DATA = ("target_language", "alpha")  # the fingerprints of the pairs cover the other settings of data
_OF_TRANSFORMERS = (
    *("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "weight_decay", "max_grad_norm", "max_steps"),
    *("optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon", "seed", "data_seed", "bf16", "fp16"),
)
_NOT_OF_RESULTS = {  # our training settings that only decide where, when and how fast a run computes, logs and saves
    *("per_device_train_batch_size", "logging_steps", "eval_strategy", "eval_on_start", "save_total_limit"),
    *("remove_unused_columns", "pairs_per_chunk", "compile_layers", "log_gradient_norms"),
    *("ddp_find_unused_parameters", "ddp_broadcast_buffers"),
}


@dataclass(frozen=True)
class RunState:
    """The state of a run in its output folder: what determines its results, and whether it is finished."""

    identity: dict[str, Any]
    changes: list[dict[str, Any]] = field(default_factory=list)  # of resumed runs: step, and setting: [before, after]
    finished_at_step: int | None = None

    @classmethod
    def read(cls, folder: str | Path) -> RunState | None:
        """Read the state of the run in a folder; None if it has none, like runs of earlier versions."""
        try:
            content = json.loads((Path(folder) / RUN_STATE_FILE).read_text(encoding="utf-8"))
            return cls(**content)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise OutputError(
                f"{Path(folder) / RUN_STATE_FILE} cannot be read ({error}): delete it to resume without comparing "
                "the settings"
            ) from error

    def write(self, folder: str | Path) -> None:
        """Write the state into the output folder."""
        write_json(Path(folder) / RUN_STATE_FILE, asdict(self))

    def differences(self, identity: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Return what another identity has changed: name: [before, after]."""
        names = dict.fromkeys([*self.identity, *identity])
        pairs = {name: [self.identity.get(name), identity.get(name)] for name in names}
        return {name: [before, after] for name, (before, after) in pairs.items() if before != after}

    def resumed(self, identity: dict[str, Any], step: int, allow_changes: bool) -> RunState:
        """Return the state of the run when it resumes; raise an error for changes that are not allowed."""
        changed = self.differences(identity)
        if changed and not allow_changes:
            shown = [f"{name} {_shown(old)}, now {_shown(new)}" for name, (old, new) in [*changed.items()][:_SHOWN]]
            more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
            raise OutputError(
                f"the run changed since its checkpoint of step {step}: {'; '.join(shown)}{more}: restore this, or give "
                "--resume_with_changes, which records it"
            )
        changes = [*self.changes, {"step": step, "changed": changed}] if changed else self.changes
        return RunState(identity, changes)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def identify(recipe: Recipe, train: Bitext | PivotBitext | TextSides, dev: Bitext | None) -> dict[str, Any]:
    """Return everything that determines the results of a run, as plain values by name.

    The number of processes may change if the batch over all processes does not; with a momentum encoder, also the
    number of accumulated batches if the pairs per step do not.
    """
    training, start, data = recipe.training, recipe.start, recipe.data
    identity: dict[str, Any] = {"model": identify_name(str(start.model)), "method": start.method}
    identity |= dict(_flat(recipe.config.recipe()))
    identity |= {name: getattr(data, name) for name in _OF_DATA}
    identity |= identify_training(training)
    batch = training.train_batch_size * training.world_size
    identity["pairs per step, over all processes"] = batch * training.gradient_accumulation_steps
    if not recipe.config.needs.momentum_encoder:  # else negatives come from a queue, whatever the batch
        identity["pairs per batch, over all processes"] = batch
    for name, bitext in (("training", train), ("dev", dev)):
        if bitext is not None:
            identity[f"languages of {name} pairs"] = [*bitext.languages]  # their order decides the order of pairs
            identity |= {f"{name} pairs of {language}": one for language, one in _fingerprints(bitext)}
    return plain(identity)


def identify_name(model: str) -> str:
    """Return the absolute path of a local model, or a Hub id as it is."""
    return str(Path(model).resolve()) if is_local(model) else model


def identify_training(training: TrainingArguments) -> dict[str, Any]:
    """Return the training arguments that determine the results of a run."""
    ours = (one.name for one in fields(TrainingSettings) if one.name not in _NOT_OF_RESULTS)
    found = {name: getattr(training, name) for name in (*ours, *_OF_TRANSFORMERS) if hasattr(training, name)}
    if training.max_steps <= 0:
        found["num_train_epochs"] = training.num_train_epochs
    return found


def plain(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity as JSON stores it."""
    return dict(json.loads(json.dumps(identity, default=lambda one: getattr(one, "value", str(one)))))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _fingerprints(bitext: Bitext | PivotBitext | TextSides) -> Iterator[tuple[str, str]]:
    """Fingerprint each language by the number of its pairs, their size, and a sample of their texts."""
    sizes, stored = {}, bitext.bitext if isinstance(bitext, PivotBitext) else bitext
    if isinstance(stored, Bitext):
        sizes = {name: sum(batch.nbytes for batch in read_batches(path)) for name, path in stored.files.items()}
    for language, rows in bitext.ranges.items():
        sample = np.linspace(rows.start, rows.stop - 1, min(_SAMPLED_ROWS, len(rows)), dtype=np.int64)
        content = digest([sizes.get(language), bitext.__getitems__(sample.tolist())])
        yield language, f"{len(rows)} ({content})"
