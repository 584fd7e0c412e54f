"""Align the sentences of documents with those of their translations, in order, and write the pairs.

hf-xsent align-documents book.de.txt book.fr.txt --model runs/mine -o pairs.tsv
hf-xsent align-documents "de/*.txt" "fr/*.txt" --model runs/mine -o pairs.jsonl --split text --languages de fr
torchrun --nproc_per_node 8 --no-python hf-xsent align-documents …   # share the documents among processes

Interrupted? The same command resumes: embeddings and alignments are cached in the work folder.
"""

from __future__ import annotations

import argparse

from hf_xsent.cli.flags import add_output, add_shared, resumable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("source", help="A document, or a folder or glob of documents; plain or .gz, .bz2, .xz, .zst.")
    add("target", help="Its translation, or a folder (equal names) or glob (equal matches of *).")
    add_shared(parser, "--model")
    add_output(parser, "FILE", "Write the pairs to this TSV or JSONL file.")
    split = "Documents have one sentence per line (lines), or running text to be split into sentences (text)."
    add("--split", choices=("lines", "text"), default="lines", help=split)
    languages = "Language codes of both sides, to split by, and to warn of another language. (default: identified)"
    add("--languages", nargs=2, metavar=("SOURCE", "TARGET"), help=languages)
    score = "Minimum score of a pair: random sentences score 0, equal embeddings 1."
    add("--threshold", type=float, help=score)
    bad = "At a document that cannot be read or aligned, stop (raise), or skip, count and report it (skip)."
    add("--on_error", choices=("raise", "skip"), default="raise", help=bad)
    add("--max_length", type=int, help="Truncate sentences to N tokens. (default: 256, or the model's if longer)")
    add_shared(parser, "--work", "--pooling", "--precision", "--device")


def run(arguments: argparse.Namespace) -> None:
    """Align, and print the number of pairs."""
    from hf_xsent.api.aligning import align_document_files

    names = ("split", "threshold", "on_error", "pooling", "max_length", "precision", "device", "work")
    with resumable(arguments):
        count = align_document_files(
            arguments.source,
            arguments.target,
            arguments.output,
            arguments.model,
            languages=tuple(arguments.languages) if arguments.languages else None,
            **{name: getattr(arguments, name) for name in names},
        )
    if count is not None:
        print(f"{count:,} pairs are in {arguments.output}")
