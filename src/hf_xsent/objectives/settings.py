"""The settings that several objectives share. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass

from hf_xsent.settings.declaring import setting


@dataclass(frozen=True)
class ObjectiveSettings:
    """The settings of any objective."""

    weight: float = setting(1.0, "Multiply this loss by it in the sum of all losses.", above=0)

    @property
    def embedded_languages(self) -> list[str] | None:
        """The languages for which the objective has an embedding."""
        return None


@dataclass(frozen=True)
class VocabularySettings(ObjectiveSettings):
    """The settings of an objective that predicts word pieces."""

    sampled_pieces: int | None = setting(
        None,
        "Take the softmax over about this many random word pieces and the right ones; without it, all.",
        at_least=1,
    )
