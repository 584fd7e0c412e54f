"""Report the scores of a fine-tuned model, next to published figures, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from hf_xsent.evaluation.report import render_table, versions
from hf_xsent.files import write_json, write_text
from hf_xsent.finetuning.trainer import Scores

RESULTS, TABLE = "results.json", "results.txt"


@dataclass(frozen=True)
class FineTuningReport:
    """The scores of one benchmark after one way of training."""

    benchmark: str  # xnli, mlqa or xquad
    setting: str  # zero-shot, translate-train or, of a model without a recipe, unknown training
    scores: Scores

    def published(self) -> dict[str, dict[str, float]]:
        """Return the papers' figures for this benchmark and setting, by model and language."""
        text = (files("hf_xsent.finetuning") / "published.json").read_text(encoding="utf-8")
        return dict(json.loads(text).get(self.benchmark, {}).get(self.setting, {}))

    def means(self, names: Sequence[str] | None = None) -> dict[str, float]:
        """Average each score over all test sets, or over these."""
        some = [self.scores[name] for name in names or self.scores]
        return {kind: sum(one[kind] for one in some) / len(some) for kind in some[0]}

    def table(self) -> str:
        """Render one row per test set, and the means over all sets and over those that papers report."""
        published = self.published()
        reported = [name for name in next(iter(published.values()), {}) if name != "mean"]
        body: list[list[object]] = [
            [name, *scores.values(), *(model.get(name, "") for model in published.values())]
            for name, scores in self.scores.items()
        ]
        body.append([f"mean of {len(self.scores)}", *self.means().values(), *("" for _ in published)])
        if reported and {*reported} <= {*self.scores}:
            means = (model["mean"] for model in published.values())
            body.append([f"mean of their {len(reported)}", *self.means(reported).values(), *means])
        kinds = next(iter(self.scores.values()))
        return render_table([f"{self.benchmark}, {self.setting}", *kinds, *published], body)


def write_reports(folder: Path, reports: list[FineTuningReport], settings: Mapping[str, Any]) -> None:
    """Write results.txt and results.json into the folder of the run."""
    records = [
        {
            "benchmark": one.benchmark,
            "setting": one.setting,
            "scores": one.scores,
            "mean": one.means(),
            "published": one.published(),
        }
        for one in reports
    ]
    write_text(folder / TABLE, "\n\n".join(one.table() for one in reports) + "\n")
    write_json(folder / RESULTS, {"settings": dict(settings), "reports": records, "versions": versions()})
