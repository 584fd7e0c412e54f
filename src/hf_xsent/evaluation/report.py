"""Report results as tables and JSON, and read published scores (published.json)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from hf_xsent.errors import OutputError
from hf_xsent.evaluation.task import EvaluationTask, Metrics, Scores
from hf_xsent.pages.tables import Table

PACKAGES = ("hf-xsent", "torch", "transformers", "tokenizers", "numpy")


@dataclass(frozen=True)
class Report:
    """The result of one task for one model and view; it has no time stamp, so that equal runs give equal reports."""

    task: str
    protocol: str
    settings: dict[str, Any]  # model, its fingerprint, pooling, layer, …
    data_fingerprint: str
    versions: dict[str, str]
    groups: dict[str, Metrics]
    languages: dict[str, Metrics]

    @classmethod
    def of(cls, task: EvaluationTask, settings: Mapping[str, Any], scores: Scores | None = None) -> Report:
        """Make the report of these scores; without scores it is empty but has the same ``stamp``."""
        scores = scores or Scores({}, {})
        groups, languages = (
            {name: {key: round(value, 4) for key, value in figures.items()} for name, figures in part.items()}
            for part in (scores.groups, scores.languages)
        )
        return cls(task.name, task.protocol, dict(settings), task.fingerprint, versions(), groups, languages)

    @property
    def stamp(self) -> str:
        """Return everything that determines the scores, as JSON."""
        decisive = {key: value for key, value in asdict(self).items() if key not in ("groups", "languages")}
        return json.dumps(decisive, sort_keys=True)

    @property
    def subject(self) -> str:
        """Return a key of task, settings and data; a new report replaces the stored report with the same key."""
        return json.dumps([self.task, self.settings, self.data_fingerprint], sort_keys=True)

    def table(self, task: EvaluationTask) -> str:
        """Format languages, groups, settings and protocol as text."""
        named = self.languages | {f"mean of {name}": figures for name, figures in self.groups.items()}
        rows = [[name, *(figures[key] for key in task.headings)] for name, figures in named.items()]
        table = Table([task.title, *task.headings.values()], rows)
        return f"{table}\n{_join(self.settings)}\n{self.protocol}"


def sweep_table(task: EvaluationTask, reports: Sequence[Report]) -> str:
    """Format one line per layer, pooling and dimension, with the main metric of each group."""
    first = reports[0]
    varied = [key for key in first.settings if len({str(one.settings.get(key)) for one in reports}) > 1]
    names = list(first.groups or first.languages)
    rows = []
    for one in reports:
        figures = one.groups or one.languages
        rows.append([*(str(one.settings[key]) for key in varied), *(figures[name][task.main_metric] for name in names)])
    fixed = {key: value for key, value in first.settings.items() if key not in varied}
    return f"{task.title}\n{Table([*varied, *names], rows)}\n{_join(fixed)}\n{first.protocol}"


def _join(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def versions() -> dict[str, str]:
    """Return the versions of the packages that a result depends on."""
    return {package: version(package) for package in PACKAGES}


def read_reports(path: str | Path) -> list[Report]:
    """Read the reports of a JSON file; return an empty list if it does not exist."""
    if not Path(path).is_file():
        return []
    try:
        runs = json.loads(Path(path).read_text(encoding="utf-8"))["runs"]
        return [Report(**run) for run in runs]
    except (ValueError, TypeError, KeyError) as error:
        raise OutputError(f"{path} exists and holds no results of this command: choose another file") from error


@cache
def published_scores() -> list[dict[str, Any]]:
    """Return the published scores with task, group, model and paper; add the mean of both directions."""
    text = (files("hf_xsent.evaluation") / "published.json").read_text(encoding="utf-8")
    figures: list[dict[str, Any]] = json.loads(text)
    for one in figures:
        if "forward" in one and "backward" in one:
            one.setdefault("mean", round((one["forward"] + one["backward"]) / 2, 2))
    return figures


def published_lines(task: EvaluationTask, groups: Iterable[str]) -> list[str]:
    """Return one line per published result on one of these groups."""
    lines, measured = [], set(groups)
    for one in published_scores():
        if one["task"] == task.name and one["group"] in measured:
            figures = ", ".join(f"{task.headings[key]} {one[key]}" for key in task.headings if key in one)
            lines.append(f"published, {one['group']}: {one['model']} {figures} ({one['paper']})")
    return lines
