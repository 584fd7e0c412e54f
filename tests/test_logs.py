"""Log lines and progress share a terminal; elsewhere progress is a log line now and then."""

from __future__ import annotations

import fcntl
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time

import pytest

from hf_xsent import logs
from hf_xsent.logs import Progress

_PROGRAM = """
import logging, time
import hf_xsent_cli  # without torch
from hf_xsent.logs import Progress, configure_logging
configure_logging()
ours, theirs = logging.getLogger("hf_xsent.training"), logging.getLogger("transformers.trainer")
for number in Progress(range(8), desc="outer", mininterval=0):
    for _ in Progress(range(4), desc="inner", leave=False, mininterval=0):
        time.sleep(0.01)
    ours.info("step %d: loss 0.5", number)
    theirs.error("warning %d", number)
"""


def _screen(written: str) -> list[str]:
    """Return the lines that a terminal shows after these characters; bars move the cursor by CR and ESC [ A."""
    lines, row, column = [""], 0, 0
    for character in re.findall(r"\x1b\[A|.|\n", written.replace("\r\n", "\n\r"), re.DOTALL):
        if character == "\x1b[A":
            row -= 1
        elif character == "\r":
            column = 0
        elif character == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        else:
            line = lines[row].ljust(column)
            lines[row], column = line[:column] + character + line[column + 1 :], column + 1
    return [line.rstrip() for line in lines]


def _on_a_terminal(program: str) -> str:
    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))  # lines, columns
    with subprocess.Popen([sys.executable, "-c", program], stdout=there, stderr=there):
        os.close(there)
        written = b""
        while True:
            try:
                written += os.read(here, 1 << 16)
            except OSError:  # the program has ended
                break
    os.close(here)
    return written.decode()


def test_no_log_line_begins_in_the_middle_of_a_bar() -> None:
    shown = _screen(_on_a_terminal(_PROGRAM))
    wanted = [text for n in range(8) for text in (f"step {n}: loss 0.5", f"error: warning {n}")]
    lines = [line for line in shown if "step" in line or "warning" in line]
    assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in lines] == wanted
    (bar,) = (line for line in shown if "outer" in line)
    assert bar.startswith("outer: 100%") and "8/8" in bar


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_LINES", 0.02)
    caplog.set_level(logging.INFO, "hf_xsent")
    return caplog


def test_off_a_terminal_progress_is_a_log_line_at_intervals(
    often: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in Progress(range(3), desc="encoding", unit=" shards"):
        time.sleep(0.05)
    assert re.fullmatch(r"encoding: 1 of 3 shards, 00:00 elapsed, about 00:00 left", often.messages[0])
    assert [line.split(",")[0] for line in often.messages] == [f"encoding: {n} of 3 shards" for n in (1, 2, 3)]
    assert not "".join(capsys.readouterr())


def test_a_short_a_hidden_bar_and_one_without_a_reader_write_nothing(often: pytest.LogCaptureFixture) -> None:
    list(Progress(range(3)))
    for _ in Progress(range(2), disable=True):
        time.sleep(0.05)
    logging.getLogger("hf_xsent").setLevel(logging.WARNING)
    bar = Progress(range(2))
    for _ in bar:
        time.sleep(0.05)
    assert bar.disable and not often.messages


def test_collected_warnings_are_shown_to_those_who_configured_no_logging() -> None:
    code = (
        "import logging\n"
        "import hf_xsent_cli\n"  # without torch
        "from hf_xsent.logs import collecting_warnings\n"
        "with collecting_warnings() as warnings:\n"
        "    logging.getLogger('hf_xsent.data').warning('a third language')\n"
        "logging.getLogger('hf_xsent.data').warning('after it')\n"
        "assert warnings == ['a third language']"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines() == ["a third language", "after it"]
