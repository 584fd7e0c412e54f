"""Training runs in processes of their own, as the command line starts them: they can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import load_file
from training_run import Run

from hf_xsent.training.callbacks import METRICS_FILE

SCRIPT = Path(__file__).parents[2] / "trainer_scripts/run_pretrain.py"
ONE_THREAD_ON_CPU = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def torchrun(processes: int = 2) -> tuple[str, ...]:
    """The launcher of this many processes, as arguments of python."""
    return ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes))


TORCHRUN = torchrun()


def launched(script: Path, *arguments: str, launch: Sequence[str] = TORCHRUN, **environment: str) -> str:
    """Run a script under a launcher to its end, and return what it printed."""
    done = subprocess.run(
        [sys.executable, *launch, str(script), *arguments],
        env=os.environ | ONE_THREAD_ON_CPU | environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def begin(run: Run, *flags: str, launch: Sequence[str] = (), **changes: Any) -> subprocess.Popen[str]:
    """The command line, as a process group that can be killed as a whole."""
    recipe = run.folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(run.settings | changes), encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, *launch, str(SCRIPT), str(recipe), *flags],
        env=os.environ | ONE_THREAD_ON_CPU,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """Until it happens, while the process lives."""
    until = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, process.communicate()[1][-4000:]
        assert time.monotonic() < until, "it never happened"


def end(process: subprocess.Popen[str]) -> str:
    """What it had to say."""
    said = process.communicate(timeout=180)[1]
    assert process.returncode == 0, said[-4000:]
    return said


def steps(run: Run) -> int:
    """How many were logged; the run may be about to begin its log."""
    try:
        return max((line["step"] for line in run.metrics if "loss" in line), default=0)
    except FileNotFoundError:
        return 0


def losses(run: Run) -> list[tuple[int, float]]:
    """Of each step."""
    return [(line["step"], line["loss"]) for line in run.metrics if "loss" in line]


def assert_survives_kills(run: Run, **changes: Any) -> None:
    """Killed while it saves, and again later: it ends bit by bit as the uninterrupted one."""
    settings = {"max_steps": 12, "eval_steps": 2, "save_steps": 2, "save_total_limit": 1} | changes
    run.start(**settings)
    weights, uninterrupted = load_file(run.out / "model.safetensors"), losses(run)

    (run.out / METRICS_FILE).unlink()
    process = begin(run, "--overwrite", **settings)
    wait(process, lambda: (steps(run) >= 3 and _saves(run)) or steps(run) >= 9)  # a save may be too quick to be seen
    process.kill()
    process.communicate()
    process = begin(run, "--resume", **settings)
    wait(process, lambda: steps(run) >= 7)
    process.kill()
    process.communicate()
    assert [step for step, _ in losses(run)][:2] == [1, 2]
    run.start("--resume", **settings)
    assert_same(run, weights, uninterrupted)
    assert not (run.out / "_unfinished").exists()


def assert_same(run: Run, weights: dict[str, torch.Tensor], of_steps: list[tuple[int, float]]) -> None:
    """To the last bit."""
    got = load_file(run.out / "model.safetensors")
    assert losses(run) == of_steps
    assert [name for name in weights if not torch.equal(got[name], weights[name])] == []


def _saves(run: Run) -> bool:
    try:
        return len(os.listdir(run.out / "_unfinished")) > 0
    except FileNotFoundError:
        return False
