from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file
from transformers import TrainingArguments

from hf_xsent.errors import OutputError
from hf_xsent.training.checkpoints import check_start_remains, prepare_output_folder, remove_old_run
from hf_xsent.training.run_card import RECIPE_FILE, write_recipe


def _run(folder: Path, *checkpoints: int) -> Path:
    for step in checkpoints:
        (folder / f"checkpoint-{step}").mkdir(parents=True)
        save_file({"weights": torch.zeros(3)}, folder / f"checkpoint-{step}" / "model.safetensors")
        (folder / f"checkpoint-{step}" / "trainer_state.json").write_text(f'{{"global_step": {step}}}')
    folder.mkdir(exist_ok=True)
    (folder / "recipe.yaml").write_text("model: m")
    (folder / "metrics.jsonl").write_text("{}\n")
    return folder


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_or_empty_folder_is_taken_and_not_made_yet(tmp_path: Path) -> None:
    assert prepare_output_folder(tmp_path / "new") is None
    assert prepare_output_folder(str(tmp_path / "new"), resume=True) is None
    assert not (tmp_path / "new").exists()
    assert prepare_output_folder(tmp_path) is None


@pytest.mark.parametrize("start", ["run", "run/checkpoint-2"])
def test_a_run_does_not_replace_the_model_that_it_starts_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    (tmp_path / "run" / "checkpoint-2").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match=f"would replace the model {start} that it starts from: choose another"):
        check_start_remains(start, str(tmp_path / "run"), overwrite=True)
    check_start_remains(start, "run", overwrite=False)
    check_start_remains("run", "run/next", overwrite=True)


@pytest.mark.parametrize(("resume", "overwrite"), [(False, False), (True, False), (False, True), (True, True)])
def test_foreign_files_are_refused_whatever_the_flags(tmp_path: Path, resume: bool, overwrite: bool) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match="holds files that hf-xsent did not write: choose an empty folder$"):
        prepare_output_folder(tmp_path, resume, overwrite)
    with pytest.raises(OutputError, match="thesis.txt is a file: choose another name$"):
        prepare_output_folder(tmp_path / "thesis.txt", resume, overwrite)
    assert _names(tmp_path) == ["thesis.txt"]


def test_another_run_is_refused_unless_it_is_said_what_becomes_of_it(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", 5)
    with pytest.raises(
        OutputError, match="holds another run: continue it with --resume or replace it with --overwrite$"
    ):
        prepare_output_folder(run)
    assert prepare_output_folder(run, overwrite=True) is None
    assert (run / "checkpoint-5").is_dir(), "nothing is deleted before the new run is about to start"


def test_resume_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", 5, 20, 100)
    (run / "checkpoint-best").mkdir()
    assert prepare_output_folder(run, resume=True) == str(run / "checkpoint-100")
    assert prepare_output_folder(_run(tmp_path / "other"), resume=True) is None


def test_only_checkpoints_and_metrics_of_the_old_run_go(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", 5, 20)
    (run / "notes.txt").write_text("mine")
    (run / "checkpoint-notes.txt").write_text("mine")
    (run / "checkpoint-best").mkdir()
    remove_old_run(run)
    assert _names(run) == ["checkpoint-best", "checkpoint-notes.txt", "notes.txt", "recipe.yaml"]
    remove_old_run(tmp_path / "nowhere")


def test_a_finished_run_without_checkpoints_is_not_trained_over_by_resuming(tmp_path: Path):
    (tmp_path / RECIPE_FILE).write_text("model: x\n")
    assert prepare_output_folder(tmp_path, resume=True) is None  # cut off before its first checkpoint
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(OutputError, match="finished and left no checkpoint"):
        prepare_output_folder(tmp_path, resume=True)


def test_a_recipe_holds_what_was_stated_and_no_token(tmp_path: Path) -> None:
    training = TrainingArguments(output_dir=str(tmp_path), seed=7, hub_token="secret", use_cpu=True)
    write_recipe(tmp_path, "finetune xnli", {"model": "org/base", "dev": None}, training)
    text = (tmp_path / RECIPE_FILE).read_text("utf-8")
    assert text.startswith("# hf-xsent finetune xnli recipe.yaml\n") and "secret" not in text
    assert yaml.safe_load(text).items() >= {"model": "org/base", "seed": 7, "use_cpu": True}.items()
    assert not {"dev", "learning_rate"} & {*yaml.safe_load(text)}
