"""A store computes each result once, never shows half of one, and refuses results of other settings."""

from __future__ import annotations

import multiprocessing
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

from hf_xsent.errors import OutputError, RecipeError
from hf_xsent.runs.engines import engine
from hf_xsent.runs.store import Store
from hf_xsent.settings.common import WorkSettings


def never(*_: object) -> None:
    raise AssertionError("computed again")


def test_a_result_is_computed_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.get("a.txt", lambda part: part.write_text("1"), Path.read_text) == "1"
    assert Store(tmp_path).get("a.txt", never, Path.read_text) == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_result_may_be_a_folder_or_lie_in_a_subfolder(tmp_path: Path) -> None:
    def write(part: Path) -> None:
        part.mkdir()
        (part / "counts.json").write_text("{}")

    store = Store(tmp_path)
    assert store.get("vectors/de", write, lambda path: (path / "counts.json").read_text()) == "{}"
    assert store.missing(["vectors/de", "vectors/fr"]) == ["vectors/fr"]


def test_a_failed_computation_leaves_nothing_and_is_repeated(tmp_path: Path) -> None:
    def fail(part: Path) -> None:
        part.write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        Store(tmp_path).compute("a.txt", fail)
    assert not list(tmp_path.glob("a.txt*part")) and Store(tmp_path).missing(["a.txt"]) == ["a.txt"]
    assert Store(tmp_path).get("a.txt", lambda part: part.write_text("1"), Path.read_text) == "1"


def test_what_a_killed_process_left_is_replaced_or_continued(tmp_path: Path) -> None:
    (tmp_path / "a.txt.part").write_text("left ")

    def append(part: Path) -> None:
        with part.open("a") as file:
            file.write("new")

    assert Store(tmp_path).get("a.txt", append, Path.read_text) == "new"
    (tmp_path / "b.txt.part").write_text("left ")
    assert Store(tmp_path).get("b.txt", append, Path.read_text, resumes=True) == "left new"


def test_a_damaged_result_is_named_with_the_cure(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.compute("a.npy", lambda part: part.write_bytes(b"\x93NUMPY damaged"))
    with pytest.raises(OutputError, match=r"a\.npy is missing or damaged .*: delete it"):
        store.read("a.npy", np.load)


def test_results_of_other_settings_are_refused_in_one_sentence(tmp_path: Path) -> None:
    Store(tmp_path, {"model": "a", "languages": ("de", "en")})
    Store(tmp_path, {"languages": ["de", "en"], "model": "a"})
    with pytest.raises(OutputError, match=r"was made with model a, not b: give another folder, or delete it"):
        Store(tmp_path, {"model": "b", "languages": ("de", "en")})
    with pytest.raises(OutputError, match="prompt None, not query"):
        Store(tmp_path, {"model": "a", "languages": ("de", "en"), "prompt": "query"})


def write_slowly(name: str, part: Path) -> None:
    time.sleep(0.05)
    part.write_text(str(multiprocessing.current_process().pid))


def fill(store: Store) -> None:
    store.fill([f"{number}.txt" for number in range(12)], write_slowly, "filling")


def test_processes_share_the_results(tmp_path: Path) -> None:
    store = pickle.loads(pickle.dumps(Store(tmp_path, {"model": "a"})))
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=fill, args=(store,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    writers = {(tmp_path / f"{number}.txt").read_text() for number in range(12)}
    assert writers == {str(process.pid) for process in processes}
    assert not [*tmp_path.glob("*.txt.*")]


def test_settings_of_a_ray_cluster_need_its_engine() -> None:
    with pytest.raises(RecipeError, match="add engine ray"):
        engine(WorkSettings(output="pairs.tsv", worker_cpus=2))
    assert engine(WorkSettings(output="pairs.tsv")) is Store.fill
