"""Raise an error on SIGTERM that says which output remains and how to resume."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hf_xsent.errors import Stopped


@contextmanager
def raising_on_sigterm(remains: str) -> Iterator[None]:
    """Raise ``Stopped`` on SIGTERM, which schedulers send before they kill a process.

    ``remains`` describes, for the message, the output that remains and how to resume.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise Stopped(f"stopped by SIGTERM: {remains}")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
