"""Training runs in separate processes, which can be killed."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from forks import Fork, launch
from training_run import Run

from hf_xsent.models.saved_form import saved_weights
from hf_xsent.training.callbacks import METRICS_FILE

SCRIPT = Path(__file__).parents[2] / "trainer_scripts/run_pretrain.py"
ONE_THREAD_ON_CPU = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


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


def begin(run: Run, *flags: str, **changes: Any) -> Fork:
    """Start the script with a recipe, as ``python run_pretrain.py recipe.yaml`` does."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return Fork(_script, *arguments_of(run, *flags, **changes), log=_empty_log(run), environment=environment)


def train_together(run: Run, *flags: str, **changes: Any) -> str:
    """Train in two processes, as torchrun starts them, and return what they print."""
    return launch(2, _script, *arguments_of(run, *flags, **changes), log=_empty_log(run))


def torchrun(script: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start torchrun itself with two processes, as a process group that can be killed as a whole."""
    return subprocess.Popen(
        [sys.executable, *TORCHRUN, str(script), *arguments],
        env=os.environ | ONE_THREAD_ON_CPU,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def arguments_of(run: Run, *flags: str, **changes: Any) -> list[str]:
    """Write the recipe of a run, and return the arguments of the script."""
    recipe = run.folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(run.settings | changes), encoding="utf-8")
    return [str(recipe), *flags]


def wait(process: Fork | subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """Until it happens, while the process lives."""
    until = time.monotonic() + 120
    while not happened():
        assert process.poll() is None, process.communicate()[1][-4000:]
        assert time.monotonic() < until, "it never happened"
        time.sleep(0.002)


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
    weights, uninterrupted = saved_weights(run.out), losses(run)

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
    got = saved_weights(run.out)
    assert losses(run) == of_steps
    assert [name for name in weights if not torch.equal(got[name], weights[name])] == []


def _script(*arguments: str) -> None:
    sys.argv = [str(SCRIPT), *arguments]
    runpy.run_path(str(SCRIPT), run_name="__main__")


def _empty_log(run: Run) -> Path:
    log = run.folder / "log.txt"
    log.unlink(missing_ok=True)
    return log


def _saves(run: Run) -> bool:
    try:
        return len(os.listdir(run.out / "_unfinished")) > 0
    except FileNotFoundError:
        return False
