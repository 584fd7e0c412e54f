"""Store lines of text with a checksum, to detect damaged files in work folders."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hf_xsent.files import digest, write_text


def write_with_checksum(path: str | Path, lines: Iterable[str]) -> None:
    """Write the checksum of the lines, then the lines."""
    text = "".join(f"{line}\n" for line in lines)
    write_text(path, f"{digest(text)}\n{text}")


def read_with_checksum(path: str | Path) -> list[str] | None:
    """Return the stored lines, or None if the file is missing or damaged."""
    try:
        checksum, _, text = Path(path).read_bytes().decode("utf-8").partition("\n")
    except (OSError, ValueError):
        return None
    return text.split("\n")[:-1] if digest(text) == checksum else None
