"""Write the same output folder for a run from Python as for one from the command line; upload it as a plain encoder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from transformers.trainer_utils import SaveStrategy, TrainOutput

from hf_xsent.errors import OutputError
from hf_xsent.files import write_json
from hf_xsent.publishing.sentence_transformer import export_sentence_transformer
from hf_xsent.training.callbacks import METRICS_FILE
from hf_xsent.training.checkpoints import SavingTrainer
from hf_xsent.training.run_card import RECIPE_FILE, settings_of, write_run_card, write_run_recipe
from hf_xsent.training.saved_model import SavedModelTrainer


class RunTrainer(SavingTrainer, SavedModelTrainer):
    """Save the model with recipe and card at the end of ``train``; push it to the Hub as an export."""

    _uploading = False
    settings_of_run: Mapping[str, Any] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.saves_at_end = self.args.save_strategy != SaveStrategy.NO

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """Train; record the settings before adapters are merged, and replace no model card of others."""
        folder = Path(str(self.args.output_dir))
        if self.saves_at_end and (folder / "README.md").exists() and not (folder / RECIPE_FILE).exists():
            raise OutputError(f"{folder} holds a README.md that hf-xsent did not write: choose another output_dir")
        self.settings_of_run = settings_of(self)
        return super().train(*args, **kwargs)

    def save_run(self) -> None:
        """Write model, tokenizer, recipe, counts of pairs and model card into the output folder."""
        model = self.accelerator.unwrap_model(self.model)
        model.merge_adapters()
        self.save_model()
        if self.args.should_save:
            model.trained_in = str(self.args.output_dir)
            write_run_recipe(self)
            if (report := getattr(self.train_dataset, "report", None)) is not None:
                write_json(Path(str(self.args.output_dir)) / "bitext.json", report.to_dict())
            write_run_card(self, None, None, None)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model; during an upload do nothing, because the uploaded folder is an export."""
        if not self._uploading:
            super().save_model(output_dir, _internal_call)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """Upload the model as a plain encoder, with card, recipe and metrics of the run.

        A plain encoder cannot have language embeddings; a model with them is uploaded in the form in which it is saved.
        """
        model, tokenizer = self.accelerator.unwrap_model(self.model), cast(Any, self.processing_class)
        self.save_model(_internal_call=True)
        folder = str(self.args.output_dir)
        if model.config.languages:
            return super().push_to_hub(*args, **kwargs)
        if not self.args.should_save:
            return None
        with TemporaryDirectory() as temporary:
            self.create_model_card()
            model.trained_in = folder
            export = export_sentence_transformer(model, Path(temporary) / "export", tokenizer, verify=False)
            for name in (RECIPE_FILE, METRICS_FILE):
                if (Path(folder) / name).is_file():
                    shutil.copy(Path(folder) / name, export / name)
            self._uploading, self.args.output_dir = True, str(export)
            try:
                return super().push_to_hub(*args, **kwargs | {"blocking": True})  # the folder is removed afterwards
            finally:
                self._uploading, self.args.output_dir = False, folder

    def create_model_card(self, *_: Any, **stated: Any) -> None:
        """Write the model card of the run, or of its export during an upload."""
        if self.is_world_process_zero():
            facts = (stated.get("model_name"), stated.get("license"), stated.get("finetuned_from"))
            write_run_card(self, *facts, plain=self._uploading)
