"""Compare each method with the best one of a study, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from hf_xsent.comparison.runs import Run
from hf_xsent.comparison.tasks import task_class
from hf_xsent.evaluation.significance import Difference, paired_differences
from hf_xsent.evaluation.task import Outcomes


def differences_to_best(
    task: str, column: Sequence[str], summary: Sequence[Mapping[str, Any]], runs: Sequence[Run]
) -> dict[str, Any]:
    """Return the best row of a column of scores, and the difference of every other row to it.

    The 95% interval combines the noise of test items (paired bootstrap), if both rows have outcomes, and the noise of
    seeds (Welch's t interval), for rows with several seeds. It is None if neither kind of noise can be computed:
    that of items needs outcomes of both rows, that of seeds needs several of each trained row.
    """
    group, name = column
    scored = [(row["groups"][task][group][name], row) for row in summary if _has(row, task, group, name)]
    if not scored:
        return {}
    scored.sort(key=lambda one: -one[0][0])
    (best, winner), *rest = scored
    outcomes = {_key(row): _outcomes(runs, row, task, group) for _, row in scored}
    others = []
    for score, row in rest:
        found = _difference(task, group, outcomes[_key(winner)], outcomes[_key(row)], (best, winner), (score, row))
        interval = None if found is None else [round(found.low, 4), round(found.high, 4)]
        value = round(score[0] - best[0], 4)
        others.append({"method": row["method"], "pooling": row["pooling"], "difference": value, "interval": interval})
    return {"best": {"method": winner["method"], "pooling": winner["pooling"]}, "others": others}


def _has(row: Mapping[str, Any], task: str, group: str, name: str) -> bool:
    return name in row["groups"].get(task, {}).get(group, {})


def _key(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["method"], row["pooling"]


def _outcomes(runs: Sequence[Run], row: Mapping[str, Any], task: str, group: str) -> list[Outcomes]:
    """Read the outcomes of a row's finished runs; return an empty list if those of any run are missing."""
    mine = [run for run in runs if (run.method, run.pooling) == _key(row) and run.finished]
    found = [run.outcomes(task) for run in mine]
    some = [one for one in found if one is not None and group in one.groups]
    if len(some) < len(mine):
        return []
    return [Outcomes({key: one.rows[key] for key in one.groups[group]}, {group: one.groups[group]}) for one in some]


def _difference(
    task: str, group: str, best: Sequence[Outcomes], other: Sequence[Outcomes], *rows: tuple[Any, Mapping[str, Any]]
) -> Difference | None:
    """Return other - best with the interval of all known noise."""
    value = rows[1][0][0] - rows[0][0][0]
    spreads = [_spread(score, row) for score, row in rows]
    error = _half_interval([one for one in spreads if one is not None])
    if best and other:
        items = paired_differences(task_class(task).main_score, best, other)[group]
        below, above = (math.hypot(items.value - end, error) for end in (items.low, items.high))
        return Difference(value, value - below, value + above)
    if None in spreads:
        return None
    return Difference(value, value - error, value + error)


def _spread(score: Sequence[float | None], row: Mapping[str, Any]) -> tuple[float, int] | None:
    """Return standard deviation and number of seeds: 0 and 1 for an untrained encoder, None for a single seed."""
    if score[1] is not None:
        return score[1], len(row["seeds"])
    return None if row["seeds"] else (0.0, 1)


def _half_interval(spreads: Sequence[tuple[float, int]]) -> float:
    """Return half the width of Welch's 95% interval for a difference of means over seeds."""
    variances = [(deviation**2 / count, count - 1) for deviation, count in spreads if deviation]
    total = sum(variance for variance, _ in variances)
    if not total:
        return 0.0
    freedom = total**2 / sum(variance**2 / degrees for variance, degrees in variances)
    return float(stats.t.ppf(0.975, freedom)) * math.sqrt(total)
