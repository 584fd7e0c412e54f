"""Tables of the Hub: which configs a data set has, and columns of one, with errors that say what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hf_xsent.errors import DataError


def is_hub_id(source: str) -> bool:
    """Whether this is owner/name, not a path."""
    return source.count("/") == 1 and not source.startswith((".", "~", "/"))


def hub_configs(repo: str) -> list[str]:
    """The names of a data set's configs."""
    import datasets

    try:
        return list(datasets.get_dataset_config_names(repo))
    except Exception as error:  # network, access and naming errors of several libraries
        raise DataError(f"{repo}: neither a folder nor a data set within reach ({_first_line(error)})") from error


def hub_columns(repo: str, config: str, columns: Sequence[str], split: str = "test") -> list[list[Any]]:
    """These columns of one config, each as a list."""
    import datasets

    try:
        data = datasets.load_dataset(repo, config, split=split)
        return [list(data[column]) for column in columns]
    except Exception as error:
        named = f"{', '.join(columns[:-1])} and {columns[-1]}"
        raise DataError(f"{repo}: cannot read {named} of {config}, split {split} ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
