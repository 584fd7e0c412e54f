"""Raise an error on SIGTERM that says which output remains and how to resume."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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

    def repeat(ignored: Any) -> None:
        """Send the signal again if its error was raised where Python ignores errors, such as in ``__del__``."""
        if isinstance(ignored.exc_value, Stopped):
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        else:
            hook(ignored)

    before, hook = signal.signal(signal.SIGTERM, stop), sys.unraisablehook
    sys.unraisablehook = repeat
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGTERM, before)
