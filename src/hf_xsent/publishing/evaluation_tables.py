"""The tables of a model card, from the JSON that hf-xsent evaluate writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_xsent.errors import DataError


@dataclass(frozen=True)
class Figure:
    """One number for the card's metadata."""

    dataset_id: str
    dataset_name: str
    task_id: str
    metric: str
    metric_name: str
    value: float
    task_type: str | None = None


@dataclass(frozen=True)
class EvaluationTable:
    """One benchmark: rows for people, figures for the Hub; ``measured`` is false for a paper's figures."""

    title: str
    header: list[str]
    rows: list[list[str]]
    note: str
    results: list[Figure] = field(default_factory=list)
    measured: bool = True


def read_tables(path: str | Path) -> list[EvaluationTable]:
    """A table for each run of an evaluation file."""
    try:
        runs = json.loads(Path(path).read_text(encoding="utf-8"))["runs"]
        return [_TABLES[run["task"]](run) for run in runs]
    except OSError as error:
        raise DataError(f"cannot read the results {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} holds no results for a card: write them with hf-xsent evaluate --output") from error


def _tatoeba(run: Mapping[str, Any]) -> EvaluationTable:
    groups = {f"mean of {name}": scores for name, scores in run["groups"].items()}
    scores = run["languages"] | groups
    settings = ", ".join(f"{key} {value}" for key, value in run["settings"].items() if key != "model")
    largest = "measured" if "measured" in run["groups"] else next(iter(run["groups"]))
    count = len(run["languages"])
    return EvaluationTable(
        title=f"Tatoeba, {count} {'language' if count == 1 else 'languages'}, accuracy@1 in percent",
        header=["language", "pairs", "xx→en", "en→xx", "mean"],
        rows=[
            [name, str(one["pairs"]), *(f"{one[key]:.2f}" for key in ("forward", "backward", "mean"))]
            for name, one in scores.items()
        ],
        note=f"{run['protocol']}. {settings}.",
        results=[
            Figure(
                dataset_id="mteb/tatoeba-bitext-mining",
                dataset_name=f"Tatoeba ({count} languages, both directions)",
                task_id="tatoeba",
                metric="accuracy",
                metric_name="accuracy@1",
                value=round(run["groups"][largest]["mean"], 2),
            )
        ],
    )


_TABLES: dict[str, Callable[[Mapping[str, Any]], EvaluationTable]] = {"tatoeba": _tatoeba}
