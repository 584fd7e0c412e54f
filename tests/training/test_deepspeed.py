"""ZeRO 1 and 2 end where plain DistributedDataParallel does, and ``accelerate launch`` where python does."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from training_process import TORCHRUN, launched
from training_run import Run, unfinish

from hf_xsent.models.saved_form import saved_weights

pytestmark = pytest.mark.slow
needs_deepspeed = pytest.mark.skipif(
    importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed: make test-extras installs it"
)
SCRIPTS = Path(__file__).parents[2] / "trainer_scripts"
ACCELERATE = ("-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1")
SETTINGS = {
    "objectives": {"translation_ranking": 1, "representation_translation": 0.8},
    "dropout": 0.0,  # random numbers differ between launchers
    "ddp_backend": "gloo",
}
# DeepSpeed would compile an exchange through shared memory for minutes; gloo does without.
_WITHOUT_COMPILING = """
import importlib.util
import sys

if importlib.util.find_spec("deepspeed") and "--deepspeed" in sys.argv:
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
from hf_xsent.cli import program
from hf_xsent.models.saved_form import saved_weights

program(["pretrain", *sys.argv[1:]])
"""


def _train(
    run: Run, name: str, *flags: str, launch: Sequence[str] = TORCHRUN, **changes: Any
) -> dict[str, torch.Tensor]:
    """The weights that the run leaves in the folder ``name``."""
    script, recipe, out = run.folder / "train.py", run.folder / "recipe.yaml", run.folder / name
    script.write_text(_WITHOUT_COMPILING)
    recipe.write_text(yaml.safe_dump(run.settings | SETTINGS | {"output_dir": str(out)} | changes))
    launched(script, str(recipe), *flags, launch=launch, DS_ACCELERATOR="cpu")
    return saved_weights(out)


def _assert_close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(
            one[name], other[name], rtol=1e-3, atol=1e-4, msg=lambda text, name=name: name + text
        )


@needs_deepspeed
@pytest.mark.parametrize("stage", [1, 2])
def test_zero_ends_where_ddp_does_also_with_gradient_caching(run: Run, stage: int) -> None:
    zero = ("--deepspeed", str(SCRIPTS / f"deepspeed/zero{stage}.json"))
    ddp = _train(run, "ddp")
    _assert_close(_train(run, "zero", *zero), ddp)
    _assert_close(_train(run, "cached", *zero, pairs_per_chunk=2), ddp)


@needs_deepspeed
def test_zero_resumes(run: Run) -> None:
    zero = ("--deepspeed", str(SCRIPTS / "deepspeed/zero2.json"))
    whole = _train(run, "zero", *zero)
    unfinish(run.folder / "zero", "checkpoint-6")
    _assert_close(_train(run, "zero", *zero, "--resume"), whole)


def test_accelerate_launch_ends_where_python_does(run: Run) -> None:
    changes = {"ddp_backend": None}
    run.start(**SETTINGS | changes)
    python = saved_weights(run.out)
    _assert_close(_train(run, "accelerate", launch=ACCELERATE, **changes), python)
