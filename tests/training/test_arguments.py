from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_xsent import AlignmentTrainingArguments
from hf_xsent.errors import HfXsentError
from hf_xsent.finetuning.trainer import FineTuningArguments
from hf_xsent.training.arguments import check_momentum_contrast

ZERO_3 = {"zero_optimization": {"stage": 3}}


@pytest.fixture
def _deepspeed_seems_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())


@pytest.mark.parametrize("form", ["file", "text", "mapping"])
def test_zero_3_is_refused_with_the_nearest_choice(form: str, tmp_path: Path, _deepspeed_seems_installed: None) -> None:
    (tmp_path / "zero3.json").write_text(json.dumps(ZERO_3))
    given: Any = {"file": str(tmp_path / "zero3.json"), "text": json.dumps(ZERO_3), "mapping": ZERO_3}[form]
    with pytest.raises(HfXsentError, match=r"ZeRO-3 .* use stage 2"):
        AlignmentTrainingArguments(output_dir=str(tmp_path), deepspeed=given)


def test_settings_of_deepspeed_that_cannot_be_read(tmp_path: Path, _deepspeed_seems_installed: None) -> None:
    with pytest.raises(HfXsentError, match="cannot read the settings .*missing.json"):
        AlignmentTrainingArguments(output_dir=str(tmp_path), deepspeed=str(tmp_path / "missing.json"))


def test_missing_deepspeed_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(HfXsentError, match=r"pip install 'hf-xsent\[deepspeed\]'"):
        AlignmentTrainingArguments(output_dir=str(tmp_path), deepspeed=ZERO_3)


def test_fsdp_on_a_cpu_would_quietly_be_ddp_and_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HfXsentError, match="FSDP needs a GPU.* drop --fsdp"):
        AlignmentTrainingArguments(output_dir=str(tmp_path), fsdp="full_shard", use_cpu=True)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"pairs_per_chunk": 8}, "drop --pairs_per_chunk"),
        ({"fsdp_config": {"version": 1}}, "use version 2"),
        ({"share_of_start": 0.2}, "drop it, or use DDP"),
        ({"ema_decay": 0.9}, "ema_decay averages full weights"),
    ],
)
def test_fsdp_is_refused_where_it_cannot_be_right(
    settings: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    with pytest.raises(HfXsentError, match=reason):
        AlignmentTrainingArguments(output_dir=str(tmp_path), fsdp="full_shard", **settings)


@pytest.mark.parametrize("kind", [AlignmentTrainingArguments, FineTuningArguments])
def test_several_gpus_in_one_process_are_refused(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "n_gpu", 2)
    with pytest.raises(HfXsentError, match=r"sees 2 GPUs: .*torchrun --nproc_per_node 2"):
        kind(output_dir=str(tmp_path), use_cpu=True)


def test_momentum_in_half_precision_is_refused(tmp_path: Path, _deepspeed_seems_installed: None) -> None:
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, bf16=True)
    check_momentum_contrast(arguments)
    arguments.deepspeed = {"zero_optimization": {"stage": 2}}
    with pytest.raises(HfXsentError, match="in half precision, which rounds its small updates"):
        check_momentum_contrast(arguments)


def test_fp16_on_a_cpu_would_change_nothing_and_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HfXsentError, match="fp16 needs a GPU; on a CPU use --bf16"):
        AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, fp16=True)


@pytest.mark.parametrize("flag", ["fsdp", "deepspeed"])
def test_what_only_the_launcher_enables_is_refused(flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"ACCELERATE_USE_{flag.upper()}", "true")
    with pytest.raises(HfXsentError, match=f"pass --{flag} to the script"):
        AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
