"""A further stage of training: what an earlier stage trained beside the encoder goes on training."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoModelForPreTraining

from hf_xsent.errors import RecipeError
from hf_xsent.models.loading import one_sentence, quiet_loading
from hf_xsent.models.masked_language_head import MaskedLanguageHead
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.objectives.registry import objective_class


@torch.no_grad()
def load_matching_heads(model: SentenceEncoder, name_or_path: str) -> None:
    """Load heads, language embeddings and extraction of an earlier model, where both models have the same.

    Heads over word pieces load the pieces that both know.
    """
    with quiet_loading(), one_sentence(name_or_path, "readable weights (model.safetensors)"):
        earlier: Any = AutoModelForPreTraining.from_pretrained(name_or_path, use_safetensors=True)
    ours, theirs = model.config, earlier.config
    if theirs.languages and ours.languages != theirs.languages:
        known = ", ".join(theirs.languages)
        raise RecipeError(f"{name_or_path!r} has embeddings of the languages {known}: state the same languages")
    different = [
        f"objectives.{name}."
        for name, settings in theirs.objectives.items()
        if name not in ours.objectives or not objective_class(name).continues(ours.objectives[name], settings)
    ]
    skipped = ("encoder.", *different)
    modules = {name: module for name, module in earlier.named_modules() if not name.startswith(skipped)}
    weights = {name: weight for name, weight in earlier.named_parameters() if not name.startswith(skipped)}
    for name, module in model.named_modules():
        given: nn.Module | None = modules.get(name)
        if isinstance(module, MaskedLanguageHead):
            if isinstance(given, MaskedLanguageHead):
                module.load_matching(given)
            weights = {one: weight for one, weight in weights.items() if not one.startswith(f"{name}.")}
    for name, weight in model.named_parameters():
        if name in weights and weight.shape == weights[name].shape:
            weight.copy_(weights[name])
