"""Rows of data sets on the Hub, with errors in one sentence."""

from __future__ import annotations

import re
from typing import Any

from hf_xsent.errors import DataError

_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+(:[\w.-]+)?")


def is_hub_id(source: str) -> bool:
    """Whether this is such as ``owner/name`` or ``owner/name:config``; ask for files first."""
    return _ID.fullmatch(source) is not None


def hub_rows(source: str, split: str) -> Any:
    """The rows of one split of ``owner/name:config``, as mappings."""
    import datasets

    name, _, config = source.partition(":")
    try:
        return datasets.load_dataset(name, config or None, split=split)
    except Exception as error:  # network, access and naming errors of several libraries
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{source}: neither a file nor a data set whose split {split!r} opens ({reason})") from error
