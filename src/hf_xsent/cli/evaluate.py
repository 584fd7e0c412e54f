"""Measure retrieval accuracy on Tatoeba with a checkpoint, an exported folder or any supported encoder.

hf-xsent evaluate runs/mine --tatoeba data/tatoeba --group 36 --output results.json
hf-xsent evaluate xlm-roberta-base --tatoeba mteb/tatoeba-bitext-mining --pooling mean cls --layer 8
hf-xsent evaluate runs/mine --tatoeba data/tatoeba --dim 384 128 64
"""

from __future__ import annotations

import argparse
from itertools import product


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("model", help="Open this model: a folder or a Hub id.")
    parser.add_argument(
        "--tatoeba",
        required=True,
        metavar="FOLDER",
        help="Read the test set here: a folder of tatoeba.xxx-eng.* files, or a Hub id.",
    )
    parser.add_argument("--languages", nargs="+", metavar="CODE", help="Measure these languages only (de or deu).")
    parser.add_argument("--group", metavar="NAME", help="Measure one group: 4, 5, 8, 14, 28, 36 or 112 languages.")
    parser.add_argument(
        "--pooling",
        nargs="+",
        metavar="POOLING",
        help="Pool by cls, mean or max, one table each; default: as the model states, a plain encoder by mean.",
    )
    parser.add_argument("--layer", type=int, help="Take the states after this layer; 0 are the embeddings.")
    parser.add_argument("--dim", type=int, nargs="+", help="Keep so many numbers of each vector, one table each.")
    parser.add_argument("--max_length", type=int, help="Cut sentences after this many tokens.")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="Compute in this precision."
    )
    parser.add_argument("--device", help="Compute on this device; default: the GPU if there is one.")
    parser.add_argument("--output", metavar="FILE", help="Write the results to this JSON file as well.")


def run(arguments: argparse.Namespace) -> None:
    """Read the test set, encode, print a table for each pooling and dimension."""
    import torch

    from hf_xsent.data.benchmarks import load_tatoeba, tatoeba_groups
    from hf_xsent.errors import RecipeError, nearest
    from hf_xsent.evaluation.report import write_json
    from hf_xsent.evaluation.retrieval import describe, evaluate_tatoeba
    from hf_xsent.models.embedder import SentenceEmbedder

    languages = arguments.languages
    if arguments.group is not None:
        groups = {name: codes for name, codes in tatoeba_groups().items() if codes}
        if arguments.group not in groups:
            hint = nearest(arguments.group, groups)
            raise RecipeError(f"unknown group {arguments.group!r}: use one of {', '.join(groups)}{hint}")
        languages = groups[arguments.group]
    sets = load_tatoeba(arguments.tatoeba, languages)

    runs = []
    for pooling, dim in product(arguments.pooling or [None], arguments.dim or [None]):
        embedder = SentenceEmbedder.from_pretrained(
            arguments.model,
            pooling=pooling,
            max_length=arguments.max_length,
            layer=arguments.layer,
            dtype=getattr(torch, arguments.dtype),
            device=arguments.device,
            dim=dim,
        )
        settings = describe(
            arguments.model, embedder.pooling, arguments.layer, embedder.max_length, arguments.dtype, embedder.width
        )
        report = evaluate_tatoeba(embedder, sets, settings)
        print(report.table(), end="\n\n", flush=True)
        runs.append(report.to_dict())
    if arguments.output:
        write_json(arguments.output, {"runs": runs})
