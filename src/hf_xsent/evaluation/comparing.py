"""Compare models on the same tasks: one table per task, with differences to the first model and their intervals."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.report import Report, read_reports
from hf_xsent.evaluation.runner import describe, evaluate_tasks, settings_of_views
from hf_xsent.evaluation.significance import Difference, paired_differences
from hf_xsent.evaluation.task import EvaluationTask, Outcomes, check_distinct
from hf_xsent.files import check_writable, digest, write_json, writing
from hf_xsent.pages.tables import Table

if TYPE_CHECKING:
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.models.sentence_encoder import View

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Comparison:
    """The main metric of several models on one task, and the difference of each model to the first."""

    task: EvaluationTask
    reports: Mapping[str, Report]  # by model
    differences: Mapping[str, Mapping[str, Difference]]  # by model, then by language or group

    @classmethod
    def of(cls, task: EvaluationTask, reports: Mapping[str, Report], outcomes: Mapping[str, Outcomes]) -> Comparison:
        """Compare the outcomes of all models with those of the first."""
        first, *others = reports
        found = {name: paired_differences(task.main_score, [outcomes[first]], [outcomes[name]]) for name in others}
        return cls(task, reports, found)

    def table(self) -> str:
        """Format the scores of each language and group, and a verdict for each model after the first."""
        first, *others = self.reports
        rows = []
        for label, name, figures in _metrics(self.reports[first]):
            row = [label, figures[self.task.main_metric]]
            for other in others:
                theirs = self.reports[other]
                row += [
                    (theirs.groups | theirs.languages)[name][self.task.main_metric],
                    _shown(self.differences[other][name]),
                ]
            rows.append(row)
        headings = (heading for name in others for heading in (name, "difference (95% interval)"))
        title = f"{self.task.title}, {self.task.headings[self.task.main_metric]}"
        notes = "* the interval of the difference to the first model excludes 0 (paired bootstrap over test items)"
        verdicts = "\n".join(self.verdicts())
        table = Table([title, first, *headings], rows)
        return f"{table}\n{notes}\n{verdicts}\n{self.task.protocol}"

    def verdicts(self) -> Iterator[str]:
        """Yield a sentence for each model after the first: whether it is better than the first by the overall mean."""
        first, *others = self.reports
        for name in others:
            group = "all" if "all" in self.differences[name] else list(self.differences[name])[-1]
            found = self.differences[name][group]
            if found.significant:
                better, worse = (name, first) if found.value > 0 else (first, name)
                yield f"{better} scores higher than {worse} (mean over group {group}); {name} - {first}: {found}"
            else:
                yield f"no clear difference (mean over group {group}); {name} - {first}: {found}"

    def content(self) -> dict[str, Any]:
        """Return the differences as data for JSON."""
        first = next(iter(self.reports))
        return {
            "task": self.task.name,
            "metric": self.task.main_metric,
            "first": first,
            "differences": {
                name: {key: {k: round(v, 4) for k, v in asdict(one).items()} for key, one in found.items()}
                for name, found in self.differences.items()
            },
        }


def compare_models(
    models: Sequence[str],
    open_model: Callable[[str], tuple[SentenceEmbedder, Sequence[View] | None]],
    tasks: Sequence[EvaluationTask],
    dims: Sequence[int] | None = None,
    output: str | Path | None = None,
) -> Iterator[Comparison]:
    """Measure the models one after the other, then yield the comparison of each task.

    ``open_model`` returns a model and its views: a list of one view (layer and pooling), or None for the model's own.
    ``dims`` is None or a list of one dimension. ``output`` is a JSON file, to which the reports
    and differences are written. A report in this file is reused if ``OUTPUT.work`` has the report's results per item.
    Other models' reports stay in the file.
    """
    check_distinct(tasks)
    names = short_names(models)
    store = None if output is None else _Store(Path(output))
    reports: dict[str, dict[str, Report]] = {task.name: {} for task in tasks}
    outcomes: dict[str, dict[str, Outcomes]] = {task.name: {} for task in tasks}
    for model in models:
        embedder, views = open_model(model)
        name, stated, found = names[model], describe(embedder, model), dict[str, Outcomes]()
        missing = []
        for task in tasks:
            stamp = Report.of(task, settings_of_views(embedder, stated, views, dims)[0][2]).stamp
            known = None if store is None else store.read(stamp)
            if known is None:
                missing.append(task)
            else:
                reports[task.name][name], outcomes[task.name][name] = known
        logger.info("measuring %s" if missing else "%s is measured already", model)
        for task, (report,) in evaluate_tasks(embedder, missing, stated, views, dims, outcomes=found):
            reports[task.name][name], outcomes[task.name][name] = report, found[task.name]
            if store is not None:
                store.add(report, found[task.name])
    comparisons = []
    for task in tasks:
        ordered = {names[model]: reports[task.name][names[model]] for model in models}
        comparisons.append(Comparison.of(task, ordered, outcomes[task.name]))
        if store is not None:
            runs = [reports[one.name][names[model]] for one in tasks for model in models]
            stamps = {report.stamp for report in runs}
            store.write([*runs, *(one for stamp, one in store.reports.items() if stamp not in stamps)], comparisons)
        yield comparisons[-1]


class _Store:
    """The JSON file of reports, and a folder with the outcomes of each."""

    def __init__(self, output: Path) -> None:
        self.output, self.folder = output, Path(f"{output}.work")
        check_writable(output)
        self.reports = {report.stamp: report for report in read_reports(output)}

    def read(self, stamp: str) -> tuple[Report, Outcomes] | None:
        """Return the report with this stamp and its outcomes, or None."""
        if stamp not in self.reports:
            return None
        try:
            with np.load(self._file(stamp), allow_pickle=False) as arrays:
                rows = {name.removeprefix("rows/"): arrays[name] for name in arrays if name.startswith("rows/")}
                return self.reports[stamp], Outcomes(rows, json.loads(str(arrays["groups"])))
        except (OSError, EOFError, ValueError, KeyError, BadZipFile):  # missing or damaged: measured again
            return None

    def add(self, report: Report, outcomes: Outcomes) -> None:
        """Store the outcomes, then the report next to the earlier ones."""
        arrays: dict[str, Any] = {f"rows/{name}": rows for name, rows in outcomes.rows.items()}
        with writing(self._file(report.stamp)) as part, part.open("wb") as file:
            np.savez_compressed(file, groups=json.dumps(outcomes.groups), **arrays)
        self.reports[report.stamp] = report
        self.write(list(self.reports.values()), [])

    def write(self, reports: Sequence[Report], comparisons: Sequence[Comparison]) -> None:
        """Write the file."""
        runs = [asdict(report) for report in reports]
        write_json(self.output, {"runs": runs, "comparisons": [one.content() for one in comparisons]})

    def _file(self, stamp: str) -> Path:
        return self.folder / f"{digest([stamp])}.npz"


def _metrics(report: Report) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield label, name and metrics of each language and group."""
    yield from ((name, name, figures) for name, figures in report.languages.items())
    yield from ((f"mean of {name}", name, figures) for name, figures in report.groups.items())


def _shown(difference: Difference) -> str:
    return f"{difference}{' *' if difference.significant else '  '}"


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Map models to names without the folders that all of them share.

    >>> short_names(["runs/a/model", "runs/b/model"])
    {'runs/a/model': 'a/model', 'runs/b/model': 'b/model'}
    """
    if len(set(models)) < len(models):
        raise RecipeError(f"evaluate compares different models, but one is given twice: {', '.join(models)}")
    parts = [Path(model).parts for model in models]
    shared = 0
    while len({some[: shared + 1] for some in parts}) == 1 and all(len(some) > shared + 1 for some in parts):
        shared += 1
    return {model: str(Path(*some[shared:])) for model, some in zip(models, parts, strict=True)}
