"""Declare the settings of commands that read sentence pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hf_xsent.settings.declare import setting


@dataclass(frozen=True, kw_only=True)
class BitextSettings:
    """How to read sentence pairs."""

    target_language: str = setting("en", "Language code of the target side, and und if unknown.")
    columns: list[str] | None = setting(
        None,
        "Read these two columns, by name or number. (default: found by header or content)",
        named=True,
        metavar="COLUMN",
    )


@dataclass(frozen=True, kw_only=True)
class PairSettings(BitextSettings):
    """Which file holds the sentence pairs, and how to read it."""

    pairs: Any = setting(
        None,
        "Read sentence pairs from this file: TSV, Moses pairs, TMX, JSONL or Parquet.",
        positional=True,
        required=True,
    )
    language: str = setting("und", "Language code of the source side, and und if unknown.")
