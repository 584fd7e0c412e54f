"""Upload the model of a run to the Hub, without checkpoints and without what only this machine needs."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub.errors import HTTPError

from hf_xsent.errors import OutputError
from hf_xsent.runs.run import METRICS_FILE
from hf_xsent.training.checkpoints import SavingTrainer
from hf_xsent.training.run_card import RECIPE_FILE


class UploadingTrainer(SavingTrainer):
    """Upload the finished model, whatever ``hub_strategy`` is: ``every_save`` would upload unfinished ones."""

    _uploading = False

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Create the repository before training, so that a missing token or network ends the run at once."""
        try:
            super().init_hf_repo(token, private)
        except (OSError, ValueError, HTTPError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise OutputError(
                f"push_to_hub cannot create the repository ({reason}): sign in with 'hf auth login', check the "
                "network, or drop push_to_hub and publish the export later"
            ) from error

    def write_upload(self, folder: Path) -> None:
        """Write model and tokenizer as others open them."""
        model: Any = self.accelerator.unwrap_model(self.model)
        model.save_pretrained(folder)
        if self.processing_class is not None:
            self.processing_class.save_pretrained(folder)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """Upload the model with card, recipe and metrics of the run."""
        folder = str(self.args.output_dir)
        with TemporaryDirectory() as temporary:
            upload = Path(temporary) / "upload"
            if self.args.should_save:
                self.create_model_card()
                self.write_upload(upload)
                for name in (RECIPE_FILE, METRICS_FILE):
                    if (Path(folder) / name).is_file():
                        shutil.copy(Path(folder) / name, upload / name)
            self._uploading, self.args.output_dir = True, str(upload)
            try:
                return super().push_to_hub(*args, **kwargs | {"blocking": True})  # the folder is removed afterwards
            finally:
                self._uploading, self.args.output_dir = False, folder

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model; during an upload do nothing, because the folder has the model."""
        if not self._uploading:
            super().save_model(output_dir, _internal_call)
