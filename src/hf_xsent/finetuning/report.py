"""Report the scores of a fine-tuned model, next to published scores, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from hf_xsent.evaluation.report import versions
from hf_xsent.files import write_json, write_text
from hf_xsent.finetuning.trainer import Scores
from hf_xsent.pages.tables import Table
from hf_xsent.runs.run import RESULTS, TABLE


@dataclass(frozen=True)
class FineTuningReport:
    """The scores of one benchmark after one way of training."""

    benchmark: str  # xnli, mlqa or xquad
    setting: str  # zero-shot, translate-train or, of a model without a recipe, unknown training
    scores: Scores

    def published(self) -> dict[str, dict[str, float]]:
        """Return the published scores for this benchmark and setting, by model and language."""
        text = (files("hf_xsent.finetuning") / "published.json").read_text(encoding="utf-8")
        return dict(json.loads(text).get(self.benchmark, {}).get(self.setting, {}))

    def means(self, names: Sequence[str] | None = None) -> dict[str, float]:
        """Average each score over all test sets, or over these."""
        scores = [self.scores[name] for name in names or self.scores]
        return {kind: sum(score[kind] for score in scores) / len(scores) for kind in scores[0]}

    def __str__(self) -> str:
        return f"{self.table()}\n"

    def table(self) -> str:
        """Render one row per test set with the means, then one row per published model on the same test sets."""
        published = self.published()
        reported = {name: [test for test in model if test != "mean"] for name, model in published.items()}
        body: list[list[object]] = [[name, *scores.values()] for name, scores in self.scores.items()]
        body.append([f"mean of {len(self.scores)}", *self.means().values()])
        for names in {tuple(sorted(tests)): tests for tests in reported.values()}.values():
            if {*names} < {*self.scores}:
                body.append([f"mean of the {len(names)} published", *self.means(names).values()])
        measured = Table([f"{self.benchmark}, {self.setting}", *next(iter(self.scores.values()))], body)
        if not published:
            return str(measured)
        shown = [name for name in self.scores if any(name in model for model in published.values())]
        rows: list[list[object]] = [
            [name, *(model.get(test, "") for test in shown), model["mean"], f"of {len(reported[name])}"]
            for name, model in published.items()
        ]
        return f"{measured}\n\n{Table(['published', *shown, 'mean', ''], rows)}"


def write_reports(folder: Path, reports: list[FineTuningReport], settings: Mapping[str, Any]) -> None:
    """Write results.txt and results.json into the folder of the run."""
    records = [
        {
            "benchmark": report.benchmark,
            "setting": report.setting,
            "scores": report.scores,
            "mean": report.means(),
            "published": report.published(),
        }
        for report in reports
    ]
    write_text(folder / TABLE, "\n\n".join(report.table() for report in reports) + "\n")
    write_json(folder / RESULTS, {"settings": dict(settings), "reports": records, "versions": versions()})
