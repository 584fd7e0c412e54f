"""Find translations among the lines of two text files.

hf-xsent mine news.zh.txt news.en.txt --model runs/mine --output pairs.tsv --threshold 1.06
torchrun --nproc_per_node 8 --no-python hf-xsent mine …   # share encoding and search among processes
hf-xsent mine … --engine ray --address auto   # or among Ray workers, which must share the work folder

Interrupted? The same command resumes: embeddings and neighbours are cached in the work folder.
"""

from __future__ import annotations

import argparse

from hf_xsent.cli.flags import add_output, add_shared, resumable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("source", help="Sentences of one language, one per line; plain or .gz, .bz2, .xz, .zst.")
    add("target", help="Sentences of the other language, one per line.")
    add_shared(parser, "--model", "--work")
    add_output(parser, "FILE", "Write the pairs to this TSV file, best first.")
    margins = ("ratio", "distance", "absolute")
    add(
        "--margin",
        default="ratio",
        choices=margins,
        help="Score by cosine / neighbours' mean cosine (ratio), cosine - that mean (distance), or cosine (absolute).",
    )
    directions = ("max", "forward", "backward", "intersection")
    add(
        "--candidates",
        default="max",
        choices=directions,
        help="Take best targets of sources (forward), the reverse (backward), both (intersection), or each once (max).",
    )
    add("--threshold", type=float, help="Minimum score of a pair; 1.06 is usual for ratio.")
    gold = "Choose the threshold with the best F1 on this TSV of some gold pairs (texts or line numbers)."
    add("--calibrate", metavar="GOLD", help=gold)
    add("--top", type=int, help="Write the N best pairs. (default: all)")
    add("--plot", metavar="FILE", help="Plot the histogram of scores to this SVG file.")
    add("--index", help="Search a faiss index such as IVF4096,Flat instead of all sentences. (default: exact search)")
    add("--probes", type=int, default=32, help="Number of cells of an IVF index to search per sentence (nprobe).")
    add("--engine", choices=("local", "ray"), default="local", help="Run on this machine or on a Ray cluster.")
    add("--address", default="auto", help="Address of the Ray cluster; auto: the running one, local: a new one.")
    add_shared(parser, "--memory_mib", "--vectors", "--pooling", "--max_length", "--k", "--precision", "--device")


def run(arguments: argparse.Namespace) -> None:
    """Mine, and print the number of pairs."""
    from dataclasses import fields

    from hf_xsent.api.mining import mine_files
    from hf_xsent.mining.pipeline import MiningSettings

    names = [field.name for field in fields(MiningSettings) if field.name != "device"]
    names += ["pooling", "max_length", "precision", "device", "engine", "address", "work"]
    with resumable(arguments):
        stated = {name: getattr(arguments, name) for name in names}
        mined = mine_files(arguments.source, arguments.target, arguments.output, arguments.model, **stated)
    if mined is not None:
        print(f"{len(mined):,} pairs, best first, are in {arguments.output}")
