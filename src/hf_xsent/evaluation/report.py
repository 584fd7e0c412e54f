"""Report results as tables and JSON, and read published scores (published.json)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from hf_xsent.errors import OutputError
from hf_xsent.evaluation.significance import LEAST_ITEMS, Difference, paired_differences
from hf_xsent.evaluation.task import Encode, EvaluationTask, Metrics, Outcomes, Scores, count_cut
from hf_xsent.pages.tables import Table

# Of the metrics beside the main ones.
_HIGHER_IS_BETTER = {
    "alone",
    "backward",
    "forward",
    "margin",
    "mean",
    "mean_5",
    "mrr",
    "pool",
    "r_precision",
    "recall",
    "recall_10",
}
_NO_INTERVAL = f"a difference without an interval is of fewer than {LEAST_ITEMS} items"
NOTE = "* the 95% interval of the difference to the first model excludes 0 (paired bootstrap over test items)"
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
    data: str = ""  # an id on the Hub, or names of files or folders
    cut: dict[str, list[int]] = field(default_factory=dict)  # queries, documents, texts: beyond max_length, of all
    compared_with: str = ""  # the first of several models
    differences: dict[str, dict[str, list[Any]]] = field(  # to it: value, low and high of each metric
        default_factory=dict
    )

    @classmethod
    def of(
        cls,
        task: EvaluationTask,
        settings: Mapping[str, Any],
        scores: Scores | None = None,
        encode: Encode | None = None,
    ) -> Report:
        """Make the report of these scores by ``encode``; without scores it is empty but has the same ``stamp``."""
        scores = scores or Scores({}, {})
        groups, languages = (
            {name: {key: round(value, 4) for key, value in figures.items()} for name, figures in part.items()}
            for part in (scores.groups, scores.languages)
        )
        settings = {**settings, **task.settings}
        cut = count_cut(encode, task.inputs())
        return cls(task.name, task.protocol, settings, task.fingerprint, versions(), groups, languages, task.data, cut)

    @property
    def stamp(self) -> str:
        """Return everything that determines the scores, as JSON."""
        names = ("task", "protocol", "settings", "data_fingerprint", "versions")
        return json.dumps({name: getattr(self, name) for name in names}, sort_keys=True)

    @property
    def key(self) -> str:
        """Return task, settings and data as JSON, without weights and start: a model has one report for each key."""
        settings = {name: self.settings[name] for name in self.settings if name not in ("model_fingerprint", "start")}
        return json.dumps([self.task, settings, self.data_fingerprint], sort_keys=True)

    def measures_as(self, other: Report) -> bool:
        """Return whether both measured the same weights in the same way; ``key`` compares the rest."""
        of_both = [(r.protocol, r.versions, r.settings.get("model_fingerprint")) for r in (self, other)]
        return of_both[0] == of_both[1]

    @property
    def compares(self) -> bool:
        """Return whether the model was compared with another or, by ``retention``, with its start."""
        return bool(self.differences) or "start" in self.settings

    def rows(self) -> Iterator[tuple[str, str, Metrics]]:
        """Yield label, name and metrics of each language, and of each group that is not one of them."""
        yield from ((name, name, metrics) for name, metrics in self.languages.items())
        groups = {name: metrics for name, metrics in self.groups.items() if name not in self.languages}
        yield from ((f"mean of {name}", name, metrics) for name, metrics in groups.items())

    def records(self, headings: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        """Yield a record of each language or group, and metric, with the difference to the first model and its ends."""
        for _, name, metrics in self.rows():
            for metric, score in metrics.items():
                ends = zip(("difference", "low", "high"), self.differences.get(name, {}).get(metric, ()), strict=False)
                names_of = {"of": name, "metric": metric, "heading": headings.get(metric, metric)}
                yield {**names_of, "score": score, **dict(ends)}

    def table(self, title: str, task: EvaluationTask | type[EvaluationTask]) -> Table:
        """Tabulate all metrics that were measured: a row for each language and for the mean of each group."""
        measured = [key for key in task.headings if any(key in metrics for *_, metrics in self.rows())]
        rows = [[label, *(metrics.get(key) for key in measured)] for label, _, metrics in self.rows()]
        return Table([title, *(task.headings[key] for key in measured)], rows)

    def text(self, task: EvaluationTask) -> str:
        """Format table, settings and protocol as text."""
        return f"{self.table(task.title, task)}\n{join_settings(self.settings)}\n{self.protocol}"

    @property
    def cut_texts(self) -> str:
        """Say how many texts were longer than the model reads; empty if none was."""
        parts = [f"{cut:,} of {count:,} {role}" for role, (cut, count) in self.cut.items() if cut]
        if not parts:
            return ""
        return f"{self.task}: {' and '.join(parts)} are longer than {self.settings['max_length']} tokens and were cut"

    def headline(self, task: EvaluationTask) -> str:
        """Format the main metric of all languages in one line."""
        rows = list(self.rows())
        label, _, metrics = next((row for row in rows if row[1] == "all"), rows[-1])
        settings = {name: value for name, value in self.settings.items() if name != "model_fingerprint"}
        heading = task.headings[task.main_metric]
        return f"{task.title}, {join_settings(settings)}: {heading}, {label}: {metrics[task.main_metric]:.2f}"


@dataclass(frozen=True)
class Measurement:
    """A report and the outcomes of its test items, which one file holds."""

    report: Report
    outcomes: Outcomes

    @classmethod
    def of(
        cls, task: EvaluationTask, settings: Mapping[str, Any], scores: Scores, encode: Encode | None = None
    ) -> Measurement:
        """Make the report of these scores by ``encode``, with their outcomes."""
        return cls(Report.of(task, settings, scores, encode), scores.outcomes)

    def write(self, path: Path) -> None:
        """Write the file."""
        content: dict[str, Any] = {f"rows/{name}": rows for name, rows in self.outcomes.rows.items()}
        content |= {"report": json.dumps(asdict(self.report)), "groups": json.dumps(self.outcomes.groups)}
        content |= {f"found/{name}": found for name, found in self.outcomes.found.items()}
        content["parallel"] = self.outcomes.parallel
        with path.open("wb") as file:
            np.savez_compressed(file, **content)

    @classmethod
    def read(cls, path: Path) -> Measurement:
        """Read what ``write`` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            rows, found = (
                {name.removeprefix(kind): arrays[name] for name in arrays if name.startswith(kind)}
                for kind in ("rows/", "found/")
            )
            outcomes = Outcomes(rows, json.loads(str(arrays["groups"])), bool(arrays["parallel"]), found)
            return cls(Report(**json.loads(str(arrays["report"]))), outcomes)


def compare_with_first(task: EvaluationTask, name: str, first: Measurement, other: Measurement) -> Measurement:
    """Return the measurement of a model with its differences to the first model, which has this name."""
    differences = paired_differences(task.metrics, [first.outcomes], [other.outcomes])
    rounded = {
        key: {
            metric: [None if value is None else round(value, 4) for value in astuple(difference)]
            for metric, difference in of_key.items()
        }
        for key, of_key in differences.items()
    }
    return replace(other, report=replace(other.report, compared_with=name, differences=rounded))


def comparison_table(task: EvaluationTask, reports: Mapping[str, Report]) -> str:
    """Format the main metric of several models, means of the others, and a verdict for each model after the first."""
    first, *others = reports
    metric = task.main_metric
    figures = [(label, name, metric) for label, name, _ in reports[first].rows()]
    if others:
        differences = reports[others[0]].differences
        group = _overall(differences)
        further = [(group, key) for key in task.headings if key in differences[group] and key != metric]
        for of, means in reports[first].groups.items():  # what only later models have
            later = {key for other in others for key in reports[other].groups[of]}
            further += [(of, key) for key in task.headings if key in later - means.keys()]
        figures += [(f"{task.headings[key]}, mean of {of}", of, key) for of, key in further]
    rows: list[list[object]] = []
    few = clear = False
    for label, name, key in figures:
        row: list[object] = [label, _figure(reports[first], name, key)]
        for other in others:
            interval = reports[other].differences[name].get(key)
            difference = Difference(*interval) if interval else None
            row.append(_figure(reports[other], name, key))
            row.append(difference and f"{difference}{' *' if difference.significant else '  '}")
            few = few or (difference is not None and difference.low is None)
            clear = clear or (difference is not None and difference.significant)
        rows.append(row)
    headings = (heading for name in others for heading in (name, "difference (95% interval)"))
    title = f"{task.title}, {task.headings[metric]}"
    verdicts = "\n".join(_verdict(task, first, name, reports[name]) for name in others)
    notes = [NOTE] * clear + [_NO_INTERVAL] * few
    return "\n".join([str(Table([title, first, *headings], rows)), *notes, verdicts, task.protocol])


def _figure(report: Report, name: str, metric: str) -> float | None:
    return (report.groups | report.languages)[name].get(metric)


def _overall(differences: Mapping[str, Any]) -> str:
    """Return the group of all languages, or the last one."""
    return "all" if "all" in differences else list(differences)[-1]


def _verdict(task: type[EvaluationTask] | EvaluationTask, first: str, name: str, report: Report) -> str:
    """Write a sentence on whether a model is better than the first by the overall mean, and in which languages else."""
    differences, group = report.differences, _overall(report.differences)
    difference = Difference(*differences[group][task.main_metric])
    result = "too few items for a verdict" if difference.low is None else "no clear difference"
    if difference.significant:
        better, worse = (name, first) if difference.value > 0 else (first, name)
        result = f"{better} scores higher than {worse}"
    verdict = f"{result} (mean over group {group}); {name} - {first}: {difference}"
    of_languages = {code: Difference(*differences[code][task.main_metric]) for code in report.languages}
    clear = {code: each for code, each in of_languages.items() if each.significant}
    if len(clear) > 1 + len(of_languages) / 10:  # more than by chance, which 5% are
        for word, sign in (("higher", 1), ("lower", -1)):
            codes = [code for code, each in clear.items() if each.value * sign > 0]
            if codes and not (difference.significant and difference.value * sign > 0):
                verdict += f"; clearly {word} in {', '.join(codes)}"
    return "; but ".join([verdict, *opposite_differences(task, differences)])


def clear_difference(
    task: type[EvaluationTask] | EvaluationTask, differences: Mapping[str, Mapping[str, list[Any]]]
) -> bool:
    """Return whether the overall mean of the main metric clearly differs."""
    return Difference(*differences[_overall(differences)][task.main_metric]).significant


def opposite_differences(
    task: type[EvaluationTask] | EvaluationTask, differences: Mapping[str, Mapping[str, list[Any]]]
) -> list[str]:
    """Name the other metrics of the overall mean that clearly differ, and not in the direction of the main one."""
    overall = differences[_overall(differences)]
    main = Difference(*overall[task.main_metric])
    others = {key: Difference(*overall[key]) for key in overall if key in _HIGHER_IS_BETTER and key != task.main_metric}
    return [
        f"{task.headings[key]} {other}"
        for key, other in others.items()
        if other.significant and not (main.significant and main.value * other.value > 0)
    ]


def task_table(task: EvaluationTask, reports: Sequence[Report]) -> str:
    """Format the reports of one task, as one table if there are several layers, next to published scores."""
    sweep = len({report.settings.get("layer") for report in reports}) > 1
    tables = [sweep_table(task, reports)] if sweep else [report.text(task) for report in reports]
    published = published_lines(task, reports[0].groups)
    return "\n\n".join("\n".join([table, *published]) for table in tables)


def sweep_table(task: EvaluationTask, reports: Sequence[Report]) -> str:
    """Format one line per layer, pooling and dimension, with the main metric of each group."""
    first = reports[0]
    varied = [key for key in first.settings if len({str(report.settings.get(key)) for report in reports}) > 1]
    names = list(first.groups or first.languages)
    rows = []
    for report in reports:
        metrics = report.groups or report.languages
        rows.append(
            [*(str(report.settings[key]) for key in varied), *(metrics[name][task.main_metric] for name in names)]
        )
    fixed = {key: value for key, value in first.settings.items() if key not in varied}
    return f"{task.title}\n{Table([*varied, *names], rows)}\n{join_settings(fixed)}\n{first.protocol}"


def join_settings(settings: Mapping[str, Any]) -> str:
    """Format settings in one line."""
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
        raise OutputError(
            f"{path} holds no results of hf-xsent evaluate, which its --output has: name another file"
        ) from error


@cache
def published_scores() -> list[dict[str, Any]]:
    """Return the published scores with task, group, model and paper; add the mean of both directions."""
    text = (files("hf_xsent.evaluation") / "published.json").read_text(encoding="utf-8")
    scores: list[dict[str, Any]] = json.loads(text)
    for score in scores:
        if "forward" in score and "backward" in score:
            score.setdefault("mean", round((score["forward"] + score["backward"]) / 2, 2))
    return scores


def published_lines(task: EvaluationTask, groups: Iterable[str]) -> list[str]:
    """Return one line per published result on one of these groups."""
    lines, measured = [], set(groups)
    for score in published_scores():
        if score["task"] == task.name and score["group"] in measured:
            figures = ", ".join(f"{task.headings[key]} {score[key]}" for key in task.headings if key in score)
            lines.append(f"published, {score['group']}: {score['model']} {figures} ({score['paper']})")
    return lines
