"""Register configs and models with the Auto classes of transformers on import."""

from __future__ import annotations

from hf_xsent.models.methods import METHODS, register_models

__all__ = ["METHODS"]
register_models()
