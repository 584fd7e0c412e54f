from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers.integrations import is_deepspeed_available

from hf_xsent import AlignmentTrainingArguments
from hf_xsent.errors import HfXsentError
from hf_xsent.finetuning.trainer import FineTuningArguments
from hf_xsent.training.arguments import check_momentum_contrast
from hf_xsent.training.recipe import read_recipe

ZERO_3 = {"zero_optimization": {"stage": 3}}


@pytest.fixture
def _deepspeed_seems_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_xsent.training.arguments.is_deepspeed_available", lambda: True)


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
    monkeypatch.setattr("hf_xsent.training.arguments.is_deepspeed_available", lambda: False)
    with pytest.raises(HfXsentError, match=r"pip install 'hf-xsent\[deepspeed\]'"):
        AlignmentTrainingArguments(output_dir=str(tmp_path), deepspeed=ZERO_3)


@pytest.mark.skipif(is_deepspeed_available(), reason="DeepSpeed is installed")
def test_a_folder_named_deepspeed_beside_the_script_is_not_deepspeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "trainer_scripts")  # as python does for a script there
    with pytest.raises(HfXsentError, match=r"pip install 'hf-xsent\[deepspeed\]'"):
        AlignmentTrainingArguments(output_dir=str(tmp_path), deepspeed=ZERO_3)


@pytest.mark.parametrize("kind", [AlignmentTrainingArguments, FineTuningArguments])
def test_bf16_without_a_gpu_runs_on_the_cpu(kind: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    arguments = kind(output_dir=str(tmp_path), bf16=True)
    assert arguments.device.type == "cpu" and not arguments.dataloader_pin_memory
    assert not arguments.use_cpu, "the run's recipe runs on a GPU elsewhere"


@pytest.mark.parametrize("kind", [AlignmentTrainingArguments, FineTuningArguments])
@pytest.mark.parametrize("in_hardware", [False, True])
def test_bf16_auto_is_what_the_hardware_computes(
    kind: type[Any], in_hardware: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_xsent.models.precision.cpu_has_bfloat16", lambda: in_hardware)
    assert kind(output_dir=str(tmp_path), use_cpu=True, bf16="auto").bf16 is in_hardware


@pytest.mark.parametrize("kind", [AlignmentTrainingArguments, FineTuningArguments])
def test_another_word_for_bf16_is_refused(kind: type[Any], tmp_path: Path) -> None:
    with pytest.raises(HfXsentError, match="bf16 takes true, false or auto, not 'always'"):
        kind(output_dir=str(tmp_path), bf16="always")


def test_a_recipe_and_a_flag_may_say_bf16_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_xsent.models.precision.cpu_has_bfloat16", lambda: True)
    stated = ["--model", "none", "--data", "de=none.tsv", "--output", str(tmp_path), "--use_cpu"]
    assert read_recipe([*stated, "--bf16", "auto"]).training.bf16 is True
    assert read_recipe([*stated, "--bf16"]).training.bf16 is True
    assert read_recipe([*stated, "--bf16", "false"]).training.bf16 is False


def test_a_backend_for_several_processes_does_not_stop_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, ddp_backend="gloo")
    assert arguments.world_size == 1 and arguments.ddp_backend == "gloo"


def test_a_batch_size_that_changes_by_itself_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HfXsentError, match="auto_find_batch_size changes the batch.*use --pairs_per_chunk"):
        AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, auto_find_batch_size=True)


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
