from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hf_xsent.data import sentences
from hf_xsent.errors import MissingExtraError, OutputError
from hf_xsent.mining.pipeline import mine_files
from hf_xsent.mining.ray_engine import RayEngine

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: the extra hf-xsent[ray] brings it")


class Words:
    """Writes down what it encodes; its process is killed the first time that a certain sentence comes by."""

    def __init__(self, notes: Path, deadly: str = "") -> None:
        self.notes, self.deadly = notes, deadly
        self.home = os.getpid()

    def encode(self, texts: list[str]) -> np.ndarray:
        if os.getpid() != self.home:
            self.notes.mkdir(exist_ok=True)
            if self.deadly in texts and not (self.notes / "killed").exists():
                (self.notes / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            with (self.notes / f"{os.getpid()}.txt").open("a") as file:
                file.writelines(f"{text}\n" for text in texts)
        return np.array([np.random.default_rng(int(text[1:])).standard_normal(16) for text in texts], dtype=np.float32)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import cloudpickle
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()
    assert cloudpickle


@needs_ray
def test_a_worker_that_dies_loses_and_doubles_nothing(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentences, "ROWS_PER_BATCH", 16)
    (tmp_path / "a.txt").write_text("".join(f"a{i}\n" for i in range(60)))
    (tmp_path / "b.txt").write_text("".join(f"b{i}\n" for i in range(99, 39, -1)))
    files = tmp_path / "a.txt", tmp_path / "b.txt"
    mine_files(*files, tmp_path / "here.tsv", Words(tmp_path / "unused"), {"model": "words"}, tmp_path / "here")
    model = Words(tmp_path / "notes", deadly="a20")
    mine_files(*files, tmp_path / "ray.tsv", model, {"model": "words"}, tmp_path / "work", run=RayEngine())
    assert (tmp_path / "notes" / "killed").exists()
    assert (tmp_path / "ray.tsv").read_bytes() == (tmp_path / "here.tsv").read_bytes()
    encoded = Counter(line for notes in (tmp_path / "notes").glob("*.txt") for line in notes.read_text().split())
    assert encoded == Counter(f"a{i}" for i in range(60)) + Counter(f"b{i}" for i in range(40, 100))
    assert not list(tmp_path.rglob("*.part"))


@needs_ray
def test_what_a_task_raises_is_told(cluster: None, tmp_path: Path) -> None:
    class Nowhere:
        path = tmp_path / "nowhere.npy"

        def run(self, model: object) -> None:
            raise OutputError("no room")

    with pytest.raises(OutputError, match="no room"):
        RayEngine()([Nowhere()], "trying")


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_a_missing_ray_is_told() -> None:
    with pytest.raises(MissingExtraError, match=r"hf-xsent\[ray\]"):
        RayEngine()([], "trying")
