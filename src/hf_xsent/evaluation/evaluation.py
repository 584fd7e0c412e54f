"""Hold the results of ``evaluate``: tables, data frames, and what was found for each item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hf_xsent.evaluation.report import NOTE, Measurement, Report, comparison_table, task_table
from hf_xsent.evaluation.summary import failing, notes, summary_page, summary_table
from hf_xsent.evaluation.task import EvaluationTask
from hf_xsent.pages.document import Document, fold
from hf_xsent.pages.tables import Table

_VIEW = ("pooling", "layer", "dim")
_MOST_ON_PAGE, _LONGEST_ON_PAGE = 200, 200  # failing items, and characters of a text
_MOST, _LONGEST = 5, 60  # in the terminal


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The measurements of all models, tasks, poolings, layers and dimensions; of several models, by short names."""

    tasks: Sequence[EvaluationTask]
    measurements: Sequence[Measurement]
    models: Mapping[str, str] = field(default_factory=dict)  # short names by model
    suite: bool = False
    page: str | None = None  # the file that has it

    def __str__(self) -> str:
        """Format one table of all tasks of a suite, else one per task, or per task and model; then the notes."""
        if self.suite:
            table = f"{summary_table(self.tasks, self.by_model)}\n{NOTE if len(self.by_model) == 2 else ''}"
            return "\n".join([table, *self.notes])
        tables = []
        for task in self.tasks:
            if len(self.models) > 1:
                tables.append(comparison_table(task, {name: of[task.name] for name, of in self.by_model.items()}))
            else:
                tables.append(task_table(task, [report for report in self.reports if report.task == task.name]))
        return "\n\n".join([*tables, *self.notes]) + "\n"

    __repr__ = __str__

    @property
    def reports(self) -> list[Report]:
        """The report of each measurement."""
        return [measurement.report for measurement in self.measurements]

    def to_pandas(self) -> Any:
        """Return a data frame with a row for each model, task, language or group of languages (``of``), and metric.

        ``heading`` is the metric's name in tables; ``difference``, ``low`` and ``high`` are those to the first model.
        """
        from pandas import DataFrame

        headings = {task.name: task.headings for task in self.tasks}
        measured = ((report, report.records(headings[report.task])) for report in self.reports)
        return DataFrame([{**self._names(report), **row} for report, rows in measured for row in rows])

    def items(self) -> Any:
        """Return a data frame with a row for each model and question, or direction of a pair, of your own.

        ``found`` is the text that was found first, ``right`` the one that should be, ``correct`` whether it was,
        ``own_language`` whether what was found is in the language of the query; of questions also ``rank``, that of the
        first right document among the 100 nearest, ``right_id``, ``found_id``, ``found_language`` and the metrics.
        Pairs are searched beside the other sentences of the query's language.
        """
        from pandas import DataFrame

        return DataFrame([{**self._names(report), **item} for report, items in self._items for item in items])

    def document(self) -> Document:
        """Return a page with the table of all tasks, and of each task charts, tables by language and what fails."""
        tables = self._failing(_MOST_ON_PAGE, _LONGEST_ON_PAGE)
        folded = {task: [fold(title, table.html())] for task, (title, table) in tables.items()}
        return summary_page(self.tasks, self.by_model, folded)

    @property
    def notes(self) -> list[str]:
        """Sentences on how to read the results, and the first texts that fail; of several views, those of the data."""
        all_notes = [note for task in self.tasks for note in task.notes]
        if len(self.reports) > sum(map(len, self.by_model.values())):
            return all_notes
        all_notes += notes(self.by_model)
        for task, (title, table) in self._failing(_MOST, _LONGEST).items():
            lines = [f"{task}: {title} (all: {self.page or '--page FILE'}, in Python items())"]
            for text, language, item, right, *found in table.rows:
                lines.append(f"  {item} {language}: {text} (right: {right})")
                lines += [f"    {name}: {each}" for name, each in zip(table.header[4:], found, strict=True)]
            all_notes.append("\n".join(lines))
        return all_notes

    def _failing(self, most: int, longest: int) -> dict[str, tuple[str, Table]]:
        """Return title and table of the items that fail, by task."""
        first: dict[str, dict[str, list[dict[str, Any]]]] = {}  # by task and model
        for report, items in self._items:
            first.setdefault(report.task, {}).setdefault(self._names(report)["model"], items)
        tables = {task: failing(by_model, most, longest) for task, by_model in first.items()}
        return {task: table for task, table in tables.items() if table is not None}

    @property
    def by_model(self) -> dict[str, dict[str, Report]]:
        """The first report of each model and task."""
        reports: dict[str, dict[str, Report]] = {}
        for report in self.reports:
            reports.setdefault(self._names(report)["model"], {}).setdefault(report.task, report)
        return reports

    def _names(self, report: Report) -> dict[str, Any]:
        """Return model, view and task of a measurement, the first columns of data frames."""
        model = report.settings["model"]
        view = {name: report.settings[name] for name in _VIEW if name in report.settings}
        return {"model": self.models.get(model, model), **view, "task": report.task}

    @cached_property
    def _items(self) -> list[tuple[Report, list[dict[str, Any]]]]:
        """The items of each measurement that has some."""
        tasks = {task.name: task for task in self.tasks}
        of_all = [(each.report, [*tasks[each.report.task].items(each.outcomes)]) for each in self.measurements]
        return [(report, items) for report, items in of_all if items]
