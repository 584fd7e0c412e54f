from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from settings_page import REFUSED, WITHOUT_EFFECT
from transformers import TrainerCallback, TrainingArguments, trainer_optimizer
from transformers.integrations import integration_utils

from hf_xsent import AlignmentTrainer, AlignmentTrainingArguments, MoCoConfig, SentenceEncoderForPreTraining
from hf_xsent.errors import HfXsentError, OutputError, RecipeError
from hf_xsent.finetuning.trainer import FineTuningArguments
from hf_xsent.runs.run import RunState
from hf_xsent.training.conflicts import CONFLICTS, facts_of_model, refuse_conflicts, schedule_options
from hf_xsent.training.identity import DECIDING
from hf_xsent.training.pretrain import pretrain
from hf_xsent.training.run_card import recipe_of

KINDS = [AlignmentTrainingArguments, FineTuningArguments]


def _arguments(kind: Any, folder: Path, **settings: Any) -> Any:
    return kind(output_dir=str(folder), **({"task": "xnli"} if kind is FineTuningArguments else {}) | settings)


@pytest.fixture
def model(encoder_folders: dict[str, Path]) -> SentenceEncoderForPreTraining:
    return SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"]), max_length=16)


# Combinations


@pytest.mark.parametrize("combination", CONFLICTS)
def test_each_combination_is_refused_in_one_sentence_and_its_parts_alone_are_not(combination: tuple[str, ...]) -> None:
    for names in product(*(part.split("|") for part in combination)):
        with pytest.raises(RecipeError) as error:
            refuse_conflicts({*names})
        assert "\n" not in str(error.value) and "{" not in str(error.value)
        for name in names:
            refuse_conflicts({*names} - {name})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"fsdp": "full_shard"}, "FSDP shards weights .*: use DDP"),
        ({"early_stopping_patience": 2, "eval_strategy": "no"}, "early_stopping_patience needs dev measurements"),
        ({"largest_drop": 0}, "largest_drop compares scores within languages: give (--)?retention"),
        ({"save_steps": 0}, "save_steps 0 is not above 0"),
        ({"num_train_epochs": 0}, "num_train_epochs 0 train nothing"),
        ({"fp16": True}, "fp16 needs a GPU: on a CPU use (--)?bf16"),
    ],
)
def test_arguments_that_exclude_each_other_are_refused(settings: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=reason):
        AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **settings)


def test_stage_3_is_refused_for_models_with_objectives(tmp_path: Path) -> None:
    arguments: Any = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    arguments.hf_deepspeed_config = SimpleNamespace(is_zero3=lambda: True)  # as transformers sets it
    with pytest.raises(RecipeError, match="ZeRO-3 .* use stage 2"):
        refuse_conflicts(facts_of_model(MoCoConfig(), arguments))


def test_momentum_in_half_precision_is_refused(tmp_path: Path) -> None:
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, bf16=True)
    facts = facts_of_model(MoCoConfig(), arguments)
    refuse_conflicts(facts | {"bf16"})
    with pytest.raises(HfXsentError, match="in half precision, which rounds its small updates"):
        refuse_conflicts(facts | {"bf16", "deepspeed"})


@pytest.mark.parametrize(
    ("flag", "reason"), [("fsdp", "FSDP shards weights"), ("deepspeed", "pass (--)?deepspeed to the script")]
)
def test_what_only_the_launcher_enables_is_refused(
    flag: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"ACCELERATE_USE_{flag.upper()}", "true")
    with pytest.raises(HfXsentError, match=reason):
        AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True)


@pytest.mark.parametrize("kind", KINDS)
def test_several_gpus_in_one_process_are_refused(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "n_gpu", 2)
    with pytest.raises(HfXsentError, match=r"sees several GPUs: .*torchrun --nproc_per_node N"):
        _arguments(kind, tmp_path, use_cpu=True)


# Values


@pytest.mark.parametrize("kind", KINDS)
def test_a_uri_as_output_folder_is_refused_before_anything_is_written(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="s3://bucket/run is a URI, to which nothing is written"):
        _arguments(kind, "s3://bucket/run", use_cpu=True)  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("kind", KINDS)
def test_bf16_without_a_gpu_runs_on_the_cpu(kind: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    arguments = _arguments(kind, tmp_path, bf16=True)
    assert arguments.device.type == "cpu" and not arguments.dataloader_pin_memory
    assert not arguments.use_cpu, "the run's recipe runs on a GPU elsewhere"


@pytest.mark.parametrize("faster", [False, True])
def test_bf16_auto_is_what_is_faster_and_what_the_run_in_the_folder_has(
    faster: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_xsent.training.arguments.bfloat16_is_faster", lambda *_, **__: faster)
    for kind in (AlignmentTrainingArguments, FineTuningArguments):
        for state, expected in (
            (None, faster),
            (RunState({"bf16": not faster}), not faster),
            (RunState({"bf16": not faster}, finished_at_step=2), not faster),
        ):
            folder = tmp_path / f"{kind.__name__} {state}"[:100]
            folder.mkdir()
            if state is not None:
                state.write(folder)
            assert _arguments(kind, folder, use_cpu=True, bf16="auto").bf16 is expected


def test_a_recipe_and_a_flag_may_say_bf16_auto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_xsent.training.arguments.bfloat16_is_faster", lambda *_, **__: True)
    stated = ["--model", "none", "--data", "de=none.tsv", "--output", str(tmp_path), "--use_cpu"]
    assert pretrain.parse([*stated, "--bf16", "auto"]).training.bf16 is True
    assert pretrain.parse([*stated, "--bf16"]).training.bf16 is True
    assert pretrain.parse([*stated, "--bf16", "false"]).training.bf16 is False


def test_a_backend_for_several_processes_does_not_stop_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, ddp_backend="gloo")
    assert arguments.world_size == 1 and arguments.ddp_backend == "gloo"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"bf16": "always"}, "bf16 takes true, false or auto, not 'always'"),
        ({"auto_find_batch_size": True}, "and so the results: lower per_device_train_batch_size"),
        ({"train_sampling_strategy": "sequential"}, "^train_sampling_strategy is not supported: drop it"),
        ({"torch_compile": True}, "^torch_compile would compile the step again"),
        ({"resume_from_checkpoint": "runs/a"}, "of the arguments has no effect: give (--)?resume, which"),
        ({"learning_rate": -1.0}, "learning_rate -1.0 is not at least 0"),
        ({"max_grad_norm": -1.0}, "max_grad_norm -1.0 is not at least 0"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps 0 is not at least 1"),
        ({"max_steps": 0}, "^max_steps 0 and num_train_epochs 0 train nothing"),
        ({"optim": "adafactor", "optim_args": "scale_parameter=True"}, "AdamW and Adafactor take no optim_args: drop"),
        ({"optim_args": "beta=0.9"}, "AdamW and Adafactor take no optim_args: drop"),
        ({"seed": -1}, "seed -1 is not at least 0"),
        ({"seed": 2**32}, "seed 4294967296 is not at least 0 and at most 4,294,967,295"),
        ({"data_seed": -5}, "data_seed -5 is not at least 0"),
    ],
)
def test_values_that_fail_or_would_be_ignored_are_refused(
    kind: Any, settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=reason):
        _arguments(kind, tmp_path, use_cpu=True, **settings)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"optim": "adagrad", "optim_args": "rank"}, "not enough values to unpack"),
        ({"adam_beta1": 1.5}, "Invalid beta parameter at index 0: 1.5"),
        ({"weight_decay": -1.0}, "Invalid weight_decay value: -1.0"),
        (
            {"lr_scheduler_kwargs": {"speed": 3}},
            r"lr_scheduler_type linear and \{'speed': 3\}: .* 'speed'; give lr_scheduler_kwargs of this schedule",
        ),
        ({"dataloader_num_workers": -1}, "num_workers option should be non-negative"),
        ({"report_to": "foo"}, "foo is not supported"),
        ({"report_to": "dvclive"}, "requires dvclive to be installed"),
        ({"optim": "galore_adamw", "optim_target_modules": "all-linear"}, "need to install `galore_torch`"),
        ({"optim_target_modules": ["query"], "adam_beta1": 1.5}, "Invalid beta parameter at index 0: 1.5"),
    ],
)
def test_settings_that_libraries_refuse_end_before_data_is_read(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    start = {"model": "org/none", "data": ["de=missing.tsv"], "output_dir": str(tmp_path / "run")}
    with pytest.raises(RecipeError, match=f"^invalid or conflicting settings: .*{reason}") as error:
        pretrain(**start, use_cpu=True, **settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("optim", ["galore_adamw", "galore_adamw_layerwise"])
def test_an_optimizer_of_some_layers_is_built_or_names_the_setting_that_fits_none(
    optim: str, model: Any, tmp_path: Path, pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = dict.fromkeys(("GaLoreAdafactor", "GaLoreAdamW", "GaLoreAdamW8bit"), torch.optim.AdamW)
    monkeypatch.setitem(sys.modules, "galore_torch", SimpleNamespace(**kinds))  # type: ignore[arg-type]
    monkeypatch.setattr(trainer_optimizer, "is_galore_torch_available", lambda: True)

    def build(modules: Any) -> Any:
        settings = {"optim": optim, "optim_target_modules": modules}
        arguments = AlignmentTrainingArguments(str(tmp_path), use_cpu=True, report_to="none", **settings)
        return AlignmentTrainer(model, arguments, {"de": pairs}, None, model.tokenizer).create_optimizer()

    for modules in ("quer", ["quer!"], "*"):
        with pytest.raises(RecipeError, match=r"^optim_target_modules .* fits no linear layer .* or all-linear"):
            build(modules)
    assert isinstance(build(["query"]), torch.optim.Optimizer)


def test_only_the_trainer_starts_a_tracker(
    model: Any, tmp_path: Path, pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[TrainerCallback] = []

    class Tracker(TrainerCallback):
        def __init__(self) -> None:
            started.append(self)

    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "trackio", Tracker)
    monkeypatch.setattr(integration_utils, "is_trackio_available", lambda: True)
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="trackio")
    assert not started
    AlignmentTrainer(model, arguments, {"de": pairs}, None, model.tokenizer)
    assert len(started) == 1


def test_a_single_pair_has_no_negatives(model: Any, tmp_path: Path, pairs: Any) -> None:
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(RecipeError, match="a batch of one pair has no negatives: give more pairs"):
        AlignmentTrainer(model, arguments, {"de": pairs[:1]}, None, model.tokenizer)


def test_a_head_rate_beside_a_given_optimizer_is_refused(model: Any, tmp_path: Path, pairs: Any) -> None:
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, head_learning_rate=1e-3)
    optimizers = (torch.optim.SGD(model.parameters(), lr=0.1), None)
    with pytest.raises(RecipeError, match="head_learning_rate has no effect on a given optimizer"):
        AlignmentTrainer(model, arguments, {"de": pairs}, None, model.tokenizer, optimizers=optimizers)


def test_calls_that_cannot_be_meant_are_one_sentence(model: Any, tmp_path: Path, pairs: Any) -> None:
    with pytest.raises(RecipeError, match=r"^args takes TrainingArguments, such as TrainingArguments\('runs/mine'\)"):
        AlignmentTrainer(model, str(tmp_path / "run"), {"de": pairs})
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    trainer = AlignmentTrainer(model, arguments, {"de": pairs}, None, model.tokenizer)
    with pytest.raises(RecipeError, match="^predict does not work here: call evaluate"):
        trainer.predict(pairs)
    with pytest.raises(RecipeError, match="^hyperparameter_search does not work here: compare settings by"):
        trainer.hyperparameter_search()


def test_weights_that_lose_small_updates_are_warned_of(
    model: Any, tmp_path: Path, pairs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    AlignmentTrainer(model, arguments, {"de": pairs}, None, model.tokenizer)
    assert "bfloat16" not in caplog.text
    AlignmentTrainer(model.bfloat16(), arguments, {"de": pairs}, None, model.tokenizer)
    assert "the weights are bfloat16, which rounds away most updates" in caplog.text


def test_a_push_without_a_network_is_one_sentence_before_training(model: Any, tmp_path: Path, pairs: Any) -> None:
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, push_to_hub=True, hub_token=None)
    with pytest.raises(OutputError, match="push_to_hub cannot create the repository"):
        AlignmentTrainer(model, arguments, {"de": pairs}, None, model.tokenizer)


WHERE_WHEN_AND_HOW_FAST = {  # fields that decide no results
    *("accelerator_config", "activation_checkpointing", "activation_checkpointing_kwargs", "dataloader_num_workers"),
    *("dataloader_pin_memory", "dataloader_prefetch_factor", "ddp_backend"),
    *("ddp_broadcast_buffers", "ddp_bucket_cap_mb", "debug", "deepspeed", "ddp_find_unused_parameters"),
    *("ddp_static_graph", "ddp_timeout", "disable_tqdm", "enable_jit_checkpoint", "eval_on_start"),
    *("fsdp_config", "gradient_accumulation_steps", "gradient_checkpointing", "gradient_checkpointing_kwargs"),
    *("hub_always_push", "hub_model_id", "hub_private_repo", "hub_revision", "hub_strategy", "hub_token"),
    *("log_level", "log_level_replica", "log_on_each_node", "logging_first_step", "logging_steps"),
    *("logging_strategy", "num_train_epochs", "output_dir", "parallelism_config", "per_device_train_batch_size"),
    *("project", "push_to_hub", "report_to", "run_name", "save_on_each_node", "save_total_limit"),
    *("restore_callback_states_from_checkpoint", "skip_memory_metrics", "torch_empty_cache_steps", "use_cpu"),
    *("trackio_bucket_id", "trackio_space_id", "trackio_static_space_id"),
}


def test_each_field_of_training_arguments_decides_results_or_not_is_refused_or_has_no_effect() -> None:
    """A field that a new version of transformers adds must be judged: batch and epochs are compared as pairs."""
    names = {field.name for field in fields(TrainingArguments) if field.init}
    assert names == DECIDING | WHERE_WHEN_AND_HOW_FAST | {*REFUSED} | WITHOUT_EFFECT
    assert not WHERE_WHEN_AND_HOW_FAST & (DECIDING | {*REFUSED} | WITHOUT_EFFECT) and not {*REFUSED} & DECIDING


# Arguments of the trainer


@dataclass
class _TheirArguments(TrainingArguments):
    pairs_per_chunk: int | None = None
    prediction_length: int = 8


def test_fields_of_a_subclass_are_read_or_refused(tmp_path: Path) -> None:
    plain = _TheirArguments(str(tmp_path), use_cpu=True, pairs_per_chunk=4, seed=3)
    ours = AlignmentTrainingArguments.of(plain)
    assert (ours.pairs_per_chunk, ours.seed) == (4, 3)
    with pytest.raises(RecipeError, match="^prediction_length of _TheirArguments has no effect here: drop it$"):
        AlignmentTrainingArguments.of(_TheirArguments(str(tmp_path), use_cpu=True, prediction_length=9))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"metric_for_best_model": "accuracy_xx"}, r"'accuracy_xx' is not measured: use accuracy, .*accuracy_de"),
        ({"metric_for_best_model": "eval_f1"}, "'f1' is not measured"),
        ({"metric_for_best_model": "loss", "greater_is_better": False}, "'loss' is not measured: use accuracy"),
        ({"metric_for_best_model": "eval_loss"}, "'loss' is not measured: use accuracy"),
        ({"metric_for_best_model": "acuracy", "load_best_model_at_end": False}, "'acuracy' is not measured"),
        ({"metric_for_best_model": "bleu", "eval_strategy": "no"}, "'bleu' is not measured"),
        ({"per_device_train_batch_size": 1}, "a batch of one pair has no negatives"),
    ],
)
def test_what_does_not_fit_the_model_or_the_dev_pairs_is_refused_before_training(
    settings: dict[str, Any], reason: str, model: Any, tmp_path: Path, pairs: Any
) -> None:
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, **settings)
    with pytest.raises(RecipeError, match=reason):
        AlignmentTrainer(model, arguments, {"de": pairs}, {"de": pairs}, model.tokenizer)


def test_a_rate_for_heads_of_a_recipe_whose_objectives_have_none_is_a_warning(
    model: Any, tmp_path: Path, pairs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, head_learning_rate=1e-3)
    AlignmentTrainer(model, arguments, {"de": pairs}, None, model.tokenizer).create_optimizer()
    assert "head_learning_rate has no effect, because the objectives have no weights" in caplog.text


@pytest.mark.parametrize(
    ("accuracies", "lowered"), [([10.0, 20.0, 30.0, 40.0], False), ([40.0, 30.0, 20.0, 10.0], True)]
)
def test_plain_arguments_lower_the_rate_if_dev_accuracy_does_not_rise(
    model: Any, tmp_path: Path, pairs: Any, monkeypatch: pytest.MonkeyPatch, accuracies: list[float], lowered: bool
) -> None:
    plain = TrainingArguments(
        str(tmp_path), use_cpu=True, max_steps=4, eval_steps=1, eval_strategy="steps", save_strategy="no",
        lr_scheduler_type="reduce_lr_on_plateau", lr_scheduler_kwargs={"patience": 1}, report_to="none",
    )  # fmt: skip
    trainer = AlignmentTrainer(model, plain, {"de": pairs}, {"de": pairs[:4]}, model.tokenizer)
    measured = iter(accuracies)
    monkeypatch.setattr(trainer, "_measure_dev", lambda dev: {"accuracy": next(measured)})
    trainer.train()
    assert (trainer.lr_scheduler.get_last_lr()[0] < plain.learning_rate) is lowered


@pytest.mark.parametrize("name", ["save_total_limit", "per_device_train_batch_size"])
def test_a_count_of_zero_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecipeError, match=f"^{name} 0 is not at least 1"):
        AlignmentTrainingArguments(str(tmp_path), use_cpu=True, **{name: 0})


@pytest.mark.parametrize(
    ("dtype", "objective", "reason"),
    [
        (torch.float16, "translation_ranking", "weights in float16 cannot be trained"),
        (torch.bfloat16, "momentum_contrast", "the momentum encoder averages weights, and bfloat16 rounds"),
    ],
)
def test_training_that_would_lose_its_updates_is_refused(
    dtype: Any, objective: str, reason: str, encoder_folders: dict[str, Path], tmp_path: Path, pairs: Any
) -> None:
    model = SentenceEncoderForPreTraining.from_backbone(
        str(encoder_folders["bert"]), max_length=16, objectives={objective: 1.0}, dtype=dtype
    )
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    with pytest.raises(RecipeError, match=reason):
        AlignmentTrainer(model, arguments, {"de": pairs}, None, model.tokenizer)


def test_a_share_of_the_steps_may_decay_and_more_than_all_may_not(
    model: Any, tmp_path: Path, pairs: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def rates(steps: int, **options: Any) -> list[float]:
        settings = {
            "learning_rate": 1.0,
            "max_steps": steps,
            "use_cpu": True,
            "save_strategy": "no",
            "report_to": "none",
        }
        schedule = {"lr_scheduler_type": "warmup_stable_decay", "warmup_steps": 0.1, "lr_scheduler_kwargs": options}
        trainer = AlignmentTrainer(model, AlignmentTrainingArguments(str(tmp_path), **settings, **schedule), pairs)
        trainer.create_optimizer_and_scheduler(steps)
        assert trainer.args.lr_scheduler_kwargs == options  # as the recipe states it
        found = []
        for _ in range(steps):
            found.append(trainer.lr_scheduler.get_last_lr()[0])
            trainer.optimizer.step()
            trainer.lr_scheduler.step()
        return found

    assert rates(20, num_decay_steps=0.5) == rates(20, num_decay_steps=10)
    for steps in (1, 2, 5, 16):
        assert steps < 3 or max(rates(steps, num_decay_steps=0.5)) == 1.0
    with pytest.raises(
        RecipeError, match="warmup_steps 1 and num_decay_steps 10 are more than the 10 steps of the run"
    ):
        rates(10, num_decay_steps=10)
    longer = {
        "lr_scheduler_type": "warmup_stable_decay",
        "warmup_steps": 50,
        "lr_scheduler_kwargs": {"num_decay_steps": 0.5},
        "use_cpu": True,
    }
    arguments = AlignmentTrainingArguments(str(tmp_path), **longer)
    assert schedule_options(arguments, 30) == {"num_decay_steps": 0}  # warms up to the end


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.1), (3, 3), (3, 1.0), (3, 5), (3, 1)])
def test_a_polynomial_schedule_may_warm_up_in_all_steps(
    model: Any, tmp_path: Path, pairs: Any, steps: int, warmup: float
) -> None:
    schedule = {"lr_scheduler_type": "polynomial", "max_steps": steps, "warmup_steps": warmup}
    arguments = AlignmentTrainingArguments(
        str(tmp_path), use_cpu=True, save_strategy="no", report_to="none", **schedule
    )
    trainer = AlignmentTrainer(model, arguments, pairs)
    trainer.train()
    assert trainer.state.global_step == steps


def test_settings_of_the_accelerator_stay_as_stated(model: Any, tmp_path: Path, pairs: Any) -> None:
    stated = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    arguments = AlignmentTrainingArguments(
        str(tmp_path), use_cpu=True, accelerator_config=stated, gradient_accumulation_steps=2
    )
    for _ in range(2):  # transformers adds num_steps, which a second trainer would refuse
        trainer = AlignmentTrainer(model, arguments, pairs)
    assert recipe_of(trainer.args)["accelerator_config"] == stated
    with pytest.raises(RecipeError, match="give gradient_accumulation_steps instead of num_steps"):
        AlignmentTrainingArguments(
            str(tmp_path), use_cpu=True, accelerator_config={"gradient_accumulation_kwargs": {"num_steps": 2}}
        )
