"""The page of performance figures states the results of the last measurement, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def performance() -> ModuleType:
    """Import the script, which is not part of the package."""
    spec = importlib.util.spec_from_file_location("performance", ROOT / "benchmarks/performance.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["performance"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_figures_of_the_results_file(performance: ModuleType) -> None:
    file = ROOT / "benchmarks/results/performance.json"
    results = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    assert performance.table(results) in (ROOT / "docs/performance.md").read_text("utf-8")


def test_the_chart_shows_the_results_file(performance: ModuleType) -> None:
    results = json.loads((ROOT / "benchmarks/results/performance.json").read_text("utf-8"))
    chart = (ROOT / "docs/images/reading_growth.svg").read_text("utf-8")
    assert chart == performance.reading_chart(results["data"]["sizes"]), "run write_page of benchmarks/performance.py"


def test_each_figure_is_read_from_the_results_of_its_part(performance: ModuleType) -> None:
    cost = {"cpu_seconds": 2.0, "wall_seconds": 2.0, "peak_mib": 20}
    half = {"cpu_seconds": 1.0, "wall_seconds": 1.0, "peak_mib": 10}
    steps = {"hf-xsent": half, "padded loop": cost, "sentence-transformers": cost}
    shares = [f"{what}, {dtype}" for what in ("training", "encoding") for dtype in ("float32", "bfloat16")]
    results: dict[str, Any] = {
        "training": {"results": {"max_length 32": steps}},
        "training_bf16": {"results": {"max_length 32": steps}},
        "dap": {"results": {"padded TR": cost, "DAP restricted": half, "DAP restricted, bf16": half}},
        "mining": {"9 x 9": {"hf-xsent": half, "hf-xsent, bfloat16": half, "faiss.knn twice": cost}, "seconds": 3},
        "encoding": {"hf-xsent, float32": half, "hf-xsent, bfloat16": half, "SentenceTransformer.encode": cost},
        "data": {"sizes": [{"pairs": 1_000_000, "first_load_seconds": 30.0}], "exponent_of_first_load": 1.01},
        "peak": {"share_of_peak": dict.fromkeys(shares, 0.5)},
        "threads": {"processes": [{"pairs_per_second": 20}, {"pairs_per_second": 25}]},
    }
    lines = performance.table(results).splitlines()[2:]
    measured = [line.split("|")[2].strip(" *") for line in lines]
    assert measured == [*["2.00"] * 4, *["0.50"] * 3, *["2.00"] * 2, *["0.50"] * 2, "30.00", "1.01",
                        *["0.50"] * 4, "0.80",
                        "not measured yet"]  # fmt: skip
    machine = {"machine": {"cores": 2, "load": 0.1}}
    assert (
        performance.machines({"dap": half | machine, "data": {"failed": "no"} | machine})
        == "Measured on cores 2: dap.\n\n"
    )
    failed = performance.table(results | {"dap": {"failed": "not finished in 5 s"}})
    assert failed.count("not finished in 5 s") == 3


STARTS_ANOTHER = """
import subprocess, sys
from pathlib import Path
other = subprocess.Popen(["sleep", "60"])
Path(sys.argv[1]).write_text(str(other.pid))
other.wait()
"""


def test_a_part_without_time_ends_with_the_processes_that_it_started(performance: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "part.py").write_text(STARTS_ANOTHER)
    found = performance.measure([str(tmp_path / "part.py"), str(tmp_path / "other")], 3)
    assert found == {"failed": "not finished in 3 s"}
    other = int((tmp_path / "other").read_text())
    for _ in range(100):
        if not _runs(other):
            return
        time.sleep(0.05)
    os.kill(other, signal.SIGKILL)
    raise AssertionError("the process that the part started still runs")


def test_a_contender_that_fails_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    with pytest.raises((EOFError, ConnectionError)):  # not a wait without end
        importlib.import_module("turns").take_turns({"fails": json.loads}, steps=1, warmup=0, threads=1)


def _runs(process: int) -> bool:
    """Whether a process runs; one that ended may wait to be reaped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
