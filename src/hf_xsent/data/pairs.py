"""Open the sentence pairs of a command, in one file or in memory."""

from __future__ import annotations

from typing import Any

from hf_xsent.data.cache import default_cache_dir
from hf_xsent.data.in_memory import on_disk
from hf_xsent.data.pair_settings import PairSettings
from hf_xsent.data.readers.columns import parse_columns
from hf_xsent.data.readers.sources import BitextSource, resolve_sources
from hf_xsent.errors import RecipeError


def open_pairs(settings: PairSettings, **links: Any) -> BitextSource:
    """Return the source of these pairs; ``links`` are arguments of `resolve_sources`."""
    language, columns = settings.language, parse_columns(settings.columns)
    folder = default_cache_dir() / "in_memory"
    data = on_disk({language: settings.pairs}, folder, settings.target_language, columns, "train")
    resolved = resolve_sources(data, target_language=settings.target_language, columns=columns, **links)
    sources = resolved[language]
    if len(sources) > 1:
        raise RecipeError(f"{settings.pairs} matches {len(sources)} files: give one file per run")
    return sources[0]
