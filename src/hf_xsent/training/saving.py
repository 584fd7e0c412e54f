"""Checkpoints that are whole or absent, whenever the run is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import Trainer
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.trainer_utils import rotate_checkpoints

from hf_xsent.errors import OutputError, Stopped
from hf_xsent.training.callbacks import MetricsFile, ProgressBar
from hf_xsent.training.card import write_run_card
from hf_xsent.training.output_folder import (
    UNFINISHED,
    move_finished_checkpoint,
    move_finished_model,
    remove_unfinished,
)
from hf_xsent.training.survival import StopOnSigterm, explained_write_errors


class SavingTrainer(Trainer):
    """Writes checkpoints and the final model under another name first, and saves and ends when SIGTERM arrives.

    What it tells on the way goes to a progress bar and a file of metrics.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stop = StopOnSigterm()
        self.add_callback(self._stop)
        for default in (PrinterCallback, ProgressCallback):
            self.remove_callback(default)
        self.add_callback(ProgressBar)
        self.add_callback(MetricsFile)
        self._writing = False

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As the Trainer's; the final model is moved into the run's folder when it is whole."""
        if output_dir is not None:
            return super().save_model(output_dir, _internal_call)
        folder = str(self.args.output_dir)
        try:
            with explained_write_errors(folder, "the trained model"):
                super().save_model(str(Path(folder) / UNFINISHED), _internal_call=True)
        except OutputError:
            remove_unfinished(folder)
            raise
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            move_finished_model(folder)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    def create_model_card(self, *_: Any, **stated: Any) -> None:
        """Ours instead of the Trainer's: from the recipe, the data and the trainer's state."""
        if self.is_world_process_zero():
            write_run_card(self, stated.get("model_name"), stated.get("license"), stated.get("finetuned_from"))

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """As the Trainer's, under another name until all processes have written their part; then ends a stopped run."""
        folder, name = self._get_output_dir(trial), f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            remove_unfinished(folder)
        self.accelerator.wait_for_everyone()
        self._writing = True
        try:
            with explained_write_errors(folder, name):
                super()._save_checkpoint(model, trial)
                if self.state.best_global_step == self.state.global_step:
                    self.state.best_model_checkpoint = str(Path(folder) / name)
                if self.args.should_save:
                    self.state.save_to_json(str(Path(folder) / UNFINISHED / name / TRAINER_STATE_NAME))
        except OutputError:
            remove_unfinished(folder)
            raise
        finally:
            self._writing = False
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            move_finished_checkpoint(folder, name)
            rotate_checkpoints(folder, self.args.save_total_limit, self.state.best_model_checkpoint, use_mtime=True)
        self.accelerator.wait_for_everyone()
        if self.args.push_to_hub:
            super()._push_from_checkpoint(str(Path(folder) / name))
        if self._stop.requested:
            self.callback_handler.on_train_end(self.args, self.state, self.control)
            raise Stopped(f"stopped by SIGTERM after step {self.state.global_step}: go on with --resume")

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder) / UNFINISHED) if self._writing else folder

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Not yet: it is still being written."""
