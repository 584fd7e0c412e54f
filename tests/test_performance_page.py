"""The page of performance figures states the results of the last measurement, and nothing else."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

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


def test_a_contender_that_fails_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    with pytest.raises((EOFError, ConnectionError)):  # not a wait without end
        importlib.import_module("turns").take_turns({"fails": json.loads}, steps=1, warmup=0, threads=1)
