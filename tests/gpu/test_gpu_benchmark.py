"""``make gpu`` runs on a CPU at toy sizes: each part ends in figures, in a reason to skip it, or in a failure's row."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from forks import Fork

FOLDER = Path(__file__).parents[2] / "benchmarks" / "gpu"


@pytest.fixture(scope="module")
def benchmark() -> Iterator[ModuleType]:
    """The modules of the folder import each other as scripts do."""
    from importlib.util import module_from_spec, spec_from_file_location

    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    spec = spec_from_file_location("gpu_benchmark", FOLDER / "__main__.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(FOLDER))
    for name in {"setting", "steps", "use", "launched"} - before:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def folder(benchmark: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gpu")
    benchmark.make_encoder(benchmark.Setting(str(made), "cpu", True, 0, ""))
    return made


def _rows(benchmark: ModuleType, folder: Path, part: str) -> list[dict]:
    result = folder / "rows"
    result.write_text("")
    benchmark.run_part(part, benchmark.Setting(str(folder), "cpu", True, 60, str(result)))
    return [{"part": part, **json.loads(line)} for line in result.read_text().splitlines()]


@pytest.mark.parametrize(
    ("part", "figure"),
    [
        ("training: hf-xsent, TR, bf16", "pairs_per_second"),
        ("training: hf-xsent, DAP, bf16", "pairs_per_second"),
        ("training: sentence-transformers, TR, bf16", "pairs_per_second"),
        ("training: padded loop, TR, bf16", "pairs_per_second"),
        ("training: hf-xsent, TR, bf16, 65,536 pairs in chunks of 1,024", "pairs_per_second"),
        ("encoding: hf-xsent, bfloat16", "sentences_per_second"),
        ("encoding: sentence-transformers, float32", "sentences_per_second"),
        ("mining: bfloat16", "cosines_per_second"),
    ],
)
def test_a_part_measures(benchmark: ModuleType, folder: Path, part: str, figure: str) -> None:
    rows = _rows(benchmark, folder, part)
    assert rows and all(row[figure] > 0 and row["peak_mib"] > 0 for row in rows)
    assert part.startswith("mining") or rows[0]["share_of_peak"] > 0
    assert all(part in benchmark.line_of(row) for row in rows)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("tests: all that need CUDA", "CUDA"),
        ("training: hf-xsent, TR, fp16", "CUDA"),
        ("launchers: ZeRO-2", "CUDA"),
    ],
)
def test_a_part_without_its_hardware_is_skipped_with_the_reason(
    benchmark: ModuleType, folder: Path, part: str, reason: str
) -> None:
    (row,) = _rows(benchmark, folder, part)
    assert reason in row["skipped"] and f"skipped: {row['skipped']}" in benchmark.line_of(row)


def _measure_without_a_tokenizer(output: str) -> None:
    sys.path.insert(0, str(FOLDER))
    import setting

    setting.make_encoder = lambda setting: None
    parts = ["encoding: hf-xsent, float32", "mining: float32"]
    sys.argv = ["gpu", "--device", "cpu", "--quick", "--output", output, "--only", *parts]
    runpy.run_path(str(FOLDER / "__main__.py"), run_name="__main__")


@pytest.mark.slow
def test_a_failure_is_a_row_and_the_next_part_runs(tmp_path: Path) -> None:
    """Without a tokenizer, encoding fails in its own process; mining needs none."""
    output = tmp_path / "gpu.json"
    done = Fork(_measure_without_a_tokenizer, str(output), log=tmp_path / "log.txt")
    assert done.wait() == 0, done.output
    rows = json.loads(output.read_text())["rows"]
    assert "failed" in rows[0] and rows[0]["part"] == "encoding: hf-xsent, float32"
    assert rows[-1]["part"] == "mining: float32" and rows[-1]["cosines_per_second"] > 0
