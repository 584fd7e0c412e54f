"""Results as a table for people and JSON for programs, each with what is needed to compare or repeat it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("hf-xsent", "torch", "transformers", "tokenizers", "numpy")


def render_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Plain text columns: the first flush left, the others flush right, numbers with two decimals."""
    cells = [[f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(row))
        for row in (list(zip(line, widths, strict=True)) for line in cells)
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def versions() -> dict[str, str]:
    """The packages that a result depends on."""
    return {package: version(package) for package in PACKAGES}


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all: a reader never sees half a file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)
