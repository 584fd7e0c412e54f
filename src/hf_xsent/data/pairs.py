"""Open the sentence pairs of a command, in one file or in memory."""

from __future__ import annotations

from hf_xsent.data.pair_settings import PairSettings
from hf_xsent.data.readers.columns import parse_columns
from hf_xsent.data.readers.resolving import resolve_sources
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import RecipeError


def open_pairs(settings: PairSettings) -> BitextSource:
    """Return the source of these pairs."""
    columns = parse_columns(settings.columns)
    data = {settings.language: settings.pairs}
    resolved = resolve_sources(data, target_language=settings.target_language, columns=columns)
    sources = [source for of_language in resolved.values() for source in of_language]
    if len(sources) > 1:
        raise RecipeError(f"{settings.pairs} matches {len(sources)} files: give one file per run")
    return sources[0]
