"""Write log lines and progress to standard error, so that no line begins in the middle of a progress bar."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

from tqdm import tqdm

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 30.0
_LINE = "{desc}: {n_fmt} of {total_fmt}{unit}, {elapsed} elapsed, about {remaining} left"


def configure_logging(verbose: bool = False) -> None:
    """Show log lines of this package; show those of other libraries only if ``verbose``."""
    import transformers

    handler = TqdmHandler()
    handler.setFormatter(_Formatter("%(asctime)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])  # no effect if the program has its own handlers
    logging.getLogger("hf_xsent").setLevel(logging.INFO)
    logging.getLogger("huggingface_hub").setLevel(logging.INFO if verbose else logging.ERROR)
    transformers.logging.disable_default_handler()  # it would write into the bars
    transformers.logging.enable_propagation()
    if verbose:
        transformers.logging.set_verbosity_info()
    else:
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()


@contextmanager
def quiet() -> Iterator[None]:
    """Show only warnings and errors in the block."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.INFO))
    try:
        yield
    finally:
        logging.disable(before)


class _Formatter(logging.Formatter):
    """Format the time and the message; that of a warning begins with this word."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        level = f"{record.levelname.lower()}: " if record.levelno > logging.INFO else ""
        return f"{super().formatMessage(record)} {level}{record.message}"


class TqdmHandler(logging.Handler):
    """Write log lines to standard error, above the progress bars that are on it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Clear the bars, write the line, and draw the bars again."""
        try:
            tqdm.write(self.format(record), file=sys.stderr)
        except Exception:
            self.handleError(record)


class _Collector(logging.Handler):
    """Collect the warnings that this thread logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings: list[str] = []
        self._thread = get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Add the text of a warning."""
        if record.thread == self._thread:
            self.warnings.append(record.getMessage())


@contextmanager
def collecting_warnings() -> Iterator[list[str]]:
    """Yield a list of the warnings of this package in the block, to be stored with a result and repeated with it."""
    collector, ours = _Collector(), logging.getLogger("hf_xsent")
    usual = None if ours.hasHandlers() else logging.lastResort  # which shows warnings if there is no handler
    handlers = [collector, *([usual] if usual else [])]
    for handler in handlers:
        ours.addHandler(handler)
    try:
        yield collector.warnings
    finally:
        for handler in handlers:
            ours.removeHandler(handler)


class Progress(tqdm):
    """A progress bar if standard error is a terminal; elsewhere a log line about every 30 seconds.

    ``disable=True`` shows neither bar nor lines.
    """

    def __init__(self, *args: Any, disable: bool | None = None, **options: Any) -> None:
        self._in_lines = not sys.stderr.isatty()
        if self._in_lines:
            disable = disable or not logger.isEnabledFor(logging.INFO)
            options |= dict.fromkeys(("mininterval", "maxinterval", "delay"), SECONDS_BETWEEN_LINES)
            options |= {"file": io.StringIO(), "bar_format": _LINE}
        options["disable"] = bool(disable)
        super().__init__(*args, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draw the bar, or log a line; an empty ``msg`` clears the bar."""
        if not self._in_lines:
            super().display(msg, pos)
        elif msg is None and self.n > self.last_print_n:  # `close` displays the last state again
            logger.info("%s", str(self))
