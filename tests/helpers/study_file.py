"""A small study, from file to folder."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
import yaml
from forks import Fork

from hf_xsent.comparison import compare as comparing
from hf_xsent.comparison import process
from hf_xsent.comparison.run import Run
from hf_xsent.comparison.study import Study

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
            "settings": {
                "recipe": "recipe.yaml",
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
            "tasks": {"pairs": {"data": f"{folder}/{{language}}-en.tsv"}},
        }

    def write(self, **changes: Any) -> Path:
        stated = {key: value for key, value in (self.content | changes).items() if value is not None}
        self.path.write_text(yaml.safe_dump(stated, sort_keys=False), encoding="utf-8")
        return self.path

    def read(self, flags: Mapping[str, Sequence[str]] | None = None) -> Study:
        """Read the file as it was written last, with flags."""
        study: Study = comparing.compare.read({"output": self.out}, flags, self.path)
        return study

    def runs(self, flags: Mapping[str, Sequence[str]] | None = None) -> list[Run]:
        """Check the study and list its runs."""
        return comparing.list_runs(self.read(flags))

    def compare(self) -> Mapping[str, Any]:
        """Run the study, and return its results."""
        return comparing.compare(self.path, output=self.out).data


def start_runs_as_forks(monkeypatch: pytest.MonkeyPatch) -> list[Fork]:
    """Let comparisons start the processes of their runs as forks, and return those that are started."""
    started: list[Fork] = []

    def fork(command: Sequence[str], stdout: IO[bytes], **_: Any) -> Fork:
        assert command[1:3] == ["-m", process.__name__]
        started.append(Fork(process.main, command[3], log=Path(stdout.name)))
        return started[-1]

    constants = {name: getattr(subprocess, name) for name in ("DEVNULL", "STDOUT")}
    monkeypatch.setattr(comparing, "subprocess", SimpleNamespace(Popen=fork, **constants))
    return started
