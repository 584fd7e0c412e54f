from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainingArguments
from transformers.integrations import is_deepspeed_available

from hf_xsent import AlignmentTrainer, AlignmentTrainingArguments, MoCoConfig, SentenceEncoderForPreTraining
from hf_xsent.errors import HfXsentError, OutputError, RecipeError
from hf_xsent.finetuning.trainer import FineTuningArguments
from hf_xsent.training.arguments import REFUSED, WITHOUT_EFFECT, check_arguments_of_model
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
    with pytest.raises(HfXsentError, match="cannot read the config .*missing.json"):
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


@pytest.mark.parametrize("kind", [AlignmentTrainingArguments, FineTuningArguments])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto_find_batch_size", True),
        ("label_smoothing_factor", 0.1),
        ("torch_compile", True),
        ("train_sampling_strategy", "group_by_length"),
        ("use_liger_kernel", True),
    ],
)
def test_a_field_that_would_be_ignored_is_refused(kind: Any, name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=rf"^{name} does not work here: "):
        kind(output_dir=str(tmp_path), use_cpu=True, **{name: value})


WORKING = {
    *("accelerator_config", "activation_checkpointing", "activation_checkpointing_kwargs", "adam_beta1", "adam_beta2"),
    *("adam_epsilon", "bf16", "data_seed", "dataloader_num_workers"),
    *("dataloader_persistent_workers", "dataloader_pin_memory"),
    *("dataloader_prefetch_factor", "ddp_backend", "ddp_broadcast_buffers", "ddp_bucket_cap_mb", "debug", "deepspeed"),
    *("ddp_find_unused_parameters", "ddp_static_graph", "ddp_timeout", "disable_tqdm", "enable_jit_checkpoint"),
    *("eval_delay", "eval_on_start", "eval_steps", "eval_strategy", "fp16", "fsdp", "fsdp_config"),
    *("full_determinism", "gradient_accumulation_steps", "gradient_checkpointing", "gradient_checkpointing_kwargs"),
    *("greater_is_better", "hub_always_push", "hub_model_id", "hub_private_repo", "hub_revision", "hub_strategy"),
    *("hub_token", "ignore_data_skip", "learning_rate", "load_best_model_at_end", "log_level", "log_level_replica"),
    *("log_on_each_node", "logging_first_step", "logging_steps", "logging_strategy", "lr_scheduler_kwargs"),
    *("lr_scheduler_type", "max_grad_norm", "max_steps", "metric_for_best_model", "neftune_noise_alpha"),
    *("num_train_epochs", "optim", "optim_args", "optim_target_modules", "output_dir", "parallelism_config"),
    *("per_device_train_batch_size", "project", "push_to_hub", "report_to", "run_name", "save_on_each_node"),
    *("restore_callback_states_from_checkpoint", "save_only_model", "save_steps", "save_strategy"),
    *("save_total_limit", "seed", "skip_memory_metrics", "tf32", "torch_empty_cache_steps", "trackio_bucket_id"),
    *("trackio_space_id", "trackio_static_space_id", "use_cpu", "warmup_steps", "weight_decay"),
}


def test_each_field_of_training_arguments_works_is_refused_or_has_no_effect() -> None:
    """A field that a new version of transformers adds must be judged."""
    names = {field.name for field in fields(TrainingArguments) if field.init}
    assert names == WORKING | {*REFUSED} | WITHOUT_EFFECT
    assert len(names) == len(WORKING) + len(REFUSED) + len(WITHOUT_EFFECT)


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
    config = MoCoConfig()
    check_arguments_of_model(arguments, config)
    arguments.deepspeed = {"zero_optimization": {"stage": 2}}
    with pytest.raises(HfXsentError, match="in half precision, which rounds its small updates"):
        check_arguments_of_model(arguments, config)


def test_fp16_on_a_cpu_would_change_nothing_and_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HfXsentError, match="fp16 needs a GPU; on a CPU use --bf16"):
        AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, fp16=True)


@pytest.mark.parametrize("flag", ["fsdp", "deepspeed"])
def test_what_only_the_launcher_enables_is_refused(flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"ACCELERATE_USE_{flag.upper()}", "true")
    with pytest.raises(HfXsentError, match=f"pass --{flag} to the script"):
        AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"metric_for_best_model": "accuracy_xx"}, r"'accuracy_xx' is not measured: use accuracy, .*accuracy_de"),
        ({"metric_for_best_model": "eval_f1"}, "'f1' is not measured"),
        ({"metric_for_best_model": "loss_de"}, "is not measured"),
    ],
)
def test_a_metric_that_is_not_measured_is_refused_before_training(
    settings: dict[str, Any], reason: str, encoder_folders: dict[str, Path], tmp_path: Path, pairs: Any
) -> None:
    model = SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"]), max_length=16)
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **settings)
    with pytest.raises(RecipeError, match=reason):
        AlignmentTrainer(model, arguments, {"de": pairs}, {"de": pairs}, model.tokenizer)


def test_parts_of_the_trainer_that_would_be_ignored_are_refused(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Any
) -> None:
    model = SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"]), max_length=16)
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(RecipeError, match="compute_loss_func has no effect here"):
        AlignmentTrainer(model, arguments, {"de": pairs}, None, model.tokenizer, compute_loss_func=len)


def test_plain_arguments_lower_the_rate_by_dev_accuracy(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Any
) -> None:
    model = SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"]), max_length=16)
    plain = TrainingArguments(
        str(tmp_path), use_cpu=True, max_steps=1, eval_steps=1, eval_strategy="steps", save_strategy="no",
        lr_scheduler_type="reduce_lr_on_plateau",
    )  # fmt: skip
    AlignmentTrainer(model, plain, {"de": pairs}, {"de": pairs[:4]}, model.tokenizer).train()


def test_a_push_without_a_network_is_one_sentence_before_training(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Any
) -> None:
    model = SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"]), max_length=16)
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, push_to_hub=True, hub_token=None)
    with pytest.raises(OutputError, match="push_to_hub cannot create the repository"):
        AlignmentTrainer(model, arguments, {"de": pairs}, None, model.tokenizer)


@pytest.mark.parametrize("kind", [AlignmentTrainingArguments, FineTuningArguments])
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"learning_rate": -1.0}, "learning_rate -1.0 is not at least 0"),
        ({"weight_decay": -1.0}, "weight_decay -1.0 is not at least 0"),
        ({"adam_beta1": 1.5}, "adam_beta1 1.5 is not below 1"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps 0 is not at least 1"),
        ({"seed": -1}, "seed -1 is not at least 0"),
        ({"report_to": "foo"}, "report_to 'foo' is unknown or not installed"),
    ],
)
def test_numbers_out_of_range_are_one_sentence(kind: Any, settings: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=reason):
        kind(output_dir=str(tmp_path), use_cpu=True, **settings)


@pytest.mark.parametrize(
    ("dtype", "settings", "reason"),
    [
        (torch.float16, {}, "weights in float16 cannot be trained"),
        (torch.bfloat16, {"ema_decay": 0.9}, "ema_decay averages weights, and bfloat16 rounds"),
        (torch.float32, {"per_device_train_batch_size": 1}, "a batch of one pair has no negatives"),
    ],
)
def test_training_that_would_lose_its_updates_is_refused(
    dtype: Any, settings: Any, reason: str, encoder_folders: dict[str, Path], tmp_path: Path, pairs: Any
) -> None:
    model = SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"]), max_length=16, dtype=dtype)
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **settings)
    with pytest.raises(RecipeError, match=reason):
        AlignmentTrainer(model, arguments, {"de": pairs}, None, model.tokenizer)
