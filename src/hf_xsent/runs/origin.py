"""Say where the weights of a model come from: the Hub, a folder, or a run of this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hf_xsent.errors import ModelError
from hf_xsent.runs.identity import identify_model


@dataclass(frozen=True)
class Origin:
    """Where weights come from; an encoder that was trained keeps it as ``encoder.origin``, also in another model."""

    name: str | None = None  # the Hub id or folder that holds these weights; None if none does
    hub: Mapping[str, Any] = field(default_factory=dict)  # its revision and other Hub arguments
    facts: Any = None  # ModelFacts of the run of this process that trained them

    @classmethod
    def of(cls, model: Any) -> Origin:
        """Return the origin of a model's weights as they are now."""
        trained: Any = model if hasattr(model, "origin") else getattr(model, "encoder", model)
        if isinstance(origin := getattr(trained, "origin", None), cls):
            return origin
        name = getattr(model, "_source", None) or getattr(model, "name_or_path", None) or None
        return cls(name, getattr(model, "_hub", {}))

    @property
    def identity(self) -> str | None:
        """Name the weights by their content; None if nothing holds them."""
        try:
            return None if self.name is None else identify_model(self.name, **self.hub)
        except ModelError:  # loaded with other arguments than its name alone, such as a token
            return self.name
