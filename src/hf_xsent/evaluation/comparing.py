"""Compare models on the same task: one table with differences to the first model and their intervals."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.report import Measurement, Report
from hf_xsent.evaluation.significance import Difference, paired_differences
from hf_xsent.evaluation.task import EvaluationTask
from hf_xsent.pages.tables import Table


@dataclass(frozen=True)
class Comparison:
    """The main metric of several models on one task, and the difference of each model to the first."""

    task: EvaluationTask
    reports: Mapping[str, Report]  # by model
    differences: Mapping[str, Mapping[str, Difference]]  # by model, then by language or group

    @classmethod
    def of(cls, task: EvaluationTask, measurements: Mapping[str, Measurement]) -> Comparison:
        """Compare the outcomes of all models with those of the first."""
        outcomes = {name: measurement.outcomes for name, measurement in measurements.items()}
        first, *others = outcomes
        differences = {
            name: paired_differences(task.main_score, [outcomes[first]], [outcomes[name]]) for name in others
        }
        return cls(task, {name: measurement.report for name, measurement in measurements.items()}, differences)

    def __str__(self) -> str:
        """Format the scores of each language and group, and a verdict for each model after the first."""
        first, *others = self.reports
        metric = self.task.main_metric
        rows: list[list[object]] = []
        for label, name, metrics in self.reports[first].rows():
            row: list[object] = [label, metrics[metric]]
            for other in others:
                report, difference = self.reports[other], self.differences[other][name]
                row.append((report.groups | report.languages)[name][metric])
                row.append(f"{difference}{' *' if difference.significant else '  '}")
            rows.append(row)
        headings = (heading for name in others for heading in (name, "difference (95% interval)"))
        title = f"{self.task.title}, {self.task.headings[metric]}"
        notes = "* the interval of the difference to the first model excludes 0 (paired bootstrap over test items)"
        verdicts = "\n".join(self.verdicts())
        return f"{Table([title, first, *headings], rows)}\n{notes}\n{verdicts}\n{self.task.protocol}"

    def verdicts(self) -> Iterator[str]:
        """Yield a sentence for each model after the first: whether it is better than the first by the overall mean."""
        first, *others = self.reports
        for name in others:
            group = "all" if "all" in self.differences[name] else list(self.differences[name])[-1]
            difference = self.differences[name][group]
            if difference.significant:
                better, worse = (name, first) if difference.value > 0 else (first, name)
                yield f"{better} scores higher than {worse} (mean over group {group}); {name} - {first}: {difference}"
            else:
                yield f"no clear difference (mean over group {group}); {name} - {first}: {difference}"

    def to_dict(self) -> dict[str, Any]:
        """Return the differences as data for JSON."""
        return {
            "task": self.task.name,
            "metric": self.task.main_metric,
            "data_fingerprint": self.task.fingerprint,
            "first": next(iter(self.reports)),
            "settings": {name: report.settings for name, report in self.reports.items()},
            "differences": {
                name: {
                    key: {end: round(value, 4) for end, value in asdict(difference).items()}
                    for key, difference in differences.items()
                }
                for name, differences in self.differences.items()
            },
        }


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Map models to names without the folders that all of them share.

    >>> short_names(["runs/a/model", "runs/b/model"])
    {'runs/a/model': 'a/model', 'runs/b/model': 'b/model'}
    """
    if len(set(map(os.path.realpath, models))) < len(models):
        raise RecipeError(f"evaluate compares different models, but one is given twice: {', '.join(models)}")
    parts = [Path(model).parts for model in models]
    shared = 0
    while len({path[: shared + 1] for path in parts}) == 1 and all(len(path) > shared + 1 for path in parts):
        shared += 1
    return {model: str(Path(*path[shared:])) for model, path in zip(models, parts, strict=True)}
