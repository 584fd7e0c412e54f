"""Mine hard negatives: for each pair, the nearest sentences of both languages that are not its translations.

hf-xsent mine-negatives "train/{language}-en.tsv.xz" --model runs/mine --output negatives
hf-xsent pretrain --data "negatives/{language}.jsonl" --hard_negatives 2 …
torchrun --nproc_per_node 8 --no-python hf-xsent mine-negatives …   # share encoding and search among processes

Interrupted? The same command resumes: embeddings and neighbours are cached in the work folder.
"""

from __future__ import annotations

import argparse

from hf_xsent.cli.flags import add_output, add_shared, resumable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("data", nargs="+", help="Sentence pairs by language, in the format of hf-xsent pretrain --data.")
    add_shared(parser, "--model", "--work", "--target_language")
    add_output(parser, "FOLDER", "Write LANGUAGE.jsonl with all pairs into this folder.")
    add(
        "--negatives",
        type=int,
        default=4,
        help="Write at most N source negatives and N target negatives per pair, nearest first.",
    )
    add("--neighbours", type=int, default=32, help="Choose the negatives among the N nearest neighbours.")
    dropped = "Drop candidates that score above X times the score of the pair: they may be translations, too."
    add("--max_share", type=float, default=0.95, help=dropped)
    scores = "Score by the cosine relative to the neighbours' (ratio) or by the cosine (absolute)."
    add("--margin", default="ratio", choices=("ratio", "absolute"), help=scores)
    pool = (
        "Search the targets of all languages, not only the pair's own: harder negatives; time grows with the languages."
    )
    add("--all_targets", action="store_true", help=pool)
    add_shared(parser, "--memory_mib", "--vectors", "--columns", "--pooling", "--max_length", "--precision", "--device")


def run(arguments: argparse.Namespace) -> None:
    """Mine, and print the number of negatives of each language."""
    from dataclasses import asdict, fields

    from hf_xsent.api.mining import mine_negatives
    from hf_xsent.data.readers.columns import parse_columns
    from hf_xsent.mining.negatives import NegativeSettings
    from hf_xsent.pages.tables import Table

    names = [one.name for one in fields(NegativeSettings) if one.name != "device"]
    names += ["target_language", "work", "pooling", "max_length", "precision", "device"]
    columns = parse_columns(arguments.columns)
    with resumable(arguments):
        stated = {name: getattr(arguments, name) for name in names}
        counts = mine_negatives(arguments.data, arguments.output, arguments.model, columns=columns, **stated)
    if counts:
        rows: list[list[object]] = [[language, *asdict(count).values()] for language, count in counts.items()]
        header = ["language", "pairs", "source negatives", "target negatives", "pairs without any"]
        print(Table(header, rows))
        print(f"the pairs with their negatives are in {arguments.output}")
