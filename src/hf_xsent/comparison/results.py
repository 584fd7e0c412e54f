"""Collect the results of runs: means over seeds, differences to the best, costs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from scipy import stats

from hf_xsent.comparison.run import Run
from hf_xsent.comparison.study import Study
from hf_xsent.evaluation.registry import TASKS
from hf_xsent.evaluation.report import versions
from hf_xsent.evaluation.significance import paired_differences
from hf_xsent.evaluation.task import Outcomes

COSTS = ("cpu_seconds", "seconds", "peak_mib")
Record = Mapping[str, Any]  # one run as data


def collect(study: Study, runs: Sequence[Run]) -> dict[str, Any]:
    """Return the content of a report as data."""
    records = [_record(run) for run in runs]
    seeds: dict[tuple[str, str], list[Record]] = {}  # the runs that differ only in their seed
    for record in records:
        seeds.setdefault((record["method"], record["pooling"]), []).append(record)
    summary = [_summary(group) for group in seeds.values()]
    tasks = {name: _task(name, study.tasks[name], records) for name in study.tasks}
    return {
        "title": study.title,
        "budget": str(study.budget),
        "tasks": tasks,
        "summary": summary,
        "differences": {
            name: differences_to_best(name, about["columns"][0], summary, runs)
            for name, about in tasks.items()
            if about["columns"]
        },
        "runs": records,
        "versions": versions(),
    }


def _record(run: Run) -> dict[str, Any]:
    """Describe one run, finished or not."""
    metrics, failure = run.metrics(), run.failure()
    cost: Record = next((line for line in reversed(metrics) if "cpu_seconds" in line), {})
    return {
        "method": run.method,
        "model": run.model,
        "pooling": run.pooling,
        "seed": run.seed,
        "state": "finished" if run.finished else "failed" if failure else "unfinished",
        "failure": failure,
        "folder": f"{run.folder.parent.name}/{run.folder.name}",
        "steps": run.steps,
        "cost": {name: cost[name] for name in COSTS if name in cost},
        "scores": {task: asdict(measured.report) for task in run.tasks if (measured := run.measurement(task))},
        "recipe": run.published_recipe,
    }


def _summary(records: Sequence[Record]) -> dict[str, Any]:
    """Summarize the finished runs of one method and pooling as one row."""
    done = [record for record in records if record["state"] == "finished"]
    tasks = list(done[0]["scores"]) if done else []
    costs = {cost: [record["cost"][cost] for record in done if cost in record["cost"]] for cost in COSTS}
    return {
        "method": records[0]["method"],
        "model": records[0]["model"],
        "pooling": records[0]["pooling"],
        "seeds": [record["seed"] for record in done if record["seed"] is not None],
        "missing": len(records) - len(done),
        "steps": records[0]["steps"],
        "groups": {task: _over_seeds([record["scores"][task]["groups"] for record in done]) for task in tasks},
        "languages": {task: _over_seeds([record["scores"][task]["languages"] for record in done]) for task in tasks},
        "cost": {cost: mean_and_sd(values) for cost, values in costs.items() if values},
    }


def mean_and_sd(values: Sequence[float]) -> list[float | None]:
    """Return the mean and the sample standard deviation, which is None for a single value."""
    sd = round(statistics.stdev(values), 4) if len(values) > 1 else None
    return [round(statistics.mean(values), 4), sd]


def _over_seeds(seeds: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, list[float | None]]]:
    """Return mean and standard deviation over seeds of each score, for the groups and languages that all seeds have."""
    return {
        group: {
            name: mean_and_sd([seed[group][name] for seed in seeds])
            for name in scores
            if all(name in seed.get(group, {}) for seed in seeds)
        }
        for group, scores in seeds[0].items()
    }


def _task(name: str, options: Record, records: Sequence[Record]) -> dict[str, Any]:
    """Describe a task and its columns: all scores on the full set; of groups, the main score and those not of all."""
    measured = [record["scores"][name] for record in records if name in record["scores"]]
    if not measured:
        return {"options": options, "columns": []}
    scores = measured[0]
    groups, main, headings = scores["groups"], TASKS[name].main_metric, TASKS[name].headings
    full = next(group for group in groups if groups[group] == groups.get("all", groups[group]))  # such as 36
    known = {  # of any run: retention lacks the cosine for runs of another width
        group: {metric for of_run in measured for metric in of_run["groups"].get(group, {})} - {main, "pairs"}
        for group in groups
    }
    rest = [group for group in groups if groups[group] != groups[full]]
    shown = {full: known[full], **{group: known[group] - known[full] for group in rest}}
    return {
        "options": options,
        "protocol": scores["protocol"],
        "headings": dict(headings),
        "main": main,
        "identity": scores["data_fingerprint"],
        "columns": [
            [group, metric]
            for group, metrics in shown.items()
            for metric in (main, *(heading for heading in headings if heading in metrics))
        ],
    }


# Differences


def differences_to_best(task: str, column: Sequence[str], summary: Sequence[Record], runs: Sequence[Run]) -> Record:
    """Return the best row of a column of scores, and the difference of every other row to it.

    The 95% interval combines the noise of test items (paired bootstrap), if both rows have outcomes, and the noise of
    seeds (Welch's t interval), for rows with several seeds. It is None if neither kind of noise can be computed:
    that of items needs outcomes of both rows, that of seeds needs several of each trained row; or of too few items.
    """
    group, metric = column
    rows = [(row["groups"][task][group][metric], row) for row in summary if group in row["groups"].get(task, {})]
    if not rows:
        return {}
    (best_score, best), *rest = sorted(rows, key=lambda scored: -scored[0][0])
    best_outcomes, others = _outcomes(runs, best, task, group), []
    for score, row in rest:
        value = score[0] - best_score[0]
        spreads = [_spread(best_score[1], best["seeds"]), _spread(score[1], row["seeds"])]
        seeds = half_interval([spread for spread in spreads if spread is not None])
        interval = None if None in spreads else [value - seeds, value + seeds]
        if best_outcomes and (outcomes := _outcomes(runs, row, task, group)):
            items = paired_differences(TASKS[task].metrics, best_outcomes, outcomes)[group][metric]
            value, interval = items.value, None  # not of rounded scores
            if items.low is not None and items.high is not None:
                low, high = (math.hypot(value - end, seeds) for end in (items.low, items.high))
                interval = [value - low, value + high]
        interval = interval and [round(end, 4) + 0.0 for end in interval]  # + 0.0: no -0.0
        others.append({**_names(row), "difference": round(value, 4) + 0.0, "interval": interval})
    return {"best": _names(best), "others": others}


def _names(row: Record) -> dict[str, str]:
    return {"method": row["method"], "pooling": row["pooling"]}


def _outcomes(runs: Sequence[Run], row: Record, task: str, group: str) -> list[Outcomes]:
    """Read the outcomes of a row's finished runs; return an empty list if those of any run are missing."""
    finished = [run for run in runs if run.finished and (run.method, run.pooling) == (row["method"], row["pooling"])]
    outcomes = [measured.outcomes for run in finished if (measured := run.measurement(task))]
    if not all(group in items.groups for items in outcomes):
        return []
    return [
        replace(
            items, rows={name: items.rows[name] for name in items.groups[group]}, groups={group: items.groups[group]}
        )
        for items in outcomes
    ]


def _spread(deviation: float | None, seeds: Sequence[int]) -> tuple[float, int] | None:
    """Return standard deviation and number of seeds: 0 and 1 for an untrained encoder, None for a single seed."""
    if deviation is not None:
        return deviation, len(seeds)
    return None if seeds else (0.0, 1)


def half_interval(spreads: Sequence[tuple[float, int]]) -> float:
    """Return half the width of Welch's 95% interval for a difference of means over seeds.

    ``spreads`` are standard deviation and number of seeds of both means.
    """
    variances = [(deviation**2 / count, count - 1) for deviation, count in spreads if deviation]
    total = sum(variance for variance, _ in variances)
    if not total:
        return 0.0
    freedom = total**2 / sum(variance**2 / degrees for variance, degrees in variances)
    return float(stats.t.ppf(0.975, freedom)) * math.sqrt(total)
