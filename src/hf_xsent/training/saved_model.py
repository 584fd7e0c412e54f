"""Let the Trainer save and load our models in their saved form, in checkpoints and at the end of the run."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import Trainer

from hf_xsent.models.saved_form import load_saved_weights


class SavedModelTrainer(Trainer):
    """Save a model by its ``save_pretrained``, and resume with all weights that this writes.

    FSDP and DeepSpeed resume from their shards.
    """

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        if self.args.should_save:
            self._bare_model().save_pretrained(output_dir or self.args.output_dir, state_dict=state_dict)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
        else:
            load_saved_weights(self._bare_model(), resume_from_checkpoint)

    def _load_best_model(self) -> None:
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            super()._load_best_model()
        else:
            load_saved_weights(self._bare_model(), str(self.state.best_model_checkpoint))

    def _bare_model(self) -> Any:
        """Return the model without the wrappers of data parallelism and torch.compile."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
