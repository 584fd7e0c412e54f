from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_xsent.data import sentences
from hf_xsent.mining.pipeline import mine_files

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_stopping

files, replace = [], Path.replace
def counted(self, target):
    files.append(target)
    if len(files) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)  # all is written, but not in its place
    return replace(self, target)
Path.replace = counted
test_stopping.sentences.ROWS_PER_BATCH = 8
test_stopping.mine(Path(sys.argv[3]))
"""


class Words:
    def encode(self, texts: list[str]) -> np.ndarray:
        rows = []
        for text in texts:
            meaning = np.random.default_rng(int(text[1:])).standard_normal(16)
            rows.append(meaning + 0.2 * np.random.default_rng(ord(text[0]) * 1000 + int(text[1:])).standard_normal(16))
        return np.array(rows, dtype=np.float32)


def mine(folder: Path) -> None:
    files = folder.parent / "a.txt", folder.parent / "b.txt"
    mine_files(*files, folder / "out.tsv", Words(), {"model": "words"}, folder / "work")


# Two files of sentences a side, two claims, four shards of vectors a side, a claim, four of neighbours, the pairs.
@pytest.mark.slow
@pytest.mark.parametrize(("file", "shards"), [(2, 0), (4, 0), (7, 2), (12, 7), (15, 9), (18, 12)])
def test_a_run_that_is_killed_continues_to_the_same_end(
    file: int, shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL before some file is put in its place: no half is taken for whole, and no whole one is made again."""
    monkeypatch.setattr(sentences, "ROWS_PER_BATCH", 8)
    (tmp_path / "a.txt").write_text("".join(f"a{i}\n" for i in range(30)))
    (tmp_path / "b.txt").write_text("".join(f"b{i}\n" for i in range(40, 15, -1)))
    mine(tmp_path / "whole")
    killed = tmp_path / "killed"
    arguments = [str(Path(__file__).parent), str(file), str(killed)]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (killed / "out.tsv").exists()

    def made() -> dict[Any, int]:
        return {path: os.stat(path).st_mtime_ns for path in killed.rglob("*.np[yz]")}

    before = made()
    assert len(before) == shards
    mine(killed)
    assert {path: time for path, time in made().items() if path in before} == before
    assert (killed / "out.tsv").read_bytes() == (tmp_path / "whole" / "out.tsv").read_bytes()
    assert not [path for path in killed.rglob("*.part") if path.suffix == ".part" and "made-from" not in path.name]
