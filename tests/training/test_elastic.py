"""A run may go on with another number of processes: the same pairs in each step, the same losses and weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from forks import launch
from torch import Tensor
from training_run import Pairs, unfinish

from hf_xsent.cli import leave
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.objectives.masked_language import Masking
from hf_xsent.runs.run import RUN_STATE_FILE
from hf_xsent.training.pretrain import pretrain

METHODS: dict[str, dict[str, Any]] = {
    "dap": {},
    "ppa": {"random_input_shuffling": False, "objectives": {"momentum_contrast": {"queue_size": 24}}},
    "wacse": {"objectives": {"aligned_word_prediction": {"masked_share": 1.0}}},
}


def _mask(masking: Masking, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Mask the same tokens in each process, where random masks differ, as dropout does."""
    masked = (ids % 3 == 0) & ~torch.isin(ids, torch.tensor(masking.special_ids))
    return torch.where(masked, masking.mask_id, ids), masked


def _train(runs: list[str]) -> None:
    Masking.__call__ = _mask  # type: ignore[method-assign]
    torch.set_num_threads(1)
    for run in runs:
        pretrain.run(run.split())
    leave(0)


class Elastic:
    """Runs of every method on 37 pairs, with 8 pairs per step over all processes."""

    def __init__(self, folder: Path, encoder: Path, pairs: Pairs) -> None:
        self.folder = folder
        joined = [
            tuple(f"{one} {pairs[(7 * n + 3) % 16][side]}" for side, one in enumerate(pairs[n % 16])) for n in range(37)
        ]
        lines = [f"{source} {n}\t{target} {n}\n" for n, (source, target) in enumerate(joined)]
        (folder / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
        linked = [{"source": source, "target": target, "links": "0-0 1-1"} for source, target in joined]
        (folder / "linked.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in linked), encoding="utf-8")
        self.settings: dict[str, Any] = {
            "model": str(encoder),
            "data": [f"de={folder}/pairs.tsv"],
            "cache_dir": str(folder / "cache"),
            "clean": False,
            "dev_pairs": 0,
            "dropout": 0.0,
            "max_length": 48,
            "learning_rate": "1e-3",
            "adam_epsilon": "1e-4",  # gradients near zero are rounding errors, which Adam would divide by each other
            "max_steps": 6,  # in an epoch of 4
            "logging_steps": 1,
            "save_steps": 3,
            "use_cpu": True,
            "ddp_backend": "gloo",
            "report_to": "none",
        }

    def start(self, name: str, processes: int, *flags: str) -> None:
        """Run all methods in folders of this name, one after the other."""
        runs = []
        for method, changes in METHODS.items():
            recipe = self.folder / f"{method}.yaml"
            settings = self.settings | changes | {"method": method, "output_dir": str(self.out(name, method))}
            settings["per_device_train_batch_size"] = 8 // processes
            settings |= {"data": [f"de={self.folder}/linked.jsonl"]} if method == "wacse" else {}
            recipe.write_text(yaml.safe_dump(settings), encoding="utf-8")
            runs.append(" ".join((str(recipe), *flags)))
        if processes == 1:
            for run in runs:
                pretrain.run(run.split())
            return
        launch(processes, _train, runs, log=self.folder / f"{name}.log")

    def out(self, name: str, method: str) -> Path:
        return self.folder / name / method

    def back_to_step_3(self, name: str) -> None:
        for method in METHODS:
            out = self.out(name, method)
            unfinish(out, "checkpoint-6")
            state = json.loads((out / RUN_STATE_FILE).read_text())
            (out / RUN_STATE_FILE).write_text(json.dumps(state | {"finished_at_step": None}))

    def assert_equal(self, name: str, other: str) -> None:
        """Every loss of every step to 1e-6, absolute or relative (a float32 has seven digits), and the weights."""
        for method in METHODS:
            both = []
            for one in (name, other):
                lines = map(json.loads, (self.out(one, method) / "metrics.jsonl").read_text().splitlines())
                both.append([line for line in lines if "loss" in line])
            assert [line["step"] for line in both[0]] == [line["step"] for line in both[1]] == [1, 2, 3, 4, 5, 6]
            for line, as_other in zip(*both, strict=True):
                for key in line:
                    if key.startswith("loss"):
                        assert line[key] == pytest.approx(as_other[key], rel=1e-6, abs=1e-6), (
                            method,
                            line["step"],
                            key,
                        )
            weights = [saved_weights(self.out(one, method)) for one in (name, other)]
            for weight, tensor in weights[0].items():
                assert (tensor.double() - weights[1][weight].double()).abs().max() < 1e-5, (method, weight)


@pytest.mark.slow
def test_two_processes_train_as_one_and_the_run_resumes_with_four_or_one(
    tmp_path: Path, encoder_folders: dict[str, Path], pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """37 pairs and 8 per step: the last batch of the epoch is no other than the first."""
    monkeypatch.setattr(Masking, "__call__", _mask)
    elastic = Elastic(tmp_path, encoder_folders["bert-mlm"], pairs)
    elastic.start("one", 1)
    elastic.start("two", 2)
    elastic.assert_equal("two", "one")
    shutil.copytree(tmp_path / "two", tmp_path / "two-four")
    shutil.copytree(tmp_path / "two", tmp_path / "two-one")
    for name, processes in (("two-one", 1), ("two-four", 4)):
        elastic.back_to_step_3(name)
        elastic.start(name, processes, "--resume")
        elastic.assert_equal(name, "one")
