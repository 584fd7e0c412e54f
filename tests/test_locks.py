"""One process at a time writes a locked file or folder, and a folder names what it was made from."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent import locks
from hf_xsent.errors import OutputError

HOLDING = """
import sys
import hf_xsent_cli  # without torch
from hf_xsent import locks
with locks.lock(sys.argv[1], "taken: wait"):
    pass
"""


def test_a_lock_that_is_held_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDING, str(tmp_path / "new" / "lock")]
    with locks.lock(tmp_path / "new" / "lock"):
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "OutputError: taken: wait" in refused.stderr
    assert subprocess.run(command, check=False).returncode == 0


def test_try_lock_yields_whether_the_lock_is_held(tmp_path: Path) -> None:
    with locks.try_lock(tmp_path / "new" / "lock") as held:
        assert held
        with locks.try_lock(tmp_path / "new" / "lock") as again:
            assert not again
    with locks.try_lock(tmp_path / "new" / "lock") as held:
        assert held


HOLD = """
import sys
import hf_xsent_cli  # without torch
from hf_xsent.locks import lock_folder
with lock_folder(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_that_is_held_names_its_process_until_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    said = rf"in use by process {holder.pid} on {re.escape(socket.gethostname())}, since \d{{4}}-.*: wait until it ends"
    with pytest.raises(OutputError, match=said), locks.lock_folder(tmp_path):
        pass
    with pytest.raises(OutputError, match=said):
        locks.check_not_locked(tmp_path)
    holder.kill()
    holder.communicate()
    assert any(tmp_path.iterdir())
    locks.check_not_locked(tmp_path)
    assert not any(tmp_path.iterdir()), "the lock of a killed process is deleted"
    with locks.lock_folder(tmp_path):
        pass
    assert not any(tmp_path.iterdir())


def test_looking_whether_a_folder_is_held_creates_nothing(tmp_path: Path) -> None:
    locks.check_not_locked(tmp_path)
    locks.check_not_locked(tmp_path / "none")
    assert not any(tmp_path.iterdir())


STAMPS = st.dictionaries(st.sampled_from(["model", "length", "dtype"]), st.integers(0, 2) | st.text(max_size=2))


@given(STAMPS, STAMPS)
def test_a_folder_takes_its_own_stamp_and_no_other(first: dict[str, object], second: dict[str, object]) -> None:
    with TemporaryDirectory() as folder:
        work = Path(folder) / "work"
        locks.stamp_folder(work, first, "vectors", "give another folder")
        locks.stamp_folder(work, first, "vectors", "give another folder")
        if first == second:
            locks.stamp_folder(work, second, "vectors", "give another folder")
        else:
            with pytest.raises(OutputError, match="holds vectors of another .*: give another folder, or delete it"):
                locks.stamp_folder(work, second, "vectors", "give another folder")
