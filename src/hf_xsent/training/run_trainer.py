"""Save and load a run in the form of our models, with recipe, data report and model card; upload it as an export."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from hf_xsent.errors import RecipeError
from hf_xsent.files import write_json
from hf_xsent.models.saved_form import load_saved_weights, save_model
from hf_xsent.runs.origin import Origin
from hf_xsent.runs.run import BITEXT_FILE
from hf_xsent.training.checkpoints import SavingTrainer
from hf_xsent.training.hub_trainer import refuse_facts
from hf_xsent.training.identity import identify_method, identify_pairs, identify_training
from hf_xsent.training.retention import Retention, identify_retention
from hf_xsent.training.run_card import (
    facts_of_trainer,
    settings_besides_arguments,
    settings_of_run,
    write_recipe,
    write_run_card,
)
from hf_xsent.training.start_of_run import StartOfRun

logger = logging.getLogger(__name__)


class RunTrainer(SavingTrainer):
    """Write the model and the reports of a run; ``stated_settings`` are those of its recipe, if it was read from one.

    Models are saved by their ``save_pretrained``, and resume with all weights that this writes; DeepSpeed resumes
    from its shards.
    """

    stated_settings: Mapping[str, Any] | None = None
    start: StartOfRun  # of the last call of train that was not refused
    _retention: Retention | None = None
    alpha: float
    target_language: str

    @property
    def origin(self) -> Origin:
        """Where the weights come from that the run starts from."""
        return self.start.origin if hasattr(self, "start") else Origin.of(self.model)

    def identity(self) -> dict[str, Any]:
        """Return the settings of model and training, the starting model and the data.

        The number of processes may change if the batch over all processes does not; with a momentum encoder, also the
        number of accumulated batches if the pairs per step do not.
        """
        model = self.model
        origin = Origin.of(model) if self.run is None else StartOfRun.find(model, self.run).origin
        identity = {"model": origin.identity, **identify_method(model.config), **identify_training(self.args)}
        identity |= {"alpha": self.alpha, "target_language": self.target_language, "dtype": str(model.dtype)}
        identity |= identify_retention(self.args, self._retention)
        if not model.config.needs.momentum_encoder:  # else negatives come from a queue, whatever the batch
            identity["pairs per batch, over all processes"] = self.args.train_batch_size * self.args.world_size
        for name, dataset in (("training", self.train_dataset), ("dev", self.eval_dataset)):
            identity |= {} if dataset is None else identify_pairs(dataset, name)
        return identity

    def before_training(self) -> None:
        """Write the recipe, before adapters are merged, and the counts of the pairs."""
        super().before_training()
        model = self.model
        self.start = model.encoder.start_of_run = StartOfRun.find(model, self.run)
        if self._resumed is None and getattr(model.encoder, "origin", None) == Origin():
            logger.warning(
                "an interrupted training changed the weights that this one begins with: open the model again"
            )
        self.stated_settings = settings_besides_arguments(self)
        if self.saves_run and self.args.should_save:
            write_recipe(str(self.args.output_dir), "pretrain", settings_of_run(self))
            report = getattr(getattr(self.train_dataset, "sides", self.train_dataset), "report", None)
            if report is not None:
                write_json(Path(str(self.args.output_dir)) / BITEXT_FILE, report.to_dict())

    def after_training(self, folder: str | None) -> None:
        """Note the run for exports and further runs, also of other models over this encoder."""
        self.model.encoder.origin = Origin(folder, facts=facts_of_trainer(self))

    def predict(self, *_: Any, **__: Any) -> Any:
        """Raise an error: measurements are made by ``evaluate``."""
        raise RecipeError("predict does not work here: call evaluate for scores, or the model's encode for embeddings")

    def hyperparameter_search(self, *_: Any, **__: Any) -> Any:
        """Raise an error: each run needs a new model and folder, which ``compare`` gives it."""
        raise RecipeError("hyperparameter_search does not work here: compare settings by hf_xsent.compare")

    def write_card(self, folder: Path) -> None:
        """Write the model card."""
        write_run_card(self, folder)

    def write_upload(self, folder: Path, name: str) -> None:
        """Write the model without the weights that only training needs, and its card."""
        save_model(self.model, folder, heads=False)
        write_run_card(self, folder, name)

    def create_model_card(self, **facts: Any) -> None:  # type: ignore[override]
        """Write the model card of the run, and the model that it describes, unless that is saved."""
        refuse_facts(facts)
        self.check_trained()
        folder = Path(str(self.args.output_dir))
        if not (folder / "config.json").is_file():
            self.save_model()
        if self.is_world_process_zero():
            write_run_card(self, folder)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if self.args.should_save:
            folder = output_dir or str(self.args.output_dir)
            self.model.save_pretrained(folder, state_dict=state_dict)
            facts_of_trainer(self).write(folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        if self.is_deepspeed_enabled:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        else:
            load_saved_weights(self.model, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        if self.is_deepspeed_enabled:
            super()._load_best_model()
        else:
            load_saved_weights(self.model, str(self.state.best_model_checkpoint))
