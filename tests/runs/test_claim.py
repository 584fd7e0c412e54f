"""One process at a time holds a claim, which the system releases when the process is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hf_xsent.errors import OutputError
from hf_xsent.runs.claim import CLAIM_FILE, claim, claim_folder

HOLD = """
import sys
import hf_xsent_cli  # without torch
from hf_xsent.runs.claim import claim_folder
with claim_folder(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_in_use_is_refused_until_its_process_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(OutputError, match="is in use by another process: wait until it ends"), claim_folder(tmp_path):
        pass
    with claim(tmp_path / CLAIM_FILE, wait=False) as held:
        assert not held
    holder.kill()
    holder.communicate()
    with claim_folder(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_a_claim_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), claim(tmp_path / "new" / "lock"):
        raise ValueError("no")
    lock = tmp_path / "new" / "lock"
    with claim(lock, wait=False) as held, claim(lock, wait=False) as again:
        assert held and not again


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="file is a file, not a folder"), claim(tmp_path / "file" / "lock"):
        pass
