"""Define the errors for users: each message says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

# Line ends would break a message into several, other control characters could change a terminal.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_COMMAND_OR_DASHES = re.compile(
    r"(\b(?:torchrun|(?:hf|hf-xsent|ray) [a-z-]+)(?: (?:--\S+|[A-Z\d]+))+)|(?<![\w-])--(?=[a-z_])"
)
_names_flags = ContextVar("names_flags", default=False)


def without_dashes(text: str) -> str:
    """Name settings as arguments (data), which a text names as flags (--data), except in a command."""
    return _COMMAND_OR_DASHES.sub(lambda match: match[1] or "", text)


@contextmanager
def naming_flags() -> Iterator[None]:
    """Name settings as flags in the errors of the block (--data); elsewhere, they are arguments (data)."""
    token = _names_flags.set(True)
    try:
        yield
    finally:
        _names_flags.reset(token)


class HfXsentError(Exception):
    """Base of all errors of this package; the command line prints the message and exits with ``exit_code``.

    Messages name settings as flags, which become argument names unless `naming_flags` surrounds the call.

    >>> print(HfXsentError("no bitext: give --data"))
    no bitext: give data
    """

    exit_code = 2

    def __init__(self, message: object = "") -> None:
        text = _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], str(message))
        super().__init__(text if _names_flags.get() else without_dashes(text))


class DataError(HfXsentError):
    """A data file is missing, malformed or empty after cleaning."""


class ModelError(HfXsentError):
    """A model is incomplete, of an unsupported family, or does not support the operation."""


class UnsupportedModuleError(ModelError):
    """A folder of sentence-transformers has a module or an option that this package does not support."""


class RecipeError(HfXsentError):
    """A value of a recipe, flag or config is unknown or out of range."""


class OutputError(HfXsentError):
    """Output cannot be written, or would overwrite existing files."""


class TrainingError(HfXsentError):
    """Training failed: a loss or gradient is NaN or infinite, or a score fell by more than is allowed."""


class Stopped(HfXsentError):
    """A signal ended the run; its checkpoint is saved, and --resume continues it."""

    exit_code = 143  # 128 + SIGTERM, so that schedulers restart the run


class Interrupted(Stopped):
    """Ctrl-C ended the run; its checkpoint is saved, and --resume continues it."""

    exit_code = 130  # 128 + SIGINT


class MissingExtraError(HfXsentError):
    """An optional dependency is not installed."""


def import_extra(extra: str, purpose: str, *modules: str) -> Any:
    """Import the modules of an extra and return the first; raise an error that says how to install them."""
    try:
        return [import_module(module) for module in modules][0]
    except ImportError as error:
        install = f'pip install "hf-xsent[{extra}]", in a clone ".[{extra}]"'
        raise MissingExtraError(f"{purpose} needs an extra: {install}") from error


def shortened(value: Any, longest: int = 100) -> str:
    """Return the repr of a value, cut for an error message; of a table, such as a data frame, its type."""
    text = repr(value[: longest + 1] if isinstance(value, str) else value)
    if "\n" in text:
        return f"a {type(value).__name__}"
    return text if len(text) <= longest else f"{text[:longest]}…"


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    """Return ``; did you mean 'x'?`` for the names similar to an unknown one, or the empty string."""
    close = difflib.get_close_matches(str(name), map(str, known))
    return f"; did you mean {' or '.join(repr(word) for word in close)}?" if close else ""
