"""TrainingArguments with our defaults, checked against the machine."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from transformers import TrainingArguments

from hf_xsent.errors import RecipeError
from hf_xsent.settings.declaring import check_settings
from hf_xsent.training.compatibility import check_one_device, check_support
from hf_xsent.training.recipe import TrainingSettings


@dataclass
class AlignmentTrainingArguments(TrainingSettings, TrainingArguments):
    """Hugging Face's arguments with the defaults and the additions of ``TrainingSettings``."""

    def __post_init__(self) -> None:
        """Check the values, and drop defaults that the run has no use for: checkpoints, evaluation, a GPU."""
        check_settings(self)
        check_support(self)
        self._check_compilation()
        if self.early_stopping_patience is not None:
            self._check_early_stopping()
        if "no" in (self.eval_strategy, self.save_strategy):
            self.load_best_model_at_end = False
        super().__post_init__()
        check_one_device(self)
        if self.device.type == "cpu" and self.fp16:
            raise RecipeError("fp16 needs a GPU; on a CPU use --bf16 or neither")
        if self.device.type == "cpu":
            self.dataloader_pin_memory = False

    def _check_compilation(self) -> None:
        if self.torch_compile or self.torch_compile_backend or self.torch_compile_mode:
            raise RecipeError(
                "torch_compile compiles the whole step again for the lengths of each batch: use --compile_layers"
            )
        if not self.compile_layers:
            return
        if self.gradient_checkpointing or getattr(self, "activation_checkpointing", False):
            raise RecipeError("compile_layers does nothing for checkpointed layers: drop one of the two")
        if shutil.which(os.environ.get("CXX", "g++")) is None:
            raise RecipeError("compile_layers needs a C++ compiler: install g++, or drop the flag")

    def _check_early_stopping(self) -> None:
        if self.eval_strategy == "no":
            raise RecipeError("early_stopping_patience counts dev measurements, but eval_strategy is no")
        self.restore_callback_states_from_checkpoint = True  # a resumed run goes on counting
