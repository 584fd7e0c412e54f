"""Each figure of a table in the docs is in a result file under benchmarks/results, or its table says otherwise."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from figures import RESULTS, FigureTable, figure_tables

ROOT = Path(__file__).resolve().parents[1]
OF_PAPERS = {"paper_values.md", "settings.md", "reproduce.md", "troubleshooting.md"}  # papers' figures, and settings
PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md"]
PAGES += [page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in OF_PAPERS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_figures_of_every_table_are_in_the_results_that_it_names(page: Path) -> None:
    problems = [problem for table in figure_tables(page) if (problem := _problem(table))]
    assert not problems, "\n".join(problems)


def _problem(table: FigureTable) -> str:
    if table.files is None:
        return f"line {table.line}: write <!-- results: FILE.json --> above the table, or <!-- results: none -->"
    if missing := [file for file in table.files if not (RESULTS / file).is_file()]:
        return f"line {table.line}: benchmarks/results has no {missing[0]}"
    if not table.checked or table.unheld() == table.besides:
        return ""
    return (
        f"line {table.line}: {' '.join(table.files)} do not hold {' '.join(table.unheld())}: mend the figures, or list "
        "them after '; besides:' if they are computed or published"
    )


def test_a_stale_figure_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    table = "| encoder | F1 |\n|---|---|\n| not trained | {} |\n"
    for text, problem in (
        (table.format("93.24"), "write <!-- results"),
        ("<!-- results: document_alignment.json -->\n\n" + table.format("93.24"), ""),
        ("<!-- results: document_alignment.json -->\n\n" + table.format("94.11"), "do not hold 94.11"),
        ("<!-- results: document_alignment.json; besides: 94.11 -->\n\n" + table.format("94.11"), ""),
        ("<!-- results: old.json -->\n\n" + table.format("94.11"), "has no old.json"),
    ):
        page.write_text(text, encoding="utf-8")
        (read,) = figure_tables(page)
        assert problem in _problem(read) and bool(problem) == bool(_problem(read))


def test_the_picture_of_a_mixed_pool_and_its_caption_are_those_of_the_results() -> None:
    results = json.loads((RESULTS / "suite.json").read_text("utf-8"))
    script = runpy.run_path(str(ROOT / "benchmarks" / "mixed_pool_picture.py"))
    assert (ROOT / "docs/images/mixed_pool.svg").read_text("utf-8") == script["picture"](results)
    caption = " ".join((ROOT / "README.md").read_text("utf-8").split())
    runs = {run["settings"]["model"]: run["groups"]["all"] for run in results["runs"] if run["task"] == "mixed_pool"}
    before, after = runs["start"], runs["mixed"]
    for figure in ("beside", "own"):
        assert f"{before[figure]:.1f}%" in caption and f"{after[figure]:.1f}%" in caption
