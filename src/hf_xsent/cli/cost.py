"""Measure what training methods cost on one encoder: operations and time per pair.

hf-xsent cost xlm-roberta-base --data de=pairs.tsv --methods tr tr+tlm dap --output cost.json
"""

from __future__ import annotations

import argparse


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
    add("--device", default="cpu", help="Compute on this torch device.")
    add("--output", metavar="FILE", help="Write the results to this JSON file, too.")


def run(arguments: argparse.Namespace) -> None:
    """Read one batch, measure each method on it, print the table."""
    from hf_xsent.data.bitext import load_bitext
    from hf_xsent.errors import RecipeError
    from hf_xsent.evaluation.report import render_table, versions
    from hf_xsent.files import check_writable, write_json
    from hf_xsent.logs import quiet_logs
    from hf_xsent.training.measuring import check_methods, training_cost

    quiet_logs()
    if arguments.pairs < 2 or arguments.repeats < 1:
        raise RecipeError("--pairs must be at least 2 and --repeats at least 1")
    if arguments.output:
        check_writable(arguments.output)
    bitext = load_bitext(arguments.data)
    pairs = [bitext[number] for number in range(min(arguments.pairs, len(bitext)))]
    check_methods(arguments.methods, pairs)
    measured = (arguments.methods, arguments.max_length, arguments.repeats, arguments.device)
    costs = training_cost(arguments.model, pairs, *measured, corpus=bitext)
    first = costs[0]
    rows = [
        [one.method, one.forward_gflops, one.training_ms, one.training_ms / first.training_ms, one.encoding_ms]
        for one in costs
    ]
    print(render_table(["method", "forward GFLOP", "training ms", f"of {first.method}", "encoding ms"], rows))
    if arguments.output:
        settings = {name: getattr(arguments, name) for name in ("model", "pairs", "max_length", "repeats", "device")}
        content = {"settings": settings, "versions": versions(), "methods": [one.to_dict() for one in costs]}
        write_json(arguments.output, content)
