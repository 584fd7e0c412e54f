"""Train several methods from one start with one budget, measure them, and write one report.

  hf-xsent compare study.yaml --output runs/study
  hf-xsent compare benchmarks/studies/dap.yaml --set model=ENCODER data="train/{language}-en.tsv.xz" budget.steps=50

Stopped, the same command goes on; finished runs are not repeated, unless what they are made of has changed. The report
(report.html, report.md, report.json) is written anew after each run.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("study", help="Compare what this YAML file says.")
    parser.add_argument(
        "--output", metavar="FOLDER", help="Keep runs and report here; default: runs/ and the study's name."
    )
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="Change the study: model=…, tasks.tatoeba.data=…"
    )
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="Check everything and list the runs; only a budget in minutes trains some steps, to learn the pace.",
    )


def run(arguments: argparse.Namespace) -> None:
    """Check, then list or compare."""
    from hf_xsent.comparison.pipeline import compare, list_runs
    from hf_xsent.comparison.report import render_markdown
    from hf_xsent.errors import TrainingError
    from hf_xsent.evaluation.report import render_table
    from hf_xsent.logs import quiet_logs

    quiet_logs()
    output = Path(arguments.output or f"runs/{Path(arguments.study).stem}")
    if arguments.dry_run:
        runs = list_runs(arguments.study, output, arguments.set)
        to_do = {"training": "to train", "measuring": "to measure"}
        rows = [
            [run.name, run.steps, "finished" if run.finished else to_do[run.doing], run.folder.name] for run in runs
        ]
        print(render_table(["run", "steps", "state", "folder"], rows))
        return
    results = compare(arguments.study, output, arguments.set)
    print(f"{render_markdown(results)}\nreport   {output / 'report.html'}")
    if failed := [one for one in results["runs"] if one["state"] != "finished"]:
        count = f"{len(failed)} of {len(results['runs'])}"
        raise TrainingError(f"{count} runs failed: the report tells why, and the same command tries them again")
