"""Link the words of sentence pairs, for training with word alignment (WACSE).

hf-xsent align-words pairs.tsv --model xlm-roberta-base -o pairs.jsonl   # then: hf-xsent pretrain --data de=pairs.jsonl
hf-xsent align-words pairs.tsv --aligner statistical -o pairs.links      # then: … --data de=pairs.tsv --links de=…
hf-xsent align-words pairs.tsv --links other.txt --link_words spaces -o pairs.jsonl   # convert another tool's links
"""

from __future__ import annotations

import argparse

from hf_xsent.cli.flags import add_output, add_shared, resumable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add_shared(parser, "pairs")
    add_output(parser, "FILE", "Write pairs with links (.jsonl) or Pharaoh lines here.")
    aligners = ("embedding", "statistical", "span")
    add(
        "--aligner",
        default="embedding",
        choices=aligners,
        help="Align by hidden states, by eflomal or by WSPAlign (span).",
    )
    add("--model", help="Encoder of the embedding or span aligner: a folder or a Hub id.")
    add(
        "--layer",
        type=int,
        help="Compare the hidden states of this layer (embedding). (default: 0.6 of the encoder's layers)",
    )
    threshold = "Least score of a link, at most 1 (embedding) or 2 (span). (default: 0.3 for embedding, 0.9 for span)"
    add("--threshold", type=float, help=threshold)
    add(
        "--links",
        metavar="FILE",
        help="Convert these links (Pharaoh lines or JSONL) instead of aligning.",
    )
    words = "--links numbers words as align-words splits them (script), or words between spaces."
    add("--link_words", default="script", choices=("script", "spaces"), help=words)
    add("--processes", type=int, default=1, help="Align in N processes.")
    add_shared(parser, "--work", "--language", "--columns", "--precision", "--device")


def run(arguments: argparse.Namespace) -> None:
    """Align or convert; print the number of pairs with links."""
    from hf_xsent.api.aligning import align_words
    from hf_xsent.data.readers.columns import parse_columns

    names = ["model", "aligner", "layer", "threshold"]
    names += ["links", "link_words", "language", "processes", "precision"]
    with resumable(arguments):
        linked = align_words(
            arguments.pairs,
            arguments.output,
            columns=parse_columns(arguments.columns),
            work=arguments.work,
            device=arguments.device,
            **{name: getattr(arguments, name) for name in names},
        )
    print(f"{linked:,} pairs with links are in {arguments.output}")
