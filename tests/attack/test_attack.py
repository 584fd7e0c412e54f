"""A short form of ``make attack``: few kills with a fixed seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_short_attack_has_no_findings() -> None:
    search = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "tests.attack", "--seed", "0", "--kills", "8"]
    ended = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PYTHONPATH": search}, capture_output=True, text=True, timeout=500
    )
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-3000:]
    assert "kills" in ended.stdout
