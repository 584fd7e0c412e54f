"""Data sets of the Hub: which configs one has, its rows and columns, with errors that say what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hf_xsent.errors import DataError


def hub_configs(repo: str) -> list[str]:
    """The names of a data set's configs."""
    import datasets

    try:
        return list(datasets.get_dataset_config_names(repo))
    except Exception as error:  # network, access and naming errors of several libraries
        raise DataError(f"{repo}: neither a folder nor a data set within reach ({_first_line(error)})") from error


def hub_rows(source: str, split: str, streaming: bool = False) -> Any:
    """The rows of one split of ``owner/name:config@revision``, as mappings."""
    import datasets

    name, _, revision = source.partition("@")
    name, _, config = name.partition(":")
    with data_set_errors(source, split):
        return datasets.load_dataset(name, config or None, split=split, revision=revision or None, streaming=streaming)


@contextmanager
def data_set_errors(source: str, split: str) -> Iterator[None]:
    """Raise a ``DataError`` for whatever the libraries raise where a data set cannot be opened."""
    try:
        yield
    except Exception as error:  # network, access and naming errors of several libraries
        raise DataError(
            f"{source}: neither a file nor a data set whose split {split!r} opens ({_first_line(error)})"
        ) from error


def hub_columns(repo: str, config: str, columns: Sequence[str], split: str = "test") -> list[list[Any]]:
    """These columns of one config, each as a list."""
    rows = hub_rows(f"{repo}:{config}", split)
    try:
        return [list(rows[column]) for column in columns]
    except KeyError as error:
        raise DataError(f"{repo}: {config}, split {split}, has no column {error}") from error


def hub_sentences(repo: str, config: str, columns: Sequence[str], split: str = "test") -> list[list[str]]:
    """The same of sentences, all of which must be there."""
    found = hub_columns(repo, config, columns, split)
    for column, values in zip(columns, found, strict=True):
        check_texts(f"{repo}: {config}, split {split}, {column}", values)
    return [[text.strip() for text in values] for values in found]


def check_texts(where: str, values: Sequence[Any]) -> None:
    """Refuse records whose sentence is missing or none."""
    for number, value in enumerate(values, start=1):
        if not isinstance(value, str):
            raise DataError(f"{where}: sentence {number} is no text but {value!r}: mend the record or leave it out")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
