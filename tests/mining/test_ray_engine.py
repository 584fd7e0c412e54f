from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numbered_words
import numpy as np
import pytest
import torch

from hf_xsent import mine_files
from hf_xsent.errors import MissingExtraError, OutputError
from hf_xsent.mining.ray_engine import RayEngine, _run
from hf_xsent.mining.search import SearchJob
from hf_xsent.runs.store import Store

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: the extra hf-xsent[ray] brings it")


class Words(numbered_words.Words):
    """Writes down what it encodes; its process is killed the first time that a certain sentence comes by."""

    def __init__(self, notes: Path, deadly: str = "") -> None:
        super().__init__()
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
        return super().encode(texts)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import cloudpickle
    import ray

    for module in (sys.modules[__name__], numbered_words):
        ray.cloudpickle.register_pickle_by_value(module)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()
    assert cloudpickle


@needs_ray
def test_a_worker_that_dies_loses_and_doubles_nothing(cluster: None, tmp_path: Path, small_shards: None) -> None:
    (tmp_path / "a.txt").write_text("".join(f"a{i}\n" for i in range(60)))
    (tmp_path / "b.txt").write_text("".join(f"b{i}\n" for i in range(99, 39, -1)))
    files = tmp_path / "a.txt", tmp_path / "b.txt"
    mine_files(*files, tmp_path / "here.tsv", Words(tmp_path / "unused"))
    model = Words(tmp_path / "notes", deadly="a20")
    mine_files(*files, tmp_path / "ray.tsv", model, engine="ray")
    assert (tmp_path / "notes" / "killed").exists()
    assert (tmp_path / "ray.tsv").read_bytes() == (tmp_path / "here.tsv").read_bytes()
    encoded = Counter(line for notes in (tmp_path / "notes").glob("*.txt") for line in notes.read_text().split())
    assert encoded == Counter(f"a{i}" for i in range(60)) + Counter(f"b{i}" for i in range(40, 100))
    assert not list(tmp_path.rglob("*.part"))


@needs_ray
def test_errors_of_a_task_are_raised(cluster: None, tmp_path: Path) -> None:
    def fail(name: str, path: Path) -> None:
        raise OutputError("no room")

    with pytest.raises(OutputError, match="no room"):
        RayEngine()(Store(tmp_path), ["0.npy"], fail, "trying")


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_a_missing_ray_raises(tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=r"hf-xsent\[ray\]"):
        RayEngine()(Store(tmp_path), [], None, "trying")


class _Here:
    """What the engine uses of Ray, in this process."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def remote(self, function: Any) -> Any:
        def options(**asked: Any) -> Any:
            self.asked.append(asked)
            return SimpleNamespace(remote=function)

        return SimpleNamespace(options=options)

    def put(self, job: Any) -> Any:
        return job

    def wait(self, waiting: list[Any]) -> tuple[list[Any], list[Any]]:
        return waiting[:1], waiting[1:]

    def get(self, done: list[Any]) -> None:
        pass


class _Noted(torch.nn.Linear):
    """Writes down where it is moved."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.moves: list[str] = []

    def to(self, device: Any) -> Any:  # type: ignore[override]
        self.moves.append(str(device))
        return self


@pytest.mark.parametrize(("device", "gpus", "there"), [("cuda:3", 1, "cuda"), ("cpu", 0, "cpu")])
def test_a_task_asks_for_a_gpu_to_which_its_model_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, gpus: int, there: str
) -> None:
    ray, moves = _Here(), []

    class Touch:
        model = SimpleNamespace(model=_Noted())

        def __call__(self, name: str, path: Path) -> None:
            moves.append(self.model.model.moves[-1])
            path.touch()

    monkeypatch.setattr(RayEngine, "_connect", lambda self: ray)
    RayEngine(device=device)(Store(tmp_path), ["done.npy"], Touch(), "trying")
    assert ray.asked == [{"num_gpus": gpus}]
    assert moves == [there]


def test_a_search_computes_where_its_worker_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = []
    monkeypatch.setattr(SearchJob, "__call__", lambda job, name, path: devices.append(job.device) or path.touch())
    _run(Store(tmp_path), "0.npz", SearchJob(None, None, 1, 4, 0, "cuda:7"), "cpu")  # type: ignore[arg-type]
    assert devices == ["cpu"]
