"""What tests state of every objective of the registry, so that a new objective needs no line in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from hf_xsent.errors import RecipeError
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.registry import OBJECTIVES, objective_class, read_objectives

BOTH_DIRECTIONS = {"direction": "both", "predicted_languages": ["de", "en"], "head_layers": 1}
# Of objectives whose defaults do not fit a tiny encoder.
_SMALL: dict[str, dict[str, Any]] = {
    "matryoshka": {"dims": [32, 8]},
    "representation_translation": BOTH_DIRECTIONS,
    "mexma": {"head_layers": 1},
    "momentum_contrast": {"queue_size": 8},
}
_CANDIDATES: tuple[Any, ...] = (2, 3, 0.5, 2.5, ["de", "en"], [32, 8], "some/model", (1, 5, 9))


def sentence_pairs(
    source: Tensor, target: Tensor, sources: Tensor | None = None, targets: Tensor | None = None, **others: Any
) -> SentencePairs:
    """Return pairs with these hashes of the sentences, by default all different."""
    numbers = torch.arange(2 * len(source)).view(2, -1)
    return SentencePairs(
        source=source,
        target=target,
        source_identity=numbers[0] if sources is None else sources,
        target_identity=numbers[1] if targets is None else targets,
        **others,
    )


def small(name: str) -> dict[str, Any]:
    """Return settings of an objective that fit a tiny encoder."""
    return dict(_SMALL.get(name, {}))


def trained_by_default() -> list[str]:
    """Return the objectives that train a whole encoder."""
    return [name for name in OBJECTIVES if not objective_class(name).needs.frozen_encoder]


def teacher_vectors(vectors: Tensor, names: Iterable[str] = OBJECTIVES) -> dict[str, Tensor]:
    """Return the same embeddings as those of every teacher and side, as a batch holds them."""
    return {f"{name}_teacher_{side}": vectors for name in names for side in objective_class(name).needs.teacher}


def other_values(name: str) -> dict[str, Any]:
    """Return of each setting of an objective but the weight a value that is not its default."""
    kind = objective_class(name).Settings
    others = {}
    for field in fields(kind):
        default = getattr(kind(), field.name)
        if field.name != "weight":
            candidates = (not default, *field.metadata.get("choices", ())[::-1], *_CANDIDATES)
            others[field.name] = next(
                value for value in candidates if value != default and _is_taken(name, field.name, value)
            )
    return others


def _is_taken(name: str, setting: str, value: Any) -> bool:
    """Return whether a setting takes the value as it is, without conversion."""
    try:
        read = getattr(read_objectives({name: {setting: value}})[name], setting)
    except RecipeError:
        return False
    return type(read) is type(value) and read == value
