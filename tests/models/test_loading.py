"""Unfinished runs and mistyped folders are refused in one sentence."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from hf_xsent.errors import ModelError
from hf_xsent.models import METHODS
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import LOADING_ARGUMENTS, UNUSED_ARGUMENTS, load_encoder


def test_an_unfinished_run_is_refused_with_the_name_of_its_newest_checkpoint(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for step in (9, 51):
        shutil.copytree(encoder_folders["bert"], run / f"checkpoint-{step}")
    (run / "run_state.json").write_text('{"identity": {}, "finished_at_step": null}')
    for _ in ("stopped", "stopped over an earlier model"):
        with pytest.raises(
            ModelError, match="run is unfinished: give its newest checkpoint .*checkpoint-51, .*(--)?resume"
        ):
            SentenceEmbedder.from_pretrained(str(run))
        shutil.copytree(encoder_folders["bert"], run, dirs_exist_ok=True)
    for folder in (run / "checkpoint-51", run):
        SentenceEmbedder.from_pretrained(str(folder))
        (run / "run_state.json").write_text('{"identity": {}, "finished_at_step": 100}')


def test_a_run_without_a_checkpoint_is_called_unfinished(tmp_path: Path) -> None:
    (tmp_path / "run_state.json").write_text('{"identity": {}, "finished_at_step": null}')
    with pytest.raises(ModelError, match="is unfinished: it has no checkpoint to open: .*(--)?resume"):
        load_encoder(str(tmp_path))
    with pytest.raises(ModelError, match=f"the run in {tmp_path} is unfinished"):
        load_encoder(str(tmp_path.parent), subfolder=tmp_path.name)


def test_a_mistyped_folder_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/mine").mkdir(parents=True)
    with pytest.raises(ModelError, match="'runs/min' is not a folder, .*; did you mean 'runs/mine'"):
        load_encoder("runs/min")


def test_a_file_in_place_of_its_folder_is_named(encoder_folders: dict[str, Path]) -> None:
    folder = encoder_folders["bert"]
    with pytest.raises(ModelError, match=f"^{folder}/config.json is a file: give the folder of the model, {folder}$"):
        SentenceEmbedder.from_pretrained(folder / "config.json")


@pytest.mark.parametrize(
    ("pattern", "name", "layers"),
    [("^", "_orig_mod.", 3), (r"layers?\.2\.", "removed.", 3), (r"Wqkv|query", "mixer", 3), ("^", "", 4)],
)
def test_an_encoder_that_lacks_weights_is_refused(
    tiny_encoders: Path, tmp_path: Path, pattern: str, name: str, layers: int
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_encoders, folder)
    weights, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    config |= {"num_hidden_layers": layers, "layer_types": ["full_attention"] * layers}
    (folder / "config.json").write_text(json.dumps(config))
    renamed = {re.sub(pattern, name, weight): weights[weight] for weight in weights}
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"model' lacks \d+ weights of the encoder in its config.json, such as [a-z]"):
        SentenceEmbedder.from_pretrained(str(folder))


def test_an_encoder_with_an_adapter_is_refused(tiny_encoders: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    folder = tmp_path / "model"
    shutil.copytree(tiny_encoders, folder)
    encoder = load_encoder(str(folder))
    encoder.add_adapter(peft.LoraConfig(r=2, target_modules="all-linear"))
    encoder.save_pretrained(folder)
    with pytest.raises(ModelError, match="model' has an adapter .*: merge it, and save the encoder alone"):
        SentenceEmbedder.from_pretrained(str(folder))


@pytest.mark.parametrize("method", METHODS)
def test_no_setting_has_the_name_of_a_loading_argument(method: str) -> None:
    assert not {*LOADING_ARGUMENTS, *UNUSED_ARGUMENTS} & {*METHODS[method][0].setting_names()}
