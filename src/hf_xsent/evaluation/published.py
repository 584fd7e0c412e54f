"""What papers report for the same groups, to stand beside a table; published.json holds the figures."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from hf_xsent.evaluation.task import EvaluationTask


@cache
def published_figures() -> list[dict[str, Any]]:
    """Each with task, group, model, paper, and the figures by our names."""
    text = (files("hf_xsent.evaluation") / "published.json").read_text(encoding="utf-8")
    return list(json.loads(text))


def published_lines(task: EvaluationTask, groups: Iterable[str]) -> list[str]:
    """A line for each published model that was measured on one of these groups."""
    measured = set(groups)
    lines = []
    for one in published_figures():
        if one["task"] == task.name and one["group"] in measured:
            figures = ", ".join(f"{task.headings[key]} {one[key]}" for key in task.headings if key in one)
            lines.append(f"published, {one['group']}: {one['model']} {figures} ({one['paper']})")
    return lines
