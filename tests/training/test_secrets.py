"""A Hub token reaches no file of a run: settings do not take one, and that of the environment is not written."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_run import Run

from hf_xsent.comparison.compare import compare
from hf_xsent.errors import RecipeError
from hf_xsent.training.arguments import AlignmentTrainingArguments

TOKEN = "hf_" + "aB3dE6gH9j" * 3 + "WxYz"


def files_with(text: str, folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


def test_no_file_of_a_finished_run_holds_the_token(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    with pytest.raises(RecipeError, match="hub_token .*HF_TOKEN"):
        run.start("--hub_token", "sesame")
    with pytest.raises(RecipeError, match="hub_token .*HF_TOKEN"):
        run.start(hub_token="sesame")
    assert not run.out.exists()
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    run.start()
    written = {file.name for file in run.out.rglob("*")}
    assert {"recipe.yaml", "metrics.jsonl", "config.json"} <= written
    assert files_with(TOKEN, run.folder) == []
    assert files_with("sesame", run.out) == []
    assert TOKEN not in caplog.text


def test_training_arguments_of_python_refuse_a_token(tmp_path: Path):
    with pytest.raises(RecipeError, match="hub_token .*HF_TOKEN") as refused:
        AlignmentTrainingArguments(output_dir=str(tmp_path), hub_token="sesame", use_cpu=True)
    assert "sesame" not in str(refused.value)


def test_a_study_with_a_token_is_refused_before_anything_is_written(tmp_path: Path):
    study = tmp_path / "study.yaml"
    for content in (
        "settings: {hub_token: sesame}\nmodel: m",
        "methods: {TR: {hub_token: sesame}}",
        f"title: {TOKEN}",
        "{settings: {recipe: recipe.yaml}, model: m, data: d, budget: {steps: 1}, methods: {TR: null}, "
        "tasks: {pairs: {data: d}}}",
    ):
        study.write_text(content)
        (tmp_path / "recipe.yaml").write_text("hub_token: sesame\n")
        with pytest.raises(RecipeError, match=r"HF_TOKEN or run 'hf auth login'") as refused:
            compare(study, output=tmp_path / "out")
        assert "sesame" not in str(refused.value) and TOKEN not in str(refused.value)
        assert files_with("sesame", tmp_path / "out") == []
