"""Score and filter the pairs of a bitext file: cosine, and margin if pools of sentences are given.

hf-xsent score crawled.tsv --model runs/mine --output scored.tsv
hf-xsent score crawled.tsv --model runs/mine --output scored.tsv --source_pool zh.txt --target_pool en.txt
hf-xsent score pairs.tsv --model runs/mine -o clean.tsv --language de --filter min_score=0.7 max_length_ratio=2
"""

from __future__ import annotations

import argparse

from hf_xsent.cli.flags import add_output, add_shared, resumable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add_shared(parser, "pairs")
    add_shared(parser, "--model")
    add_output(parser, "FILE", "Write the scored pairs to this TSV file.")
    add(
        "--source_pool",
        metavar="FILE",
        help="Search the neighbours of targets in this file, one sentence per line; needs --target_pool.",
    )
    add(
        "--target_pool",
        metavar="FILE",
        help="Search the neighbours of sources in this file, one sentence per line; needs --source_pool.",
    )
    margins = ("ratio", "distance")
    add(
        "--margin",
        default="ratio",
        choices=margins,
        help="With pools, score by cosine / neighbours' mean cosine (ratio) or cosine - that mean (distance).",
    )
    rules = "Write only pairs that pass the cleaning rules, report what each removed; RULE=VALUE changes a rule."
    add("--filter", nargs="*", metavar="RULE=VALUE", help=rules)
    add_shared(
        parser,
        "--work",
        "--target_language",
        "--k",
        "--language",
        "--columns",
        "--pooling",
        "--max_length",
        "--precision",
        "--device",
    )


def run(arguments: argparse.Namespace) -> None:
    """Score, and print what the filter removed."""
    from hf_xsent.api.mining import score_pairs
    from hf_xsent.data.readers.columns import parse_columns

    names = ["language", "target_language", "source_pool", "target_pool", "k", "margin", "work"]
    names += ["pooling", "max_length", "precision", "device"]
    with resumable(arguments):
        scored = score_pairs(
            arguments.pairs,
            arguments.output,
            arguments.model,
            columns=parse_columns(arguments.columns),
            rules=arguments.filter,
            **{name: getattr(arguments, name) for name in names},
        )
    if scored.report is not None:
        print(scored.report.table())
    print(f"{scored.pairs:,} scored pairs are in {arguments.output}")
