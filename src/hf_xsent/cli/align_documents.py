"""Align the sentences of documents that translate each other, in order, and write the pairs.

hf-xsent align-documents book.de.txt book.fr.txt --model runs/mine -o pairs.tsv
hf-xsent align-documents "de/*.txt" "fr/*.txt" --model runs/mine -o pairs.jsonl --split text --languages de fr
torchrun --nproc_per_node 8 --no-python hf-xsent align-documents …   # several processes share the documents

Run the same command again after a stop: vectors and aligned documents stay in the work folder.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("source", help="Read a document, a folder or a glob of documents; .gz, .xz, .zst too.")
    parser.add_argument("target", help="Read their translations: a file, or files of the same names.")
    parser.add_argument("--model", required=True, help="Encode with this model: a folder or a Hub id.")
    parser.add_argument(
        "--output", "-o", required=True, metavar="FILE", help="Write the pairs to this TSV or JSONL file."
    )
    parser.add_argument(
        "--split",
        choices=("lines", "text"),
        default="lines",
        help="Take each line as a sentence (lines), or split running text into sentences (text).",
    )
    parser.add_argument(
        "--languages",
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="State both languages, to split text by their rules and to check them; default: identified.",
    )
    parser.add_argument(
        "--threshold", type=float, help="Write pairs that score at least this: 0 is chance, 1 the same vector."
    )
    parser.add_argument("--work", metavar="FOLDER", help="Store vectors and parts here; default: OUTPUT.work.")
    parser.add_argument("--pooling", help="Pool by cls, mean or max; default: as the model states.")
    parser.add_argument(
        "--max_length", type=int, help="Cut sentences after this many tokens; default: 256, or the model's own if more."
    )
    parser.add_argument(
        "--device", help="Compute on this device; default: a GPU if there is one, of several processes each its own."
    )


def run(arguments: argparse.Namespace) -> None:
    """Open the model, align, report the count."""
    import os

    from hf_xsent.data.outputs import check_writable
    from hf_xsent.documents.alignment import open_model
    from hf_xsent.documents.pipeline import DocumentSettings, align_files
    from hf_xsent.documents.reading import pair_documents
    from hf_xsent.logs import quiet_logs
    from hf_xsent.mining.tasks import Processes, default_device
    from hf_xsent.mining.vectors import identify_model

    quiet_logs()
    languages = tuple(arguments.languages) if arguments.languages else None
    settings = DocumentSettings(arguments.split, languages, arguments.threshold)
    pairs = pair_documents(arguments.source, arguments.target)
    check_writable(arguments.output, [file for _, *both in pairs for file in both])
    device = arguments.device or default_device(int(os.environ.get("LOCAL_RANK", 0)))
    embedder = open_model(arguments.model, arguments.pooling, arguments.max_length, device)
    count = align_files(
        arguments.source,
        arguments.target,
        arguments.output,
        embedder,
        identify_model(arguments.model, embedder),
        arguments.work or f"{arguments.output}.work",
        settings,
        Processes(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))),
    )
    if count is not None:
        print(f"{count:,} pairs of {len(pairs):,} documents are in {arguments.output}")
