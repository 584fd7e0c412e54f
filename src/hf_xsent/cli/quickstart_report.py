"""The quickstart's report: one page of its own, without network or scripts, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from hf_xsent.data.languages import find_language
from hf_xsent.pages.charts import bar_chart, curve_chart
from hf_xsent.pages.html import Cell, Table, legend, page

BEFORE_AND_AFTER = "before training", "after"


def write_report(path: Path, results: Mapping[str, Any]) -> None:
    """Fill the template with charts and tables."""
    template = Template(files("hf_xsent.cli").joinpath("quickstart_report.html").read_text(encoding="utf-8"))
    accuracy, losses = results["accuracy"], results["losses"]
    count = len(accuracy)
    bars = {_name(code): [one["before"], one["after"]] for code, one in accuracy.items()}
    search = [[Cell(query), Cell(found), Cell(f"{cosine:.2f}", cosine)] for query, found, cosine in results["search"]]
    body = template.substitute(
        before=f"{sum(one['before'] for one in accuracy.values()) / count:.1f}",
        after=f"{sum(one['after'] for one in accuracy.values()) / count:.1f}",
        languages=count,
        pairs=f"{sum(results['pairs'].values()):,}",
        held_out=f"{sum(results['held_out'].values()):,}",
        steps=results["steps"],
        seconds=results["seconds"],
        model=escape(str(results["model"])),
        key=legend({name: number for number, name in enumerate(BEFORE_AND_AFTER)}),
        bars=bar_chart("Accuracy before and after, by language", bars, BEFORE_AND_AFTER),
        curve=curve_chart("Training loss by step", {"loss": (1, losses)}, "step", from_zero=True)
        if len(losses) > 1
        else "<p>Too few steps for a curve.</p>",
        search=Table(["Query", "Nearest", "Cosine"], search).html(sortable=False),
    )
    path.write_text(page("hf-xsent quickstart", body, ":root { --s0: #98a3ae; --s1: #3d7be6; }\n"), encoding="utf-8")


def _name(code: str) -> str:
    return "your pairs" if code == "und" else find_language(code).name
