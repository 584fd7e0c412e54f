"""Upload the finished model of a run to the Hub, with its card, recipe and metrics."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import create_branch, upload_folder
from huggingface_hub.errors import HTTPError
from transformers import Trainer

from hf_xsent.errors import OutputError, RecipeError, TrainingError
from hf_xsent.models.saved_form import OF_EXPORTS
from hf_xsent.runs.run import METRICS_FILE, RECIPE_FILE


def refuse_facts(facts: Mapping[str, Any]) -> None:
    """Raise an error for facts of a card, which transformers' Trainer takes and ``publish`` states here."""
    if facts:
        raise RecipeError(f"{', '.join(facts)}: a card gets its facts from the run, and others by hf-xsent publish")


class HubTrainer(Trainer):
    """Check access to the Hub before training, and upload only the finished model, never a checkpoint."""

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Create repository and branch before training, so that a missing token or network ends the run at once."""
        try:
            super().init_hf_repo(token, **({} if private is None else {"private": private}))
            self._create_branch(token, self.args.hub_revision)
        except (OSError, ValueError, HTTPError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise OutputError(
                f"push_to_hub cannot create the repository or its branch ({reason}): sign in with 'hf auth login', "
                "check the network, or drop push_to_hub and publish the export later"
            ) from error

    model: Any  # without the wrappers of data parallelism, which are around the model that ``compute_loss`` gets

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **facts: Any,
    ) -> Any:
        """Upload the finished model with its card, recipe and metrics, without checkpoints, and wait."""
        refuse_facts(facts)
        self.check_trained()
        if self.hub_model_id is None:
            self.init_hf_repo(token, private)
        if not self.is_world_process_zero():
            return None
        repository = str(self.hub_model_id)
        with TemporaryDirectory() as temporary:
            upload = Path(temporary)
            self.write_upload(upload, repository.split("/")[-1])
            for name in ("README.md", RECIPE_FILE, METRICS_FILE):
                file = Path(str(self.args.output_dir)) / name
                if file.is_file() and not (upload / name).exists():
                    shutil.copy(file, upload)
            try:
                self._create_branch(token, revision)
                return upload_folder(
                    repo_id=repository,
                    folder_path=upload,
                    commit_message=commit_message,
                    token=token or self.args.hub_token,
                    revision=revision or self.args.hub_revision,
                    delete_patterns=OF_EXPORTS,
                )
            except (OSError, RuntimeError, ValueError, HTTPError) as error:
                raise OutputError(
                    f"{repository} is not fully uploaded ({' '.join(str(error).split())}): call push_to_hub again, or "
                    f"upload the run in {self.args.output_dir} by hf-xsent export, then hf-xsent publish"
                ) from error

    def _create_branch(self, token: str | None, branch: str | None) -> None:
        """Create a branch, unless it exists or is a pull request's, which only the Hub creates."""
        if branch is not None and not branch.startswith("refs/pr/") and self.is_world_process_zero():
            token = token or self.args.hub_token
            create_branch(str(self.hub_model_id), branch=branch, token=token, exist_ok=True)

    def check_trained(self) -> None:
        """Raise an error before training, when the output folder may hold another run."""
        if self.state.global_step == 0:
            raise TrainingError("this trainer has not trained: call train first, or save its model by save_pretrained")

    def write_upload(self, folder: Path, name: str) -> None:
        """Write model, tokenizer and card, which is also that of the run."""
        self.create_model_card(model_name=name)
        self.model.save_pretrained(folder)
        if self.processing_class is not None:
            self.processing_class.save_pretrained(folder)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Do nothing: only the finished model is uploaded."""
