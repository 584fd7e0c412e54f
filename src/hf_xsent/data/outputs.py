"""What is written: whether it can be is told before hours of work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from hf_xsent.errors import OutputError


def check_writable(path: str | Path, others: Iterable[str | Path] = ()) -> None:
    """A file that can be written and is none of the ``others``; its folder is made where there is none."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise OutputError(f"{path} cannot be written: name a file in a folder of yours")
    if path.resolve() in [Path(one).resolve() for one in others]:
        raise OutputError(f"{path} is an input or another output, which would be lost: give this one another name")
