"""The errors a user may meet: each carries one sentence that names what is wrong and how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class HfXsentError(Exception):
    """Base of every error that the command line answers with one sentence and its exit code."""

    exit_code = 2


class DataError(HfXsentError):
    """A bitext or benchmark file is missing, misread or empty after cleaning."""


class ModelError(HfXsentError):
    """A model folder is incomplete, of an unknown family, or does not fit what is asked of it."""


class RecipeError(HfXsentError):
    """A recipe, flag or config value is unknown or out of range."""


class OutputError(HfXsentError):
    """Writing failed, or would destroy something the user had."""


class TrainingError(HfXsentError):
    """A run broke on the way: a loss or gradient that is NaN or infinite."""


class Stopped(HfXsentError):
    """A signal ended the run, which is saved and may go on."""

    exit_code = 143  # as the shell counts SIGTERM, so that schedulers start it again


class MissingExtraError(HfXsentError):
    """An optional dependency is not installed."""


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """A hint that ends an error message: ``; did you mean 'x'?`` or the empty string."""
    close = difflib.get_close_matches(name, list(known), n=count, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(word) for word in close)}?" if close else ""
