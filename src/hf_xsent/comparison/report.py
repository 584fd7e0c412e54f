"""The report of a study in its three files: report.json, report.md and report.html."""

from __future__ import annotations

from pathlib import Path

from hf_xsent.comparison.page import PUBLISHED_NOTE, describe, render_page
from hf_xsent.comparison.tables import Results, cost_table, state_table, task_table
from hf_xsent.files import write_json, write_text


def write_reports(output: Path, results: Results) -> None:
    """The same three times: for programs, for text, for browsers."""
    write_json(output / "report.json", results)
    for name, text in (("report.md", render_markdown(results)), ("report.html", render_page(results))):
        write_text(output / name, text)


def render_markdown(results: Results) -> str:
    """The tables, for a README or a terminal."""
    parts = [f"# {results['title']}", describe(results)]
    for task, about in results["tasks"].items():
        if about["columns"]:
            note = f" {PUBLISHED_NOTE}" if task in results["published"] else ""
            parts += [f"## {task}", f"{about['protocol']}.{note}", task_table(results, task).markdown()]
    for title, table in (("What training cost", cost_table(results)), ("Not finished", state_table(results))):
        if table.rows:
            parts += [f"## {title}", table.markdown()]
    return "\n\n".join(parts) + "\n"
