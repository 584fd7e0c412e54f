"""Stores are filled on a real Ray cluster of this machine, also if workers, nodes and the driver are killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numbered_words
import numpy as np
import pyarrow.parquet as pq
import pytest

from hf_xsent import (
    Encoder,
    SentenceEmbedder,
    align_document_files,
    align_words,
    mine_files,
    mine_negatives,
    score_pairs,
)
from hf_xsent.data import sentences
from hf_xsent.errors import OutputError
from hf_xsent.runs.engines import RayEngine
from hf_xsent.runs.store import Store

if "PYTEST_XDIST_WORKER" in os.environ:
    pytest.skip("make test-ray runs these tests on one cluster", allow_module_level=True)
ray = pytest.importorskip("ray", reason="the extra hf-xsent[ray] is not installed")
pytestmark = pytest.mark.slow


class Words(numbered_words.Words):
    """Notes what it encodes in other processes; its process is killed once when it encodes ``deadly``."""

    def __init__(self, notes: Path, deadly: str = "") -> None:
        super().__init__()
        self.notes, self.deadly, self.home = notes, deadly, os.getpid()

    def encode(self, texts: list[str]) -> np.ndarray:
        if os.getpid() != self.home:
            self.notes.mkdir(exist_ok=True)
            if self.deadly in texts and not (self.notes / "killed").exists():
                (self.notes / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            with (self.notes / f"{os.getpid()}.txt").open("a") as file:
                file.writelines(f"{text}\n" for text in texts if text[1:].isdecimal())
        return super().encode(texts)


def _encoded(notes: Path) -> Counter[str]:
    return Counter(line for file in notes.glob("*.txt") for line in file.read_text().split())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one core each, of which the second may leave."""
    from ray.cluster_utils import Cluster

    for module in (sys.modules[__name__], numbered_words):
        ray.cloudpickle.register_pickle_by_value(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # other programs may use the memory of this machine
        started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        started.second = started.add_node(num_cpus=1)
        ray.init(address=started.address, log_to_driver=False, configure_logging=False)
        yield started
        ray.shutdown()
        started.shutdown()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setattr(sentences, "ROWS_PER_BATCH", 16)
    (tmp_path / "a.txt").write_text("".join(f"a{i}\n" for i in range(60)))
    (tmp_path / "b.txt").write_text("".join(f"b{i}\n" for i in range(99, 39, -1)))
    return tmp_path / "a.txt", tmp_path / "b.txt"


ALL = Counter(f"a{i}" for i in range(60)) + Counter(f"b{i}" for i in range(40, 100))


@pytest.mark.parametrize("index", [None, "IVF4,Flat"])
def test_mining_survives_a_killed_worker(
    cluster: Any, files: tuple[Path, Path], tmp_path: Path, index: str | None
) -> None:
    if index is not None:
        pytest.importorskip("faiss")
    mine_files(*files, tmp_path / "here.tsv", Words(tmp_path / "unused"), index=index)
    mine_files(*files, tmp_path / "ray.tsv", Words(tmp_path / "notes", "a20"), index=index, engine="ray")
    assert (tmp_path / "notes" / "killed").exists()
    assert (tmp_path / "ray.tsv").read_bytes() == (tmp_path / "here.tsv").read_bytes()
    assert _encoded(tmp_path / "notes") == ALL
    assert len(list((tmp_path / "notes").glob("*.txt"))) <= 3, "two workers and a replacement encode both sides"
    assert not list(tmp_path.rglob("*.part"))


def test_all_commands_that_resume_give_the_same_results(
    cluster: Any, tmp_path: Path, encoder_folders: dict[str, Path], pairs: list[tuple[str, str]]
) -> None:
    model = str(encoder_folders["bert"])
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    for side, name in enumerate(("de.txt", "en.txt")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    outputs = []
    for engine in ("local", "ray"):
        folder, options = tmp_path / engine, {"engine": engine, "device": "cpu"}
        folder.mkdir()
        score_pairs(tmp_path / "pairs.tsv", folder / "scored.tsv", model, **options)
        align_words(tmp_path / "pairs.tsv", folder / "links.jsonl", model=model, **options)
        align_document_files(tmp_path / "de.txt", tmp_path / "en.txt", folder / "aligned.tsv", model, **options)
        mine_negatives({"de": tmp_path / "pairs.tsv"}, folder / "negatives", model, **options)
        names = ("scored.tsv", "links.jsonl", "aligned.tsv", "negatives/de.jsonl")
        outputs.append([(folder / name).read_bytes() for name in names])
    assert outputs[0] == outputs[1]


def test_errors_of_a_worker_are_raised_and_its_other_results_stay(cluster: Any, tmp_path: Path) -> None:
    def write(name: str, path: Path) -> None:
        path.write_bytes(bytes(1 << 17))
        if name == "full.npy":
            raise OSError(errno.ENOSPC, "No space left on device")

    names = ["0.npy", "full.npy"]
    RayEngine()(Store(tmp_path), names[:1], write, "writing")
    with pytest.raises(OSError, match="No space left on device: .*full.npy"):
        RayEngine()(Store(tmp_path), names, write, "writing")
    assert [path.name for path in tmp_path.glob("*.npy*") if path.suffix != ".lock"] == ["0.npy"]


def test_a_result_that_kills_every_worker_is_named(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"Ray workers died computing .*deadly\.npy"):
        RayEngine()(Store(tmp_path), ["deadly.npy"], lambda *_: os.kill(os.getpid(), signal.SIGKILL), "writing")


def test_a_node_that_leaves_is_replaced_by_the_others(cluster: Any, tmp_path: Path) -> None:
    def write(name: str, path: Path) -> None:
        time.sleep(0.5)
        path.write_text(name)

    names = [f"{number}.txt" for number in range(24)]

    def leave() -> None:
        while len(list(tmp_path.glob("*.txt"))) < 4:
            time.sleep(0.1)
        cluster.remove_node(cluster.second, allow_graceful=False)

    thread = threading.Thread(target=leave)
    thread.start()
    RayEngine()(Store(tmp_path), names, write, "writing")
    thread.join()
    cluster.second = cluster.add_node(num_cpus=1)
    assert {*names} == {path.name for path in tmp_path.glob("*.txt")} and not list(tmp_path.glob("*.part"))


DRIVER = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
import numbered_words, ray, test_engines
from hf_xsent import mine_files
from hf_xsent.data import sentences
sentences.ROWS_PER_BATCH = 16
for module in (test_engines, numbered_words):
    ray.cloudpickle.register_pickle_by_value(module)
folder = Path(sys.argv[3])
mine_files(folder / "a.txt", folder / "b.txt", folder / "ray.tsv", test_engines.Words(folder / "notes"),
           engine="ray", address=sys.argv[4])
"""


def test_a_driver_that_is_killed_continues(cluster: Any, files: tuple[Path, Path], tmp_path: Path) -> None:
    mine_files(*files, tmp_path / "here.tsv", Words(tmp_path / "unused"))
    paths = [str(Path(__file__).parent), str(Path(numbered_words.__file__).parent)]
    driver = [sys.executable, "-c", DRIVER, *paths, str(tmp_path), cluster.address]
    first = subprocess.Popen(driver, stderr=subprocess.PIPE)
    while not list((tmp_path / "ray.tsv.work").rglob("*.npy")) and first.poll() is None:
        time.sleep(0.05)
    first.kill()
    assert first.wait() == -signal.SIGKILL, first.stderr
    assert not (tmp_path / "ray.tsv").exists()
    done = subprocess.run(driver, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ray.tsv").read_bytes() == (tmp_path / "here.tsv").read_bytes()
    assert max(_encoded(tmp_path / "notes").values()) <= 2, "at most the shards at work were encoded again"


def test_a_data_set_of_ray_is_encoded_by_a_pool(
    cluster: Any, tmp_path: Path, encoder_folders: dict[str, Path], pairs: list[tuple[str, str]]
) -> None:
    model, texts = str(encoder_folders["bert"]), [pair[0] for pair in pairs]
    (tmp_path / "de.txt").write_text("\n".join(texts))
    encoded = ray.data.read_text(str(tmp_path / "de.txt")).map_batches(
        Encoder, fn_constructor_args=(model,), batch_format="pyarrow", batch_size=8, concurrency=1
    )
    encoded.write_parquet(str(tmp_path / "vectors"))
    table = pq.read_table(tmp_path / "vectors")
    expected = SentenceEmbedder.from_pretrained(model, device="cpu").encode(texts)
    rows = [texts.index(text) for text in table["text"].to_pylist()]
    np.testing.assert_allclose(np.stack(table["embedding"].to_pylist()), expected[rows], atol=1e-5)
    assert b"hf_xsent" in table.schema.field("embedding").metadata
