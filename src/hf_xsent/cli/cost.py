"""Measure what training methods cost on one encoder: operations and time per pair.

hf-xsent cost xlm-roberta-base --data de=pairs.tsv --methods tr tr+tlm dap --output cost.json
"""

from __future__ import annotations

import argparse

from hf_xsent.cli.flags import add_output, add_shared


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("model", help="Measure with this encoder: a folder or a Hub id.")
    add("--data", nargs="+", required=True, metavar="CODE=FILE", help="Read sentence pairs from these files.")
    methods = "Methods: tr, tr+mlm, tr+tlm, dap, ppa, wacse."
    add("--methods", nargs="+", default=["tr", "tr+tlm", "dap"], help=methods)
    add("--pairs", type=int, default=32, help="Batch size in pairs.")
    add("--max_length", type=int, default=32, help="Truncate sentences to N tokens.")
    add("--repeats", type=int, default=5, help="Report the median of N steps.")
    add_output(parser, "FILE", "Write the results to this JSON file, too.", required=False)
    add_shared(parser, "--device")


def run(arguments: argparse.Namespace) -> None:
    """Measure, and print the table."""
    from hf_xsent.api.analysing import measure_cost
    from hf_xsent.pages.tables import Table

    names = ("pairs", "max_length", "repeats", "device", "output")
    stated = {name: getattr(arguments, name) for name in names}
    costs = measure_cost(arguments.model, arguments.data, arguments.methods, **stated)
    first = costs[0]
    rows = [
        [one.method, one.forward_gflops, one.training_ms, one.training_ms / first.training_ms, one.encoding_ms]
        for one in costs
    ]
    print(Table(["method", "forward GFLOP", "training ms", f"of {first.method}", "encoding ms"], rows))
