"""A small study, from file to folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Pairs = list[tuple[str, str]]
RECIPE = "objectives: {translation_ranking: {weight: 1, temperature: 0.1}}\nmax_steps: 77\n"


class StudyFile:
    """A small study of two methods beside its bitext and its tests; ``write`` changes it."""

    def __init__(self, folder: Path, encoder: Path, pairs: Pairs) -> None:
        self.path, self.out = folder / "study.yaml", folder / "out"
        for language, some in (("de", pairs[:10]), ("fr", pairs[10:])):
            lines = "".join(f"{source}\t{target}\n" for source, target in some)
            (folder / f"{language}-en.tsv").write_text(lines, encoding="utf-8")
        (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
        self.content: dict[str, Any] = {
            "title": "Small & quick",
            "model": str(encoder),
            "data": f"{folder}/{{language}}-en.tsv",
            "recipe": "recipe.yaml",
            "settings": {
                "clean": False,
                "dev_pairs": 0,
                "max_length": 24,
                "learning_rate": 1e-3,
                "per_device_train_batch_size": 4,
                "logging_steps": 1,
                "eval_strategy": "no",
                "save_steps": 2,
                "use_cpu": True,
            },
            "budget": {"steps": 4},
            "poolings": ["cls"],
            "seeds": [0],
            "methods": {"none": {"train": False}, "TR": None},
            "tasks": {"retrieval": {"data": f"{folder}/{{language}}-en.tsv"}},
        }

    def write(self, **changes: Any) -> Path:
        stated = {key: value for key, value in (self.content | changes).items() if value is not None}
        self.path.write_text(yaml.safe_dump(stated, sort_keys=False), encoding="utf-8")
        return self.path
