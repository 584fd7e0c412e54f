"""Start the process of a run, watch it, stop it with ours, and say how it ended."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from hf_xsent.comparison.runs import LOG_FILE, Run
from hf_xsent.errors import Stopped

logger = logging.getLogger(__name__)

_LOOK_EVERY = 0.5  # seconds
STOPPED = "stopped: the same command goes on from here"


def carry_out(run: Run, watch: Callable[[Run], None] = lambda run: None) -> bool:
    """Train and measure the run in a process, which writes to ``log.txt``; return whether it succeeded."""
    run.begin()
    log = run.folder / LOG_FILE
    began_at = log.stat().st_size if log.is_file() else 0
    with log.open("ab") as file:
        code = _watched(
            subprocess.Popen(
                [sys.executable, "-m", "hf_xsent.comparison.process", str(run.folder)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us alone; we ask it to save and end
            ),
            lambda: watch(run),
        )
    if code != 0:
        said = log.read_bytes()[began_at:].decode("utf-8", "replace")
        run.fail(code, _reason(code, said))
        logger.error("%s failed while %s: %s (%s)", run.name, run.doing, _reason(code, said), log)
    return code == 0


def _watched(process: subprocess.Popen[bytes], watch: Callable[[], None]) -> int:
    """Wait for the exit code; whatever ends this process ends that one, too, after it has saved."""
    with process:
        try:
            while process.poll() is None:
                time.sleep(_LOOK_EVERY)
                watch()
        except BaseException:
            process.terminate()
            try:
                process.wait()
            except BaseException:
                process.kill()
                raise
            raise
    return int(process.returncode)


def _reason(code: int, said: str) -> str:
    """Return the sentence of an error of ours, or the last line of any other; signals by name."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"killed by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    ours = [line.partition("hf-xsent: ")[2] for line in lines if "hf-xsent: " in line]
    return (ours or lines or ["it wrote nothing"])[-1]


@contextmanager
def stopped_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM, which spot machines send, into an error of ours that lets the current run save."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped(STOPPED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
