"""Read the figures that papers report for the same groups, from published.json."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from hf_xsent.evaluation.task import EvaluationTask


@cache
def published_figures() -> list[dict[str, Any]]:
    """Return each figure with task, group, model and paper; add the mean where both directions are given."""
    text = (files("hf_xsent.evaluation") / "published.json").read_text(encoding="utf-8")
    figures: list[dict[str, Any]] = json.loads(text)
    for one in figures:
        if "forward" in one and "backward" in one:
            one.setdefault("mean", round((one["forward"] + one["backward"]) / 2, 2))
    return figures


def published_lines(task: EvaluationTask, groups: Iterable[str]) -> list[str]:
    """Return a line for each published model that was measured on one of these groups."""
    lines, measured = [], set(groups)
    for one in published_figures():
        if one["task"] == task.name and one["group"] in measured:
            figures = ", ".join(f"{task.headings[key]} {one[key]}" for key in task.headings if key in one)
            lines.append(f"published, {one['group']}: {one['model']} {figures} ({one['paper']})")
    return lines
