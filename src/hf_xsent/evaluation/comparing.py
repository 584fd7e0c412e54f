"""Compare models on the same tasks: one table per task, with differences to the first model and their intervals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.report import Report, read_reports, render_table
from hf_xsent.evaluation.runner import describe, evaluate_tasks
from hf_xsent.evaluation.significance import Difference, paired_differences
from hf_xsent.evaluation.task import EvaluationTask, Outcomes
from hf_xsent.files import check_writable, write_json

if TYPE_CHECKING:
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.models.sentence_encoder import View

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Comparison:
    """The main figure of several models on one task, and the differences of all others to the first."""

    task: EvaluationTask
    reports: Mapping[str, Report]  # by model
    differences: Mapping[str, Mapping[str, Difference]]  # by model, then by language or group

    @classmethod
    def of(cls, task: EvaluationTask, reports: Mapping[str, Report], outcomes: Mapping[str, Outcomes]) -> Comparison:
        """Compare the outcomes of all models with those of the first."""
        first, *others = reports
        found = {name: paired_differences(task.figure, [outcomes[first]], [outcomes[name]]) for name in others}
        return cls(task, reports, found)

    def table(self) -> str:
        """Format languages, groups and a sentence per model."""
        first, *others = self.reports
        rows = []
        for label, name, figures in _figures(self.reports[first]):
            row = [label, figures[self.task.main]]
            for other in others:
                theirs = self.reports[other]
                row += [(theirs.groups | theirs.languages)[name][self.task.main], _shown(self.differences[other][name])]
            rows.append(row)
        headings = (heading for name in others for heading in (name, "difference (95% interval)"))
        title = f"{self.task.title}, {self.task.headings[self.task.main]}"
        notes = "* the interval of the difference to the first model excludes 0 (paired bootstrap over test items)"
        sentences = "\n".join(self.sentences())
        table = render_table([title, first, *headings], rows)
        return f"{table}\n{notes}\n{sentences}\n{self.task.protocol}"

    def sentences(self) -> Iterator[str]:
        """Say for each model whether it is better than the first, by the mean over all languages."""
        first, *others = self.reports
        for name in others:
            group = "measured" if "measured" in self.differences[name] else list(self.differences[name])[-1]
            found = self.differences[name][group]
            if found.clear:
                better, worse = (name, first) if found.value > 0 else (first, name)
                yield f"{better} is better than {worse} on {group}: {found}"
            else:
                yield f"no clear difference between {first} and {name} on {group}: {found}"

    def content(self) -> dict[str, Any]:
        """Return the differences as data for JSON."""
        first = next(iter(self.reports))
        return {
            "task": self.task.name,
            "figure": self.task.main,
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

    ``open_model`` returns a model and its view. ``output`` is a JSON file of all reports and differences.
    """
    names = short_names(models)
    if output is not None:
        check_writable(output)
        read_reports(output)  # raises an error for a file of something else
    reports: dict[str, dict[str, Report]] = {task.name: {} for task in tasks}
    outcomes: dict[str, dict[str, Outcomes]] = {task.name: {} for task in tasks}
    for model in models:
        logger.info("measuring %s", model)
        embedder, views = open_model(model)
        found: dict[str, Outcomes] = {}
        done = evaluate_tasks(embedder, tasks, describe(embedder, model), views, dims, outcomes=found)
        for task, (report,) in done:
            reports[task.name][names[model]], outcomes[task.name][names[model]] = report, found[task.name]
        _write(output, reports, [])
    comparisons = []
    for task in tasks:
        comparisons.append(Comparison.of(task, reports[task.name], outcomes[task.name]))
        _write(output, reports, comparisons)
        yield comparisons[-1]


def _write(
    output: str | Path | None, reports: Mapping[str, Mapping[str, Report]], comparisons: Sequence[Comparison]
) -> None:
    if output is not None:
        runs = [asdict(report) for some in reports.values() for report in some.values()]
        write_json(output, {"runs": runs, "comparisons": [one.content() for one in comparisons]})


def _figures(report: Report) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield label, name and figures of each language and group."""
    yield from ((name, name, figures) for name, figures in report.languages.items())
    yield from ((f"mean of {name}", name, figures) for name, figures in report.groups.items())


def _shown(difference: Difference) -> str:
    return f"{difference}{' *' if difference.clear else '  '}"


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
