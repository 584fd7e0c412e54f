"""What methods cost on one batch: operations, times, and the command's table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hf_xsent import measure_cost
from hf_xsent.cli import main
from hf_xsent.errors import RecipeError
from hf_xsent.training import cost


@pytest.fixture
def data(pairs: list[tuple[str, str]], tmp_path: Path) -> str:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return f"de={path}"


@pytest.fixture
def model(encoder_folders: dict[str, Path]) -> str:
    return str(encoder_folders["bert-mlm"])


def test_heavier_methods_cost_more_operations(model: str, data: str) -> None:
    ranking, with_tlm, dap = measure_cost(model, data, repeats=1).methods
    assert (ranking.method, with_tlm.method, dap.method) == ("tr", "tr+tlm", "dap")
    assert 0 < ranking.forward_gflops < min(dap.forward_gflops, with_tlm.forward_gflops)
    assert ranking.training_ms > ranking.encoding_ms > 0


def test_cost_is_a_table_and_json(model: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["cost", model, "--data", data, "--repeats", "1"]
    assert main([*command, "--methods", "tr", "dap", "--output", str(tmp_path / "cost.json")]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:3] == ["method", "forward", "GFLOP"]
    content = json.loads((tmp_path / "cost.json").read_text())
    assert content["settings"]["pairs"] == 12  # those that were measured, after cleaning
    assert [measured["method"] for measured in content["methods"]] == ["tr", "dap"]
    assert main([*command, "--methods", "da"]) == 2
    assert "methods 'da' is unknown: use tr," in capsys.readouterr().err
    assert main([*command, "--methods", "wacse"]) == 2
    assert "wacse reads links between words" in capsys.readouterr().err


def test_equal_calls_count_the_same(model: str, data: str) -> None:
    """TLM and PPA draw masks."""
    runs = [measure_cost(model, data, methods=["tr+tlm", "ppa"], repeats=1).methods for _ in range(2)]
    counts = [[measured.forward_gflops for measured in costs] for costs in runs]
    assert counts[0] == counts[1]
    assert [measured.method for measured in runs[0]] == ["tr+tlm", "ppa"]


def test_attention_counts(model: str, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = measure_cost(model, data, methods=["tr"], repeats=1).methods
    monkeypatch.setattr(cost, "_FORMULAS", {})
    (without,) = measure_cost(model, data, methods=["tr"], repeats=1).methods
    assert without.forward_gflops < whole.forward_gflops < 2 * without.forward_gflops


def test_an_unknown_method_is_an_error_before_pairs_are_read() -> None:
    with pytest.raises(RecipeError, match="methods 'tr\\+tml' is unknown: .*did you mean"):
        measure_cost("org/none", "no/such/file.tsv", methods=["tr", "tr+tml"])
