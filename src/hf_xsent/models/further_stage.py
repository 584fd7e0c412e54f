"""A further stage of training: what an earlier one has taught a model beside its encoder learns on."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import AutoModelForPreTraining

from hf_xsent.errors import RecipeError
from hf_xsent.models.loading import one_sentence, quiet_loading
from hf_xsent.models.masked_language_head import MaskedLanguageHead
from hf_xsent.models.sentence_encoder import SentenceEncoder

_RTL = "objectives.representation_translation."
_MOMENTUM = "objectives.momentum_contrast."  # its keys belong to the stage that made them: it starts anew


@torch.no_grad()
def take_over_heads(model: SentenceEncoder, name_or_path: str) -> None:
    """Let heads, language embeddings and extraction start from those of an earlier model, where both have the same.

    Heads over word pieces take over the pieces that both know.
    """
    with quiet_loading(), one_sentence(name_or_path, "readable weights (model.safetensors)"):
        earlier: Any = AutoModelForPreTraining.from_pretrained(name_or_path, use_safetensors=True)
    ours, theirs = model.config, earlier.config
    if theirs.languages and ours.languages != theirs.languages:
        known = ", ".join(theirs.languages)
        raise RecipeError(f"{name_or_path!r} reads its sentences with embeddings of {known}: state the same languages")
    same_head = all(getattr(ours, key) == getattr(theirs, key) for key in ("rtl_layers", "rtl_languages", "languages"))
    skipped = ("encoder.", _MOMENTUM, *(() if same_head else (_RTL,)))
    modules = {name: module for name, module in earlier.named_modules() if not name.startswith(skipped)}
    weights = {name: weight for name, weight in earlier.named_parameters() if not name.startswith(skipped)}
    for name, module in model.named_modules():
        given: nn.Module | None = modules.get(name)
        if isinstance(module, MaskedLanguageHead):
            if isinstance(given, MaskedLanguageHead):
                module.take_over(given)
            weights = {one: weight for one, weight in weights.items() if not one.startswith(f"{name}.")}
    for name, weight in model.named_parameters():
        if name in weights and weight.shape == weights[name].shape:
            weight.copy_(weights[name])
