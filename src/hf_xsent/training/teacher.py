"""Encode target sentences with a frozen teacher model for distillation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_xsent.errors import ModelError
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import quiet_loading


class Teacher:
    """A frozen model with any tokenizer, not saved with the student; ``encode`` returns one embedding per sentence."""

    def __init__(self, encode: Callable[[list[str]], Any]) -> None:
        self.encode = encode

    @classmethod
    def load(cls, name_or_path: str, width: int, device: torch.device, precision: str = "float32") -> Teacher:
        """Load a SentenceEmbedder or SentenceTransformer whose embeddings have the student's width."""
        teacher = cls(_open(name_or_path, device, precision))
        try:
            teacher_width = len(np.asarray(teacher.encode(["A sentence."]))[0])
        except ModelError as error:
            raise ModelError(f"the teacher {name_or_path!r} cannot encode text alone: {error}") from error
        if teacher_width != width:
            raise ModelError(
                f"the teacher {name_or_path!r} has embeddings of width {teacher_width}, the student of {width}: "
                "choose models of equal width"
            )
        return teacher

    def __call__(self, batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
        """Replace ``target_texts`` of the batch by ``teacher_vectors``."""
        vectors: Tensor = torch.as_tensor(np.asarray(self.encode(batch["target_texts"]), dtype=np.float32))
        return {name: one for name, one in batch.items() if name != "target_texts"} | {
            "teacher_vectors": vectors.to(device)
        }


def _open(name_or_path: str, device: torch.device, precision: str) -> Callable[[list[str]], Any]:
    try:
        return SentenceEmbedder.from_pretrained(name_or_path, device=device, precision=precision).encode
    except ModelError as error:
        from sentence_transformers import SentenceTransformer

        try:
            with quiet_loading():
                model = SentenceTransformer(name_or_path, device=str(device), model_kwargs={"use_safetensors": True})
        except Exception:  # files of other authors can raise anything
            raise ModelError(f"the teacher cannot be loaded: {error}") from error
        return partial(model.eval().encode, show_progress_bar=False)
