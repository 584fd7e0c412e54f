"""Write recipe, data report and model card of a run next to its model; upload the model as an export."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from hf_xsent.files import write_json
from hf_xsent.publishing.sentence_transformer import export_sentence_transformer
from hf_xsent.training.identity import identify_method, identify_pairs, identify_start, identify_training
from hf_xsent.training.run_card import settings_of, write_recipe, write_run_card
from hf_xsent.training.saved_model import SavedModelTrainer
from hf_xsent.training.uploading import UploadingTrainer


class RunTrainer(UploadingTrainer, SavedModelTrainer):
    """Write the reports of a run; ``settings_of_run`` are those of its recipe, if it was read from one."""

    settings_of_run: Mapping[str, Any] | None = None
    alpha: float
    target_language: str

    def identity(self) -> dict[str, Any]:
        """Return the settings of model and training, the starting model and the data.

        The number of processes may change if the batch over all processes does not; with a momentum encoder, also the
        number of accumulated batches if the pairs per step do not.
        """
        model = self.accelerator.unwrap_model(self.model)
        identity = {"model": identify_start(model), **identify_method(model.config), **identify_training(self.args)}
        identity |= {"alpha": self.alpha, "target_language": self.target_language}
        if not model.config.needs.momentum_encoder:  # else negatives come from a queue, whatever the batch
            identity["pairs per batch, over all processes"] = self.args.train_batch_size * self.args.world_size
        for name, dataset in (("training", self.train_dataset), ("dev", self.eval_dataset)):
            identity |= {} if dataset is None else identify_pairs(dataset, name)
        return identity

    def before_training(self, checkpoint: str | None) -> None:
        """Write the recipe, before adapters are merged, and the counts of the pairs."""
        super().before_training(checkpoint)
        if self.saves_run and self.args.should_save:
            folder = str(self.args.output_dir)
            self.settings_of_run = self.settings_of_run or settings_of(self)
            write_recipe(folder, "pretrain", self.settings_of_run, self.args)
            report = getattr(getattr(self.train_dataset, "sides", self.train_dataset), "report", None)
            if report is not None:
                write_json(Path(folder) / "bitext.json", report.to_dict())

    def write_reports(self) -> None:
        """Write the model card."""
        self.accelerator.unwrap_model(self.model).trained_in = str(self.args.output_dir)
        write_run_card(self, None, None, None)

    def write_upload(self, folder: Path) -> None:
        """Export the model as a plain encoder, unless no plain encoder can express it."""
        model = self.accelerator.unwrap_model(self.model)
        if model.not_plain is not None:
            return super().write_upload(folder)
        model.trained_in = str(self.args.output_dir)
        export_sentence_transformer(model, folder, cast(Any, self.processing_class), verify=False)

    def create_model_card(self, *_: Any, **facts: Any) -> None:
        """Write the model card of the run, or of its export during an upload."""
        if self.is_world_process_zero():
            known = (facts.get("model_name"), facts.get("license"), facts.get("finetuned_from"))
            write_run_card(self, *known)
