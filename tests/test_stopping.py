from __future__ import annotations

import signal
import sys
import time

import pytest

from hf_xsent.errors import Stopped
from hf_xsent.stopping import raising_on_sigterm


class SignalledWhenDeleted:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_is_not_lost_where_python_ignores_errors() -> None:
    before, hook = signal.getsignal(signal.SIGTERM), sys.unraisablehook
    with pytest.raises(Stopped, match="stopped by SIGTERM: files remain"), raising_on_sigterm("files remain"):
        SignalledWhenDeleted()
        time.sleep(30)
    assert signal.getsignal(signal.SIGTERM) == before and sys.unraisablehook is hook
