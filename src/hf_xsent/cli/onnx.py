"""Add ONNX files to an exported folder, for sentence-transformers' ONNX backend, transformers.js and onnxruntime.

hf-xsent onnx exported/mine
hf-xsent onnx exported/mine --int8 --tatoeba data/tatoeba --languages de sw
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("folder", help="Add onnx/model.onnx to this folder, written by hf-xsent export.")
    add("--int8", action="store_true", help="Add onnx/model_quantized.onnx, too, if it is accurate enough.")
    add("--tatoeba", metavar="FOLDER", help="Measure the accuracy of int8 on this Tatoeba folder or Hub id.")
    add("--languages", nargs="+", metavar="CODE", help="Measure these languages, de or deu. (default: all)")
    add("--sample", type=int, default=200, help="Measure at most N pairs per language.")
    largest = "Largest drop of accuracy, in points, at which int8 is saved."
    add("--largest_drop", type=float, default=0.5, metavar="POINTS", help=largest)


def run(arguments: argparse.Namespace) -> None:
    """Export to ONNX; quantize and measure if --int8."""
    from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
    from hf_xsent.errors import RecipeError
    from hf_xsent.evaluation.retrieval import retrieval_by_language
    from hf_xsent.models.encodes import SupportsEncode
    from hf_xsent.publishing.onnx import export_onnx, quantize_onnx

    if arguments.int8 and arguments.tatoeba is None:
        raise RecipeError("--int8 needs a test set to measure its accuracy: give --tatoeba")
    count = arguments.sample
    sets = load_tatoeba(arguments.tatoeba, arguments.languages) if arguments.int8 else []
    pairs = {one.language: (one.sources[:count], one.targets[:count]) for one in sets}

    def accuracy(model: SupportsEncode) -> float:
        each = retrieval_by_language(model, pairs)
        return sum(one.mean for one in each.values()) / len(each)

    print(f"written: {export_onnx(arguments.folder)}", flush=True)
    if arguments.int8:
        before, after, saved = quantize_onnx(arguments.folder, accuracy, arguments.largest_drop)
        print(
            f"int8 is {'saved' if saved else 'not saved'}: accuracy is {before:.2f} in float32, {after:.2f} in int8 "
            f"(Tatoeba, {len(pairs)} languages, at most {count} pairs each; largest drop {arguments.largest_drop})"
        )
