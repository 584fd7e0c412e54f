"""Write a trained model as a plain folder that AutoModel and SentenceTransformer open without hf-xsent.

hf-xsent export runs/mine exported/mine
"""

from __future__ import annotations

import argparse

from hf_xsent.cli.flags import add_shared


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("model", help="Export this checkpoint folder.")
    add("folder", help="Write the export to this new or empty folder.")
    add("--dtype", choices=("float32", "float16"), default="float32", help="Store the weights in this precision.")
    add("--dim", type=int, help="Let sentence-transformers truncate embeddings to N dimensions. (default: all)")
    add_shared(parser, "--overwrite")


def run(arguments: argparse.Namespace) -> None:
    """Export, and check that the embeddings stay the same."""
    import torch

    from hf_xsent.publishing.sentence_transformer import export_sentence_transformer

    dtype = getattr(torch, arguments.dtype)
    folder = export_sentence_transformer(
        arguments.model, arguments.folder, dtype=dtype, overwrite=arguments.overwrite, dim=arguments.dim
    )
    print(f'exported to {folder}: open it with SentenceTransformer("{folder}")')
