from __future__ import annotations

import os
import signal
import sys
import time
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
    assert main(["mine", "a", "b", "--model", "x", "-o", str(tmp_path / "o.tsv"), *flags]) == 2
    assert devices == [device]


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


@pytest.mark.parametrize("command", ["mine", "align-words", "align-documents"])
def test_sigterm_says_what_remains_and_how_to_continue(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    for target in ("mining.mine.open_encoder", "words.align.open_aligner", "documents.align_files.open_encoder"):
        monkeypatch.setattr(f"hf_xsent.{target}", stop)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("one\tein\n")
    files = [str(tmp_path / "a.txt"), *([] if command == "align-words" else [str(tmp_path / "b.txt")])]
    before = signal.getsignal(signal.SIGTERM)
    assert main([command, *files, "--model", "x", "-o", str(tmp_path / "o.tsv")]) == 143
    message = capsys.readouterr().err
    assert message.startswith("hf-xsent: stopped by SIGTERM: finished ") and message.count("\n") == 1
    assert f"{tmp_path / 'o.tsv.work'}, from which the same command continues" in message
    assert signal.getsignal(signal.SIGTERM) is before
