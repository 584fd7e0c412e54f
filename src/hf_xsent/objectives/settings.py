"""Declare settings that several objectives share. This file does not import torch."""

from __future__ import annotations

from dataclasses import dataclass

from hf_xsent.settings.declare import setting


@dataclass(frozen=True)
class ObjectiveSettings:
    """The settings of any objective."""

    weight: float = setting(1.0, "Weight of this loss in the sum of all losses.", above=0)

    @property
    def embedded_languages(self) -> list[str] | None:
        """The languages for which the objective has an embedding."""
        return None


@dataclass(frozen=True)
class VocabularySettings(ObjectiveSettings):
    """The settings of an objective that predicts word pieces."""

    sampled_pieces: int | None = setting(
        None,
        "Compute the softmax over the batch's label tokens and about this many random ones (default: the full "
        "vocabulary).",
        at_least=1,
    )
