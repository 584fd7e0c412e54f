from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import json, os, signal, sys
from pathlib import Path
import numpy as np, torch
from hf_xsent.data import sentences
from hf_xsent.mining.pipeline import mine_files

torch.set_num_threads(1)
sentences.ROWS_PER_BATCH = 8

class Words:
    def encode(self, texts):
        rows = []
        for text in texts:
            meaning = np.random.default_rng(int(text[1:])).standard_normal(16)
            rows.append(meaning + 0.2 * np.random.default_rng(ord(text[0]) * 1000 + int(text[1:])).standard_normal(16))
        return np.array(rows, dtype=np.float32)

def run(folder, kill_at=None):
    # The run in a process of its own, killed before the file number kill_at is put in its place.
    child = os.fork()
    if child == 0:
        count, replace = [0], Path.replace
        def counted(self, target):
            count[0] += 1
            if count[0] == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return replace(self, target)
        Path.replace = counted
        mine_files("a.txt", "b.txt", folder / "out.tsv", Words(), {"model": "words"}, folder / "work")
        (folder / "count").write_text(str(count[0]))
        os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])

def shards(folder):
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*.np[yz]")}

whole = Path("whole"); whole.mkdir()
assert run(whole) == 0
expected, told = (whole / "out.tsv").read_bytes(), []
for kill_at in range(1, int((whole / "count").read_text()) + 1):
    folder = Path(f"killed-{kill_at}"); folder.mkdir()
    killed = run(folder, kill_at) == signal.SIGKILL
    there, half = shards(folder), (folder / "out.tsv").exists()
    again = run(folder)
    kept = all(shards(folder)[path] == time for path, time in there.items())
    left = [path.name for path in folder.rglob("*part*")]
    told.append([killed, half, again, kept, left, (folder / "out.tsv").read_bytes() == expected, len(there)])
print(json.dumps(told))
"""


def test_a_run_that_is_killed_anywhere_goes_on_to_the_same_end(tmp_path: Path) -> None:
    """SIGKILL before each file is put in its place: nothing half is taken for whole, nothing that was whole done again."""
    (tmp_path / "a.txt").write_text("".join(f"a{i}\n" for i in range(30)))
    (tmp_path / "b.txt").write_text("".join(f"b{i}\n" for i in range(40, 15, -1)))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told) == 4 + 3 + 4 + 4 + 4 + 1, "sentences, claims, vectors of both sides, neighbours, the pairs"
    assert max(shards for *_, shards in told) == 12
    for killed, half, again, kept, left, same, _ in told:
        assert killed and not half
        assert again == 0 and kept and same
        assert left == []
