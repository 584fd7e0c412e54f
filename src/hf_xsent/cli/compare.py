"""Train several methods from the same start with the same budget, evaluate them, and write one report.

  hf-xsent compare study.yaml --output runs/study
  hf-xsent compare benchmarks/studies/dap.yaml --set model=ENCODER data="train/{language}-en.tsv.xz" budget.steps=50

Interrupted? The same command resumes. A finished run is repeated only if its settings or data changed. The report
(report.html, report.md, report.json, TASK.svg) is updated after each run. To use several GPUs or cores, start the
command once for each: the processes share the runs, and none is done twice.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hf_xsent.cli.flags import add_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("study", help="Read the study from this YAML file.")
    folder = "Write runs and report into this folder. (default: runs/ and the study's name)"
    add_output(parser, "FOLDER", folder, required=False)
    add(
        "--set",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="Override the study: model=… budget.steps=50",
    )
    dry_run = "Validate and list the runs without training; for a budget in minutes, time a few steps."
    add("--dry_run", action="store_true", help=dry_run)


def run(arguments: argparse.Namespace) -> None:
    """Validate, then list the runs or compare."""
    from hf_xsent.comparison.compare import compare, list_runs
    from hf_xsent.comparison.report import report_document
    from hf_xsent.errors import TrainingError
    from hf_xsent.pages.tables import Table

    output = Path(arguments.output or f"runs/{Path(arguments.study).stem}")
    if arguments.dry_run:
        runs = list_runs(arguments.study, output, arguments.set)
        to_do = {"training": "to train", "measuring": "to measure"}
        rows = [
            [one.name, one.steps, "finished" if one.finished else to_do[one.stage], one.folder.name] for one in runs
        ]
        print(Table(["run", "steps", "state", "folder"], rows))
        return
    results = compare(arguments.study, output, arguments.set)
    print(f"{report_document(results).markdown()}\nreport   {output / 'report.html'}")
    states = [one["state"] for one in results["runs"]]
    if failed := states.count("failed"):
        count = f"{failed} of {len(states)}"
        raise TrainingError(f"{count} runs failed: see the report for the reason; the same command retries them")
    if unfinished := states.count("unfinished"):
        print(f"{unfinished} of {len(states)} runs are unfinished: other processes work on them")
