"""Raise an error on SIGTERM that says what a command leaves behind and how it continues."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hf_xsent.errors import Stopped


@contextmanager
def raising_on_sigterm(remains: str) -> Iterator[None]:
    """Raise ``Stopped`` with ``remains`` on SIGTERM, which schedulers and spot machines send before they kill."""
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
