"""A run guards its output folder: what is in it, what the run was made from, and how it resumes and ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent.errors import ModelError, OutputError
from hf_xsent.runs.claim import claim_folder
from hf_xsent.runs.run import RUN_STATE_FILE, Run, RunState, check_finished, checkpoints_of

IDENTITY = {"seed": 1, "languages": ["de"]}


def train(folder: Path, *steps: int, finish: bool = True, model: tuple[str, ...] = ("model.safetensors",)) -> None:
    """Leave a folder as a run with these checkpoints does."""
    run = Run(folder)
    with run.training(IDENTITY):
        assert run.checkpoint is None
        for step in steps:
            (folder / f"checkpoint-{step}").mkdir()
        if finish:
            run.unfinished.mkdir()
            for name in model:
                (run.unfinished / name).write_text("weights")
            run.place_model()
            run.finish(max(steps, default=0))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_check_creates_nothing(tmp_path: Path) -> None:
    Run(tmp_path / "new").check()
    Run(tmp_path / "new", resume=True).check()
    Run(tmp_path).check()
    assert names(tmp_path) == []


@pytest.mark.parametrize("flags", [{}, {"resume": True}, {"overwrite": True}])
def test_foreign_files_are_refused_whatever_the_flags(tmp_path: Path, flags: dict[str, bool]) -> None:
    (tmp_path / ".gitignore").write_text("*")
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(OutputError, match=r"did not write, such as thesis\.txt: choose an empty folder$"):
        Run(tmp_path, **flags).check()
    with pytest.raises(OutputError, match=r"thesis\.txt is a file: choose another name$"):
        Run(tmp_path / "thesis.txt", **flags).check()
    assert names(tmp_path) == [".gitignore", "thesis.txt"]


def test_another_run_is_refused_unless_it_is_said_what_becomes_of_it(tmp_path: Path) -> None:
    train(tmp_path, 5)
    with pytest.raises(
        OutputError, match="holds a run: continue it with (--)?resume or replace it with (--)?overwrite"
    ):
        Run(tmp_path).check()
    Run(tmp_path, overwrite=True).check()
    with pytest.raises(OutputError, match="resume continues the run in the folder, .*overwrite replaces it: give one"):
        Run(tmp_path, resume=True, overwrite=True).check()
    assert (tmp_path / "checkpoint-5").is_dir(), "nothing is deleted before the new run begins"


def test_an_overwriting_run_replaces_what_the_run_wrote_and_nothing_else(tmp_path: Path) -> None:
    train(tmp_path, 5, 20, model=("model.safetensors", "heads.safetensors"))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "metrics.jsonl").touch()
    run = Run(tmp_path, overwrite=True)
    with run.training({"seed": 2}):
        assert names(tmp_path) == [
            "_lock", "checkpoint-best", "heads.safetensors", "model.safetensors", "notes.txt", RUN_STATE_FILE,
        ]  # fmt: skip
        with pytest.raises(ModelError, match="is unfinished: it has no checkpoint to open"):
            check_finished(tmp_path)
        run.unfinished.mkdir()
        (run.unfinished / "model.safetensors").write_text("new weights")
        run.place_model()
        run.finish(3)
    check_finished(tmp_path)
    assert names(tmp_path) == ["checkpoint-best", "model.safetensors", "notes.txt", RUN_STATE_FILE]
    assert RunState.read(tmp_path) == RunState({"seed": 2}, [], 3, ["model.safetensors"])


@pytest.mark.parametrize("start", ["run", "run/checkpoint-2"])
def test_a_run_does_not_replace_the_model_that_it_starts_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    train(tmp_path / "run", 2)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match=f"would replace the model {start} that it starts from: choose another"):
        Run(tmp_path / "run", overwrite=True, start=start).check()
    Run("run", resume=True, start=start).check()
    Run("run", overwrite=True, start="org/encoder").check()


def test_a_run_resumes_from_its_newest_checkpoint(tmp_path: Path) -> None:
    train(tmp_path, 5, 100, 20, finish=False)
    (tmp_path / "checkpoint-best").mkdir()
    with pytest.raises(ModelError, match="is unfinished: give its newest checkpoint .*checkpoint-100, or"):
        check_finished(tmp_path)
    run = Run(tmp_path, resume=True)
    with run.training(IDENTITY):
        assert run.checkpoint == str(tmp_path / "checkpoint-100")
    assert [path.name for path in checkpoints_of(tmp_path)] == ["checkpoint-100", "checkpoint-20", "checkpoint-5"]
    new = Run(tmp_path / "new", resume=True)
    with new.training(IDENTITY):
        assert new.checkpoint is None, "there was nothing to resume"


def test_a_checkpoint_of_another_folder_is_not_resumed(tmp_path: Path) -> None:
    """The best checkpoint before it may be there."""
    train(tmp_path / "first", 5, finish=False)
    checkpoint = str(tmp_path / "first" / "checkpoint-5")
    with pytest.raises(OutputError, match="checkpoint-5 cannot be resumed: .*other has no checkpoint"):
        Run(tmp_path / "other", checkpoint).find_checkpoint()
    assert Run(tmp_path / "first", checkpoint).find_checkpoint() == Path(checkpoint)


def test_changes_are_refused_or_recorded(tmp_path: Path) -> None:
    train(tmp_path, 5)
    with (
        pytest.raises(OutputError, match=r"changed since step 5: seed 1, now 2; k none, now 3: restore this"),
        Run(tmp_path, resume=True).training({**IDENTITY, "seed": 2, "k": 3}),
    ):
        pass
    run = Run(tmp_path, allow_changes=True)
    with run.training({**IDENTITY, "seed": 2}):
        pass
    state = RunState.read(tmp_path)
    assert state is not None and state.finished_at_step is None
    assert state.changes == [{"step": 5, "changed": {"seed": [1, 2]}}]


def test_a_run_that_resumes_and_fails_before_a_new_checkpoint_stays_as_it_was(tmp_path: Path) -> None:
    train(tmp_path, 5)
    before = RunState.read(tmp_path)
    changed = Run(tmp_path, allow_changes=True)
    with pytest.raises(KeyError), changed.training({**IDENTITY, "seed": 2}):
        assert RunState.read(tmp_path) != before
        raise KeyError("a setting that the checkpoint does not fit")
    assert RunState.read(tmp_path) == before
    with pytest.raises(KeyError), changed.training({**IDENTITY, "seed": 2}):
        (tmp_path / "checkpoint-6").mkdir()
        raise KeyError
    state = RunState.read(tmp_path)
    assert state is not None and state.changes and state.finished_at_step is None


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    train(tmp_path, 5)
    assert Run(tmp_path, resume=True).finished_at(IDENTITY) == 5
    assert Run(tmp_path, overwrite=True).finished_at(IDENTITY) is None
    assert Run(tmp_path, allow_changes=True).finished_at({"seed": 2}) is None
    with pytest.raises(OutputError, match="changed since step 5"):
        Run(tmp_path, resume=True).finished_at({"seed": 2})
    (tmp_path / "checkpoint-5").rmdir()
    with (
        pytest.raises(OutputError, match="is finished and left no checkpoint: replace it with (--)?overwrite"),
        Run(tmp_path, resume=True).training(IDENTITY),
    ):
        pass
    (tmp_path / "model.safetensors").unlink()
    assert Run(tmp_path, resume=True).finished_at(IDENTITY) is None, "its model was deleted"


def test_a_run_is_finished_after_its_weights_are_on_the_disk(tmp_path: Path, disk: list[str]) -> None:
    train(tmp_path / "run")
    at = [disk.index(name) for name in ("model.safetensors", "rename model.safetensors")]
    states = [at for at, name in enumerate(disk) if name.startswith("rename run_state.json")]
    assert len(states) == 2 and states[0] < at[0] < at[1] < states[1]
    assert disk[at[1] + 1] == "run", "the name, too"


def test_one_process_trains_in_a_folder(tmp_path: Path) -> None:
    with Run(tmp_path).training(IDENTITY):
        for run in (Run(tmp_path, resume=True), Run(tmp_path, overwrite=True)):
            with pytest.raises(OutputError, match="is in use by another process"):
                run.check()
            with pytest.raises(OutputError, match="is in use by another process"), run.training(IDENTITY):
                pass
    with claim_folder(tmp_path):
        pass


def test_a_damaged_state_is_named(tmp_path: Path) -> None:
    (tmp_path / RUN_STATE_FILE).write_text("{")
    with pytest.raises(OutputError, match=rf"{RUN_STATE_FILE} cannot be read .*: restore it, or use another"):
        Run(tmp_path, resume=True).check()
