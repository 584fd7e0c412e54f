"""Open the sentence pairs of a command, in files or in memory, and store them for its jobs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_xsent.data.bitext import Bitext, Pair, load_bitext
from hf_xsent.data.languages import language_of_tag
from hf_xsent.data.pair_settings import PairSettings
from hf_xsent.data.readers.columns import parse_columns
from hf_xsent.data.readers.formats import has_languages
from hf_xsent.data.readers.in_memory import is_in_memory
from hf_xsent.data.readers.resolving import resolve_sources
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import RecipeError
from hf_xsent.runs.identity import identify_files

logger = logging.getLogger(__name__)


def open_pairs(settings: PairSettings) -> BitextSource:
    """Return the source of these pairs."""
    columns = parse_columns(settings.columns)
    _refuse_language(settings.pairs)
    data = {settings.language: settings.pairs}
    resolved = resolve_sources(data, target_language=settings.target_language, columns=columns)
    sources = [source for of_language in resolved.values() for source in of_language]
    if len(sources) > 1:
        raise RecipeError(f"{settings.pairs} matches {len(sources)} files: give one file per run")
    if sources[0].language == "und" and has_languages(sources[0]):
        logger.warning(
            "%s: its column of languages is not in the output: run once for each language, as by --language de",
            sources[0].name,
        )
    return sources[0]


def _refuse_language(pairs: Any) -> None:
    """Raise an error for the form of training data, a language before its pairs."""
    code = ""
    if isinstance(pairs, str) and "=" in pairs and not Path(pairs).exists():
        code = pairs.partition("=")[0]
    elif isinstance(pairs, Mapping) and not is_in_memory(pairs):
        code = str(next(iter(pairs), ""))
    if language_of_tag(code):
        raise RecipeError(f"pairs are one file, or pairs in memory: give {code!r} as language, without {code}=")


def store_pairs(sources: Mapping[str, Sequence[BitextSource]], folder: Path) -> Bitext:
    """Read all pairs once, without cleaning, and store them; raise an error at a bad row."""
    files = [path for of_language in sources.values() for source in of_language for path in source.files]
    return load_bitext(sources, cleaning=None, cache_dir=folder / identify_files(files))


def record_of(pair: Pair) -> dict[str, Any]:
    """Return a pair as JSONL has it, whose language is that of the file."""
    return {name: value for name, value in pair.items() if name != "language"}
