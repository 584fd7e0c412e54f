from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_xsent.cli import main
from hf_xsent.errors import ModelError
from hf_xsent.models import embedder
from hf_xsent.models.precision import choose_device


@pytest.mark.parametrize(
    ("flags", "gpus", "device"),
    [
        ([], 4, "cuda:3"),
        ([], 2, "cuda:1"),
        (["--device", "cuda:1"], 4, "cuda:1"),
        (["--device", "cpu"], 4, "cpu"),
        ([], 0, "cpu"),
        (["--engine", "ray", "--device", "cuda"], 1, "cpu"),  # the GPUs are the workers'
    ],
)
def test_the_model_is_opened_on_the_gpu_of_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: list[str], gpus: int, device: str
) -> None:
    devices = []

    def record(device: Any) -> None:
        devices.append(str(choose_device(device)))
        raise ModelError("enough")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)  # this machine has no GPU to open
    monkeypatch.setattr(embedder, "choose_device", record)
    monkeypatch.setenv("LOCAL_RANK", "3")
    for name in ("a", "b"):
        (tmp_path / name).write_text("a line\n")
    files = [str(tmp_path / name) for name in ("a", "b", "o.tsv")]
    assert main(["mine", *files[:2], "--model", "x", "-o", files[2], *flags]) == 2
    assert devices == [device]


def test_missing_files_are_named_before_a_model_is_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "news.tr.txt").write_text("a line\n")
    files = [str(tmp_path / name) for name in ("news.tr.txt", "news.eng.txt")]
    assert main(["mine", *files, "--model", "none", "-o", str(tmp_path / "o.tsv")]) == 2
    assert f"no such file: {files[1]}; did you mean 'news.tr.txt'?" in capsys.readouterr().err


def test_a_missing_ray_names_the_extra(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    encoder_folders: dict[str, Path],
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("".join(f"{name} {number}\n" for number in range(9)))
    files = [str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), "-o", str(tmp_path / "o.tsv")]
    assert main(["mine", *files, "--model", str(encoder_folders["bert"]), "--engine", "ray"]) == 2
    assert 'pip install "hf-xsent[ray]"' in capsys.readouterr().err
