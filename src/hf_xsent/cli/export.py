"""Write a trained model as a plain folder that AutoModel and SentenceTransformer open without hf-xsent.

hf-xsent export runs/mine --output exported/mine
hf-xsent export runs/mine --output exported/mine --onnx int8 --tatoeba data/tatoeba --languages de sw
"""

from __future__ import annotations

import argparse

from hf_xsent.cli.flags import add_output, add_shared
from hf_xsent.errors import RecipeError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("model", help="Export this run, checkpoint or export: a folder.")
    add_output(parser, "FOLDER", "Write the export into this new or empty folder.")
    add("--dtype", choices=("float32", "float16"), default="float32", help="Store the weights in this precision.")
    add("--dim", type=int, help="Let sentence-transformers truncate embeddings to N dimensions. (default: all)")
    onnx = "Add ONNX files, too; int8: also quantized ones, if they are accurate enough."
    add("--onnx", choices=("float32", "int8"), help=onnx)
    add_shared(parser, "--tatoeba", help="Measure the accuracy of int8 on this folder or Hub id.")
    add("--languages", nargs="+", metavar="CODE", help="Measure these languages of Tatoeba. (default: all)")
    add_shared(parser, "--sample")
    largest = "Save int8 only if accuracy drops by at most this many points."
    add("--largest_drop", type=float, default=0.5, metavar="POINTS", help=largest)
    add_shared(parser, "--overwrite")


def run(arguments: argparse.Namespace) -> None:
    """Export, and check that the embeddings stay the same."""
    if arguments.onnx == "int8" and arguments.tatoeba is None:
        raise RecipeError("--onnx int8 needs a test set to measure its accuracy: give --tatoeba")

    import torch

    from hf_xsent.publishing.onnx import load_onnxruntime
    from hf_xsent.publishing.sentence_transformer import export_sentence_transformer

    if arguments.onnx is not None:
        load_onnxruntime()  # raises an error if it is not installed, before anything is written
    dtype, folder = getattr(torch, arguments.dtype), arguments.output
    export_sentence_transformer(arguments.model, folder, dtype=dtype, overwrite=arguments.overwrite, dim=arguments.dim)
    print(f'exported to {folder}: open it with SentenceTransformer("{folder}")', flush=True)
    if arguments.onnx is not None:
        _add_onnx(arguments)


def _add_onnx(arguments: argparse.Namespace) -> None:
    """Write ONNX files into the export; quantize and measure."""
    from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
    from hf_xsent.evaluation.retrieval import retrieval_by_language
    from hf_xsent.models.encode_interface import SupportsEncode
    from hf_xsent.publishing.onnx import export_onnx, quantize_onnx

    sets = load_tatoeba(arguments.tatoeba, arguments.languages) if arguments.onnx == "int8" else []
    count = arguments.sample
    pairs = {one.language: (one.sources[:count], one.targets[:count]) for one in sets}

    def accuracy(model: SupportsEncode) -> float:
        each = retrieval_by_language(model, pairs)
        return sum(one.mean for one in each.values()) / len(each)

    print(f"written: {export_onnx(arguments.output)}", flush=True)
    if pairs:
        before, after, saved = quantize_onnx(arguments.output, accuracy, arguments.largest_drop)
        print(
            f"int8 is {'saved' if saved else 'not saved'}: accuracy is {before:.2f} in float32, {after:.2f} in int8 "
            f"(Tatoeba, {len(pairs)} languages, at most {count} pairs each; allowed drop {arguments.largest_drop})"
        )
