"""Collect the results of runs: means over seeds, learning curves, costs, and published scores."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from hf_xsent.comparison.differences import differences_to_best
from hf_xsent.comparison.runs import LOCATION_KEYS, Run
from hf_xsent.comparison.study import Study
from hf_xsent.comparison.tasks import ALL
from hf_xsent.evaluation.report import published_scores, versions

COSTS = ("cpu_seconds", "seconds", "peak_mib")


def collect(study: Study, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the content of a report as data."""
    records = [_record(run) for run in runs]
    summary = [_summary(some) for some in _by_seed(records)]
    tasks = {name: _task(name, study.tasks[name], records) for name in study.tasks}
    return {
        "title": study.title,
        "model": study.model,
        "budget": {study.budget.unit: study.budget.amount},
        "tasks": tasks,
        "summary": summary,
        "published": _published(study.tasks, records),
        "differences": {
            name: differences_to_best(name, about["columns"][0], summary, runs)
            for name, about in tasks.items()
            if about["columns"]
        },
        "runs": records,
        "plot": study.plot,
        "versions": versions(),
    }


def _record(run: Run) -> dict[str, Any]:
    """Describe one run, finished or not."""
    metrics, failure = run.metrics(), run.failure()
    cost: dict[str, Any] = next((line for line in reversed(metrics) if "cpu_seconds" in line), {})
    state = "finished" if run.finished else "failed" if failure else "unfinished"
    return {
        "method": run.method,
        "pooling": run.pooling,
        "seed": run.seed,
        "state": state,
        "failure": failure,
        "folder": f"{run.folder.parent.name}/{run.folder.name}",
        "steps": run.steps,
        "cost": {name: cost[name] for name in COSTS if name in cost},
        "scores": {task: scores for task in run.tasks if (scores := run.scores(task)) is not None},
        "curves": _curves(metrics),
        "recipe": {key: value for key, value in run.recipe.items() if key not in LOCATION_KEYS},
    }


def _curves(metrics: Iterable[dict[str, Any]]) -> dict[str, list[list[float]]]:
    """Return the steps and values of each objective's loss and of dev accuracy."""
    curves: dict[str, list[list[float]]] = {}
    for line in metrics:
        for key, value in line.items():
            if key.startswith("loss_") or key == "eval_accuracy":
                curves.setdefault(key.removeprefix("loss_"), []).append([line["step"], value])
    return curves


def _by_seed(records: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group the runs that differ only in their seed."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["method"], record["pooling"]), []).append(record)
    return list(groups.values())


def _summary(some: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarize the finished runs of a group as one row."""
    done = [record for record in some if record["state"] == "finished"]
    tasks = list(done[0]["scores"]) if done else []
    return {
        "method": some[0]["method"],
        "pooling": some[0]["pooling"],
        "seeds": [record["seed"] for record in done if record["seed"] is not None],
        "missing": len(some) - len(done),
        "steps": some[0]["steps"],
        "groups": {task: _over_seeds([one["scores"][task]["groups"] for one in done]) for task in tasks},
        "languages": {task: _over_seeds([one["scores"][task]["languages"] for one in done]) for task in tasks},
        "cost": {
            cost: mean_and_sd(known)
            for cost in COSTS
            if (known := [one["cost"][cost] for one in done if cost in one["cost"]])
        },
    }


def mean_and_sd(values: Iterable[float]) -> list[float | None]:
    """Return the mean and the sample standard deviation, which is None for a single value."""
    some = list(values)
    sd = round(statistics.stdev(some), 4) if len(some) > 1 else None
    return [round(statistics.mean(some), 4), sd]


def _over_seeds(seeds: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, list[float | None]]]:
    """Return mean and standard deviation over seeds of each score, for the groups and languages that all seeds have."""
    return {
        group: {
            name: mean_and_sd(one[group][name] for one in seeds)
            for name in scores
            if all(name in one.get(group, {}) for one in seeds)
        }
        for group, scores in seeds[0].items()
    }


def _task(name: str, options: dict[str, Any], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Describe a task and the columns of its table: all scores on the full set, and the main score of each group."""
    scores = next((one["scores"][name] for one in records if name in one["scores"]), None)
    if scores is None:
        return {"options": options, "columns": []}
    groups, main = scores["groups"], scores["main"]
    same = [group for group in groups if group != ALL and groups[group] == groups.get(ALL)]
    full = (same or [ALL])[0] if ALL in groups else next(iter(groups))
    rest = [group for group in groups if group not in (full, ALL, *same)]
    others = (name for name in scores["headings"] if name not in (main, "pairs") and name in groups[full])
    names = [main, *others]
    return {
        "options": options,
        "protocol": scores["protocol"],
        "headings": scores["headings"],
        "main": main,
        "identity": scores["identity"],
        "columns": [*([full, name] for name in names), *([group, main] for group in rest)],
    }


def _published(tasks: Iterable[str], records: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Select the published scores on groups that were measured here; one row holds all groups of a model."""
    rows: dict[str, dict[tuple[str, str], dict[str, Any]]] = {task: {} for task in tasks}
    for one in published_scores():
        task, group = one["task"], one["group"]
        ours = next((record["scores"][task] for record in records if task in record["scores"]), {"groups": ()})
        if group in ours["groups"] and (shared := {name: one[name] for name in ours["headings"] if name in one}):
            empty = {"model": one["model"], "paper": one["paper"], "groups": {}}
            row = rows[task].setdefault((one["model"], one["paper"]), empty)
            row["groups"][group] = shared
    return {task: list(some.values()) for task, some in rows.items() if some}
