"""A small training run, from recipe to folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import yaml

from hf_xsent import AlignmentTrainer
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.runs.run import RUN_STATE_FILE
from hf_xsent.training.pretrain import pretrain

Pairs = list[tuple[str, str]]


def unfinish(out: Path, *checkpoints: str) -> None:
    """Remove checkpoints and the final model, as if the run had been killed before."""
    for name in checkpoints:
        shutil.rmtree(out / name)
    state = json.loads((out / RUN_STATE_FILE).read_text("utf-8"))
    for name in state["files"]:
        shutil.rmtree(out / name) if (out / name).is_dir() else (out / name).unlink()
    (out / RUN_STATE_FILE).write_text(json.dumps(state | {"files": [], "finished_at_step": None}), "utf-8")


class Run:
    """A recipe of plain settings beside its data; ``start`` runs it with more flags."""

    def __init__(self, folder: Path, encoder: Path, pairs: Pairs) -> None:
        self.folder, self.out = folder, folder / "out"
        for language, some in (("de", pairs[:10]), ("fr", pairs[10:])):
            text = "".join(f"{source}\t{target}\n" for source, target in some)
            (folder / f"{language}.tsv").write_text(text, encoding="utf-8")
        self.settings: dict[str, Any] = {
            "model": str(encoder),
            "data": [f"de={folder}/de.tsv", f"fr={folder}/fr.tsv"],
            "output_dir": str(self.out),
            "cache_dir": str(folder / "cache"),
            "clean": False,
            "dev_pairs": 2,
            "max_length": 24,
            "method": "dap",
            "objectives": {"translation_ranking": 1},
            "learning_rate": "1e-3",
            "per_device_train_batch_size": 4,
            "max_steps": 6,
            "logging_steps": 1,
            "eval_steps": 3,
            "save_steps": 3,
            "use_cpu": True,
            "report_to": "none",
        }

    def write(self, changes: dict[str, Any]) -> Path:
        """Write the recipe with some changes."""
        recipe = self.folder / "recipe.yaml"
        settings = {key: value for key, value in (self.settings | changes).items() if value is not None}
        recipe.write_text(yaml.safe_dump(settings), encoding="utf-8")
        return recipe

    def start(self, *flags: str, **changes: Any) -> AlignmentTrainer:
        return pretrain.run([str(self.write(changes)), *flags])

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]

    def assert_goes_on_exactly(self, **changes: Any) -> None:
        """Half of the run, resumed, ends bit by bit as the whole one: masks, dropout, heads and optimizer come back."""
        self.start("--overwrite", **changes)
        whole = saved_weights(self.out)
        unfinish(self.out, "checkpoint-6")
        self.start("--resume", **changes)
        for name, weight in saved_weights(self.out).items():
            assert torch.equal(weight, whole[name]), name
