"""Fine-tune any task with the Trainer of transformers, and define the interface of a task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import IntervalStrategy

from hf_xsent.errors import ModelError
from hf_xsent.files import is_local
from hf_xsent.finetuning.settings import FineTuningSettings, FineTuningTrainingSettings, QuestionSettings
from hf_xsent.models.batching import batches_by_length, evaluating, pad_rows
from hf_xsent.runs.identity import identify_files, identify_model
from hf_xsent.runs.run import RESULTS, TABLE
from hf_xsent.training.arguments import CheckedArguments, check_metric
from hf_xsent.training.callbacks import outlive_sigterm
from hf_xsent.training.checkpoints import SavingTrainer
from hf_xsent.training.conflicts import facts_of_arguments, refuse_conflicts
from hf_xsent.training.identity import identify_training
from hf_xsent.training.run_card import recipe_of, write_recipe
from hf_xsent.training.settings import FolderSettings

Scores = dict[str, dict[str, float]]  # of each test set, by name
Features = Mapping[str, Sequence[int]]  # input_ids and perhaps token_type_ids of one row

TOKENS_PER_BATCH = 8192  # in evaluation
MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass
class FineTuningArguments(  # type: ignore[misc]  # bf16 may be "auto"
    FineTuningTrainingSettings, FolderSettings, QuestionSettings, FineTuningSettings, CheckedArguments
):
    """All settings of fine-tuning: task, model and data, and Hugging Face's arguments with the defaults of PPA, 3.3."""

    def __post_init__(self) -> None:
        """Check the values; complete the length, whose default depends on the task."""
        self.max_length = self.max_length or (384 if self.task == "mlqa" else 128)
        super().__post_init__()


def identify(settings: FineTuningArguments) -> dict[str, Any]:
    """Return what decides the fine-tuned weights, by name; the model and the data by their content."""
    identity = identify_training(settings) | {"model": identify_model(str(settings.model))}
    for what in ("train", "dev"):
        for number, (language, _, path) in enumerate(source.partition("=") for source in identity.pop(what) or ()):
            content = identify_files([path]) if is_local(path) else path  # a Hub id
            identity[f"{what} data {number + 1}"] = f"{language} ({content})"  # their order decides that of records
    return identity


class FineTuningTask(ABC):
    """A task: batches of its examples, a loss of the model's outputs, and scores of test sets."""

    scores: ClassVar[tuple[str, ...]]  # the first selects the best checkpoint

    @abstractmethod
    def collate(self, examples: Sequence[Any]) -> dict[str, Tensor]:
        """Return a batch: the model's inputs, and other tensors for ``loss``."""

    def collate_groups(self, groups: Sequence[tuple[Any, ...]]) -> dict[str, Tensor]:
        """Return a batch of groups that stay together."""
        return self.collate([example for group in groups for example in group])

    @abstractmethod
    def loss(self, outputs: Any, batch: Mapping[str, Tensor]) -> Tensor:
        """Compute the mean loss over the rows."""

    @abstractmethod
    def measure(self, model: PreTrainedModel, sets: Mapping[str, Sequence[Any]]) -> Scores:
        """Compute the scores of each test set, in percent."""


def adapted_arguments(args: FineTuningArguments, task: FineTuningTask, dev: Any) -> FineTuningArguments:
    """Return arguments that measure the task's first score on dev examples, if there are any."""
    args = copy(args)  # which another trainer may share
    if dev is None:
        args.eval_strategy = IntervalStrategy.NO
        refuse_conflicts(facts_of_arguments(args))
    if args.metric_for_best_model is None:
        args.metric_for_best_model, args.greater_is_better = task.scores[0], True
    check_metric(args, [*task.scores, *(f"{score}_{name}" for name in dev or () for score in task.scores)])
    return args


class FineTuner(SavingTrainer):
    """Fine-tune a task model; the examples of a group share a batch, and ``eval_dataset`` maps names to test sets."""

    loss_is_scaled_for_ga = False  # the loss is the mean of each batch: the Trainer must divide accumulated gradients
    args: FineTuningArguments

    def __init__(
        self,
        model: PreTrainedModel,
        args: FineTuningArguments,
        task: FineTuningTask,
        train_dataset: Sequence[tuple[Any, ...]] = (),
        eval_dataset: Mapping[str, Sequence[Any]] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
    ) -> None:
        args = adapted_arguments(args, task, eval_dataset)
        data: Any = (list(train_dataset) or None, eval_dataset)
        super().__init__(model, args, task.collate_groups, *data, processing_class)
        self.task = task

    def get_train_dataloader(self) -> Any:
        """Return the batches; workers outlive SIGTERM until the step is saved."""
        loader = super().get_train_dataloader()
        loader.worker_init_fn = outlive_sigterm
        return loader

    def identity(self) -> dict[str, Any]:
        """Return what decides the fine-tuned weights."""
        return identify(self.args)

    def before_training(self) -> None:
        """Write the recipe, and remove results of before."""
        super().before_training()
        if self.saves_run and self.args.should_save:
            folder = Path(str(self.args.output_dir))
            for name in (RESULTS, TABLE):
                (folder / name).unlink(missing_ok=True)
            write_recipe(folder, f"finetune {self.args.task}", recipe_of(self.args))

    def compute_loss(self, model: Any, inputs: dict[str, Any], *_: Any, **__: Any) -> Any:
        """Compute the task's loss."""
        outputs = model(**{name: tensor for name, tensor in inputs.items() if name in MODEL_INPUTS})
        loss = self.task.loss(outputs, inputs)
        if not loss.isfinite():
            raise self.not_finite(f"loss is NaN or infinite ({loss.item():g})", self.state.global_step + 1)
        return loss

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Measure each set (such as ``eval_accuracy_de``) and the means over sets (``eval_accuracy``)."""
        sets: Any = self.eval_dataset if eval_dataset is None else eval_dataset
        self.use_averaged_weights()
        scores = self.measure(sets)
        metrics = {f"{metric_key_prefix}_{kind}_{name}": of[kind] for name, of in scores.items() for kind in of}
        for kind in self.task.scores:
            metrics[f"{metric_key_prefix}_{kind}"] = sum(of[kind] for of in scores.values()) / len(scores)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def measure(self, sets: Mapping[str, Sequence[Any]]) -> Scores:
        """Measure all sets in each process."""
        with self.accelerator.autocast():
            return self.task.measure(self.model, sets)


def pad(rows: Sequence[Features], padding: int) -> dict[str, Tensor]:
    """Pad rows to a batch of the model's inputs."""
    ids, mask = pad_rows([row["input_ids"] for row in rows], padding)
    batch = {"input_ids": ids, "attention_mask": mask.long()}
    if "token_type_ids" in rows[0]:
        batch["token_type_ids"], _ = pad_rows([row["token_type_ids"] for row in rows])
    return batch


@torch.inference_mode()
def predictions(
    model: PreTrainedModel, rows: Sequence[Features], padding: int, description: str
) -> Iterator[tuple[list[int], Any]]:
    """Yield the model's outputs in batches of rows of similar length, each with the indices of its rows."""
    module: torch.nn.Module = model
    with evaluating(module):
        for numbers in batches_by_length([len(row["input_ids"]) for row in rows], TOKENS_PER_BATCH, description, "row"):
            batch = pad([rows[number] for number in numbers], padding)
            outputs = model(**{name: tensor.to(model.device) for name, tensor in batch.items()})
            if not all(tensor.isfinite().all() for tensor in outputs.values() if isinstance(tensor, Tensor)):
                raise ModelError("outputs are NaN or infinite: the weights are damaged, or their training diverged")
            yield numbers, outputs
