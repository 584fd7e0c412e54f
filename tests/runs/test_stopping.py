from __future__ import annotations

import signal
import threading

import pytest

from hf_xsent.errors import Stopped
from hf_xsent.runs.stopping import raising_on_sigterm


def test_sigterm_raises_an_error_that_says_what_remains() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped, match="stopped by SIGTERM: files remain"), raising_on_sigterm("files remain"):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_threads_leave_signals_alone() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with raising_on_sigterm("files remain"):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
