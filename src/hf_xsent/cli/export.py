"""Write a trained model as a plain folder that AutoModel and SentenceTransformer open without hf-xsent.

hf-xsent export runs/mine exported/mine
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("model", help="Export this checkpoint folder.")
    parser.add_argument("folder", help="Write here; the folder must be new or empty.")
    parser.add_argument(
        "--dtype", choices=("float32", "float16"), default="float32", help="Store weights in this precision."
    )
    parser.add_argument("--dim", type=int, help="Let sentence-transformers keep only so many numbers of each vector.")
    parser.add_argument("--overwrite", action="store_true", help="Replace an earlier export in that folder.")


def run(arguments: argparse.Namespace) -> None:
    """Export, with a check that the vectors stay the same."""
    import torch

    from hf_xsent.publishing.sentence_transformer import export_sentence_transformer

    dtype = getattr(torch, arguments.dtype)
    folder = export_sentence_transformer(
        arguments.model, arguments.folder, dtype=dtype, overwrite=arguments.overwrite, dim=arguments.dim
    )
    print(f'exported to {folder}: open it with SentenceTransformer("{folder}")')
