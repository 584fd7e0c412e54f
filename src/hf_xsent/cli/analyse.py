"""Measure how a model aligns languages: similarity gaps, hubs, and a plot of words, before and after training.

hf-xsent analyse runs/mine --before xlm-roberta-base --tatoeba data/tatoeba --languages de zh sw --output analysis
hf-xsent analyse xlm-roberta-base --layer 8 --pooling mean --tatoeba data/tatoeba --languages de --output analysis
hf-xsent analyse runs/wacse --before runs/tr --layer 0 --words 60 --tatoeba data/tatoeba --languages de --output words
"""

from __future__ import annotations

import argparse

from hf_xsent.cli.flags import add_output, add_shared


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("model", help="Analyse this model: a folder or a Hub id.")
    add(
        "--before",
        metavar="MODEL",
        help="Compare with this model, such as the run's starting encoder.",
    )
    add("--languages", nargs="+", required=True, metavar="CODE", help="Analyse these languages (de or deu).")
    add("--plot_pairs", type=int, default=4, help="Plot the words of N pairs per language.")
    words = "Plot N words per language, sampled by frequency and encoded alone, instead of the words of pairs."
    add("--words", type=int, metavar="N", help=words)
    bitext = "Sample --words from this bitext, in the format of pretrain --data. (default: all pairs of Tatoeba)"
    add("--data", nargs="+", metavar="CODE=FILE", help=bitext)
    add("--word_pieces", action="store_true", help="Plot word pieces instead of words.")
    add("--layer", type=int, help="Use the hidden states of this layer. (default: the last)")
    add_output(parser, "FOLDER", "Write gaps.json and words.svg into this folder.")
    add_shared(parser, "--tatoeba", required=True)
    add_shared(parser, "--sample", "--pooling", "--device")


def run(arguments: argparse.Namespace) -> None:
    """Analyse, and print the gaps."""
    from pathlib import Path

    from hf_xsent.api.analysing import analyse
    from hf_xsent.pages.tables import Table

    names = ("before", "sample", "plot_pairs", "words", "data", "word_pieces", "layer", "pooling", "device")
    stated = {name: getattr(arguments, name) for name in names}
    runs = analyse(arguments.model, arguments.tatoeba, arguments.languages, arguments.output, **stated)
    rows = [[run["settings"]["model"], name, *one.values()] for run in runs for name, one in run["languages"].items()]
    print(Table(["model", "language", *next(iter(runs[0]["languages"].values()))], rows))
    folder = Path(arguments.output)
    plotted = f"{arguments.words} words" if arguments.words else f"{arguments.plot_pairs} pairs"
    print(f"gaps     {folder / 'gaps.json'}\nwords    {folder / 'words.svg'} ({plotted} per language)")
