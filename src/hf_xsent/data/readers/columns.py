"""Find the source and target columns of JSON objects, Parquet files and data sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hf_xsent.data.languages import find_language
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import DataError, nearest


def choose_columns(source: BitextSource, names: list[str]) -> tuple[str, str]:
    """Return the source and target columns: as stated, or named by language, OPUS style, or source and target."""
    return (
        _choose(source, names, source.source_column, [*_usual(source.language), "source"], "source_column"),
        _choose(source, names, source.target_column, [*_usual(source.target_language), "target"], "target_column"),
    )


def _usual(code: str) -> list[str]:
    """List common column names for a language."""
    language = find_language(code)
    return [prefix + name for prefix in ("", "translation.") for name in (code, language.code, language.iso3)]


def _choose(source: BitextSource, names: list[str], stated: int | str | None, usual: list[str], option: str) -> str:
    if isinstance(stated, int):
        if stated < len(names):
            return names[stated]
        raise DataError(f"{source.path}: no column number {stated} (from 0), only {', '.join(names)}")
    if stated is not None:
        if stated in names:
            return stated
        raise DataError(f"{source.path}: no column {stated!r}, only {', '.join(names)}{nearest(stated, names)}")
    found = next((name for name in usual if name in names), None)
    if found is None:
        raise DataError(f"{source.path}: cannot choose among the columns {', '.join(names)}; state {option}")
    return found


def record_names(record: dict[str, Any], prefix: str = "") -> list[str]:
    """List the keys of a record, nested ones with dots."""
    names: list[str] = []
    for key, value in record.items():
        names += record_names(value, f"{prefix}{key}.") if isinstance(value, dict) else [prefix + key]
    return names


def schema_names(fields: Iterable[Any], prefix: str = "") -> list[str]:
    """List the columns of an Arrow schema or struct, nested ones with dots."""
    import pyarrow as pa

    names: list[str] = []
    for field in fields:
        nested = pa.types.is_struct(field.type)
        names += schema_names(field.type, f"{prefix}{field.name}.") if nested else [prefix + field.name]
    return names


def record_value(record: dict[str, Any], name: str) -> Any:
    """Look up a dotted name, None if it is missing; a key with a dot in it takes precedence."""
    if name in record:
        return record[name]
    value: Any = record
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
