"""Models whose weights are not finite are refused by every command that would use them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from hf_xsent.cli import main
from hf_xsent.errors import ModelError
from hf_xsent.models import METHODS
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import LOADING_ARGUMENTS, UNUSED_ARGUMENTS, check_weights, load_encoder


@pytest.fixture(params=[float("nan"), float("inf")])
def diverged(request: pytest.FixtureRequest, encoder_folders: dict[str, Path], tmp_path: Path) -> Path:
    model = AutoModel.from_pretrained(encoder_folders["bert"])
    with torch.no_grad():
        model.encoder.layer[1].output.dense.weight[3, 5] = request.param
    model.save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(encoder_folders["bert"]).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "command",
    [
        ["score", "pairs.tsv", "--model", "MODEL", "-o", "out"],
        ["align-words", "pairs.tsv", "--model", "MODEL", "-o", "out"],
        ["export", "MODEL", "-o", "out"],
        ["mine", "pairs.tsv", "other.tsv", "--model", "MODEL", "-o", "out"],
        ["pretrain", "--model", "MODEL", "--data", "de=pairs.tsv", "--output_dir", "out", "--max_steps", "1"],
    ],
    ids=lambda command: command[0],
)
def test_weights_that_are_not_finite_are_refused_in_one_sentence(
    diverged: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("".join(f"{n} Hunde\t{n} dogs\n" for n in range(250)))
    monkeypatch.setattr("hf_xsent.mining.mine.load_sentences", lambda *_, **__: pytest.fail("mined"))
    assert main([str(diverged) if word == "MODEL" else word for word in command]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "has weights that are NaN or infinite (" in message and "layer.1.output.dense.weight)" in message
    assert not (tmp_path / "out").is_file()


def test_an_unfinished_run_is_refused_with_the_name_of_its_newest_checkpoint(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for step in (9, 51):
        shutil.copytree(encoder_folders["bert"], run / f"checkpoint-{step}")
    (run / "run_state.json").write_text('{"identity": {}, "finished_at_step": null}')
    for _ in ("stopped", "stopped over an earlier model"):
        with pytest.raises(
            ModelError, match="run is unfinished: give its newest checkpoint .*checkpoint-51, .*--resume"
        ):
            SentenceEmbedder.from_pretrained(str(run))
        shutil.copytree(encoder_folders["bert"], run, dirs_exist_ok=True)
    for folder in (run / "checkpoint-51", run):
        SentenceEmbedder.from_pretrained(str(folder))
        (run / "run_state.json").write_text('{"identity": {}, "finished_at_step": 100}')


def test_a_run_without_a_checkpoint_is_called_unfinished(tmp_path: Path) -> None:
    (tmp_path / "run_state.json").write_text('{"identity": {}, "finished_at_step": null}')
    with pytest.raises(ModelError, match="is unfinished: it has no checkpoint to open: .*--resume"):
        load_encoder(str(tmp_path))


def test_a_mistyped_folder_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/mine").mkdir(parents=True)
    with pytest.raises(ModelError, match="'runs/min' is not a folder, .*; did you mean 'runs/mine'"):
        load_encoder("runs/min")


def test_large_finite_weights_are_accepted(encoder_folders: dict[str, Path]) -> None:
    model = load_encoder(str(encoder_folders["bert"]))
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.fill_(3e38)  # the sum overflows
    check_weights(model, "large")
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match="'large' has weights that are NaN"):
        check_weights(model, "large")


@pytest.mark.parametrize("method", METHODS)
def test_no_setting_has_the_name_of_a_loading_argument(method: str) -> None:
    assert not {*LOADING_ARGUMENTS, *UNUSED_ARGUMENTS} & {*METHODS[method][0].setting_names()}
