"""Read configs, rows and columns of data sets on the Hub."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from os.path import isdir
from pathlib import Path
from typing import Any

from hf_xsent.errors import DataError, HfXsentError, did_you_mean, shortened
from hf_xsent.files import is_hub_id, is_local


def require_hub_id(source: str | PathLike[str], expected: str) -> str:
    """Return ``source`` if it has the form ``owner/name``; else raise a `DataError` that asks for ``expected``."""
    if is_local(fspath(source)):
        raise DataError(f"{fspath(source)} is a {'folder' if isdir(source) else 'file'}: give {expected}")
    if not is_hub_id(fspath(source), owner=True):
        raise DataError(f"no such file or folder: {fspath(source)}; give {expected}, or a data set as owner/name")
    return fspath(source)


def select_names(source: str | PathLike[str], available: Iterable[str], wanted: Iterable[str] | None) -> list[str]:
    """Return the ``wanted`` names, by default all; raise a `DataError` if one is not available."""
    known = list(available)
    names = known if wanted is None else list(dict.fromkeys(wanted))
    for name in names:
        if name not in known:
            raise DataError(f"{fspath(source)} has no {name!r}, only {', '.join(known)}{did_you_mean(name, known)}")
    return names


def hub_configs(repo: str) -> list[str]:
    """Return the names of a data set's configs."""
    import datasets

    with hub_errors(f"{repo}: not a folder, and the data set cannot be opened"):
        return list(datasets.get_dataset_config_names(repo))


def choose_split(place: str, splits: Any, split: str) -> Any:
    """Return this split of a data set, or what stands for it; dev pairs must not be those of training."""
    names = {"test": ["test", "validation", "dev"], "validation": ["validation", "dev"]}.get(split, [split])
    names += [*splits] if split == "test" and len(splits) == 1 else []
    for name in names:
        if name in splits:
            return splits[name]
    raise DataError(
        f"{place} has no split {split!r}, only {', '.join(map(str, splits))}: give the folder or file of one, or its "
        f"rows in Python, such as data[{next(iter(splits), split)!r}]"
    )


def hub_rows(source: str, split: str | None) -> Any:
    """Return the rows of one split of ``owner/name:config@revision`` as mappings; without one, stream all splits."""
    import datasets

    name, _, revision = source.partition("@")
    name, _, config = name.partition(":")
    what = "the data set" if split is None else f"split {split!r} of the data set"
    with hub_errors(f"{source}: not a file, and {what} cannot be opened"):
        options: Any = {"split": split, "revision": revision or None, "streaming": split is None}
        return datasets.load_dataset(name, config or None, **options)


def hub_commit(source: str) -> str:
    """Return the commit of a data set on the Hub; without a network, the last one that was seen; empty if none was."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError

    name, _, revision = source.partition("@")
    options: Any = {"repo_type": "dataset", "revision": revision or None}
    try:  # a file that each new repository has
        return Path(hf_hub_download(name.partition(":")[0], ".gitattributes", **options)).parent.name
    except (OSError, ValueError, HfHubHTTPError):  # what cannot be opened is an error when it is read
        return ""


@contextmanager
def hub_errors(message: str) -> Iterator[None]:
    """Turn every exception but ours into a `DataError` with ``message`` and the exception's first line."""
    try:
        yield
    except HfXsentError:
        raise
    except Exception as error:  # network, access and naming errors of several libraries
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{message} ({reason})") from error


def hub_columns(source: str, columns: Sequence[str], split: str = "test") -> list[list[Any]]:
    """Return columns of one config, ``owner/name:config``, as lists."""
    rows = hub_rows(source, split)
    try:
        return [list(rows[column]) for column in columns]
    except KeyError as error:
        raise DataError(f"{source}, split {split}, has no column {error}") from error


def stripped_texts(place: str, values: Sequence[Any]) -> list[str]:
    """Strip sentences of outer whitespace; raise a `DataError` if one is not a string."""
    for number, value in enumerate(values, start=1):
        if not isinstance(value, str):
            raise DataError(f"{place}: sentence {number} is not text but {shortened(value)}; fix or remove the record")
    return [value.strip() for value in values]
