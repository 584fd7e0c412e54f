"""Runs that are killed, told to stop, or break: what was saved stays, and going on changes nothing."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from training_run import Run

from hf_xsent import AlignmentTrainer
from hf_xsent.errors import OutputError, TrainingError

SCRIPT = Path(__file__).parents[2] / "trainer_scripts/run_pretrain.py"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
DAP = {"objectives": ["translation_ranking=1", "representation_translation=0.8"], "pairs_per_chunk": 2}


def _begin(run: Run, *flags: str, launch: tuple[str, ...] | list[str] = (), **changes: Any) -> subprocess.Popen[str]:
    """The command line, as a process group that can be killed as a whole."""
    recipe = run.folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(run.settings | changes), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, *launch, str(SCRIPT), str(recipe), *flags],
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _wait(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, process.communicate()[1][-4000:]
        assert time.monotonic() < until, "it never happened"


def _end(process: subprocess.Popen[str]) -> str:
    """What it had to say."""
    said = process.communicate(timeout=180)[1]
    assert process.returncode == 0, said[-4000:]
    return said


def _steps(run: Run) -> int:
    return max((line["step"] for line in run.metrics if "loss" in line), default=0) if run.begun else 0


def _losses(run: Run) -> list[tuple[int, float]]:
    return [(line["step"], line["loss"]) for line in run.metrics if "loss" in line]


def _same(run: Run, weights: dict[str, torch.Tensor], losses: list[tuple[int, float]]) -> bool:
    got = load_file(run.out / "model.safetensors")
    return _losses(run) == losses and all(torch.equal(got[name], weights[name]) for name in weights)


def test_a_run_killed_twice_ends_bit_by_bit_as_the_uninterrupted_one(run: Run) -> None:
    settings = DAP | {"max_steps": 12, "eval_steps": 2, "save_steps": 2, "save_total_limit": 1}
    run.start(**settings)
    weights, losses = load_file(run.out / "model.safetensors"), _losses(run)

    process = _begin(run, "--overwrite", **settings)
    _wait(process, lambda: any((run.out / "_unfinished").glob("checkpoint-4*")))  # in the middle of a save
    process.kill()
    process.wait()
    process = _begin(run, "--resume", **settings)
    _wait(process, lambda: _steps(run) >= 7)
    process.kill()
    process.wait()
    assert [step for step, _ in _losses(run)][:2] == [1, 2]
    run.start("--resume", **settings)
    assert _same(run, weights, losses)
    assert not (run.out / "_unfinished").exists()


@pytest.mark.slow
def test_when_one_of_two_processes_dies_the_run_ends_and_can_go_on(run: Run) -> None:
    settings = {"ddp_backend": "gloo", "max_steps": 40, "eval_steps": 4, "save_steps": 4}
    _end(_begin(run, launch=TORCHRUN, **settings))
    weights, losses = load_file(run.out / "model.safetensors"), _losses(run)

    process = _begin(run, "--overwrite", launch=TORCHRUN, **settings)
    _wait(process, lambda: 5 <= _steps(run) < 40)
    workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout
    os.kill(int(workers.split()[-1]), signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode != 0
    _end(_begin(run, "--resume", launch=TORCHRUN, **settings))
    assert _same(run, weights, losses)


def test_sigterm_saves_says_so_and_the_run_goes_on(run: Run) -> None:
    settings = {"max_steps": 40, "eval_strategy": "no", "save_strategy": "no"}
    run.start(**settings)
    weights, losses = load_file(run.out / "model.safetensors"), _losses(run)

    process = _begin(run, "--overwrite", **settings)
    _wait(process, lambda: 3 <= _steps(run) < 40)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert "stopped by SIGTERM after step" in said
    assert "--resume" in said
    assert "Traceback" not in said
    assert len(list(run.out.glob("checkpoint-*"))) == 1
    run.start("--resume", **settings)
    assert _same(run, weights, losses)


def test_a_full_disk_costs_no_checkpoint_that_was_whole(run: Run) -> None:
    run.start(max_steps=3)
    smaller = (run.out / "checkpoint-3/model.safetensors").stat().st_size // 2
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (smaller, limits[1]))
    try:
        with pytest.raises(OutputError, match="cannot write checkpoint-6 into .*make room.*--resume"):
            run.start("--resume")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [one.name for one in run.out.glob("*checkpoint*")] == ["checkpoint-3"]
    assert not (run.out / "_unfinished").exists()
    run.start("--resume")
    assert (run.out / "model.safetensors").is_file()


def test_a_disk_too_small_for_the_run_is_told_at_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(OutputError, match="GiB free but 3 checkpoints"):
        run.start()
    assert not list(run.out.glob("checkpoint-*"))


def test_a_loss_that_is_no_number_names_step_and_sentences(run: Run) -> None:
    with pytest.raises(TrainingError, match=r"step \d: the loss is no number .*4 pairs.*weights were broken already"):
        run.start(learning_rate="1e38", max_grad_norm=0, eval_strategy="no", warmup_steps=0)
    kept = (run.out / "bad_batch.jsonl").read_text().splitlines()
    assert len(kept) == 4
    assert '"target"' in kept[0]
    assert any(letter in "".join(kept) for letter in "üéäèà")  # readable as it stands


def test_a_final_model_that_cannot_be_written_leaves_nothing_half_written(run: Run) -> None:
    settings = {"eval_strategy": "no", "save_strategy": "no"}
    run.start(**settings)
    smaller = (run.out / "model.safetensors").stat().st_size // 2
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (smaller, limits[1]))
    try:
        with pytest.raises(OutputError, match="cannot write the trained model into .*make room"):
            run.start("--overwrite", **settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (run.out / "_unfinished").exists()


def test_gradients_that_are_no_numbers_do_not_reach_the_weights(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    began = AlignmentTrainer.train
    trainers = []

    def train(trainer: AlignmentTrainer, *args: Any, **kwargs: Any) -> Any:
        trainers.append(trainer)
        trainer.model.backbone.word_embeddings.weight.register_hook(lambda gradient: gradient * float("nan"))
        return began(trainer, *args, **kwargs)

    monkeypatch.setattr(AlignmentTrainer, "train", train)
    with pytest.raises(TrainingError, match="step 1: the gradients are no numbers.*the weights before it are sound"):
        run.start()
    assert all(weight.isfinite().all() for weight in trainers[0].model.parameters())
