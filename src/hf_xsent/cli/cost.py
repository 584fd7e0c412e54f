"""Measure what training methods cost on one encoder: operations and time of a pair, beside each other.

hf-xsent cost xlm-roberta-base --data de=pairs.tsv --methods tr tr+tlm dap --output cost.json
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("model", help="Start from this encoder: a folder or a Hub id.")
    parser.add_argument("--data", nargs="+", required=True, metavar="CODE=FILE", help="Take pairs here.")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["tr", "tr+tlm", "dap"],
        help="Measure these: tr, tr+mlm, tr+tlm, dap, ppa, wacse.",
    )
    parser.add_argument("--pairs", type=int, default=32, help="Take a batch of so many pairs.")
    parser.add_argument("--max_length", type=int, default=32, help="Cut sentences after this many tokens.")
    parser.add_argument("--repeats", type=int, default=5, help="Take the median of so many steps.")
    parser.add_argument("--device", default="cpu", help="Compute on this device.")
    parser.add_argument("--output", metavar="FILE", help="Write the figures to this JSON file as well.")


def run(arguments: argparse.Namespace) -> None:
    """Read a batch, measure each method, print the table."""
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
    costs = training_cost(
        arguments.model, pairs, arguments.methods, arguments.max_length, arguments.repeats, arguments.device
    )
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
