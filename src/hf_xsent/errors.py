"""Define the errors for users: each message says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HfXsentError(Exception):
    """Base of all errors of this package; the command line prints the message and exits with ``exit_code``."""

    exit_code = 2


class DataError(HfXsentError):
    """A data file is missing, malformed or empty after cleaning."""


class ModelError(HfXsentError):
    """A model is incomplete, of an unsupported family, or does not support the operation."""


class RecipeError(HfXsentError):
    """A value of a recipe, flag or config is unknown or out of range."""


class OutputError(HfXsentError):
    """Output cannot be written, or would overwrite existing files."""


class TrainingError(HfXsentError):
    """Training failed: a loss or gradient is NaN or infinite."""


class Stopped(HfXsentError):
    """A signal ended the run; its checkpoint is saved, and --resume continues it."""

    exit_code = 143  # 128 + SIGTERM, so that schedulers restart the run


class Interrupted(Stopped):
    """Ctrl-C ended the run; its checkpoint is saved, and --resume continues it."""

    exit_code = 130  # 128 + SIGINT


class MissingExtraError(HfXsentError):
    """An optional dependency is not installed."""


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """Return the end of an error message: ``; did you mean 'x'?`` or the empty string."""
    close = difflib.get_close_matches(name, list(known), n=count, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(word) for word in close)}?" if close else ""
