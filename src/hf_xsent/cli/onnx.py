"""Add ONNX files to an exported folder, for sentence-transformers' ONNX backend, transformers.js and onnxruntime.

hf-xsent onnx exported/mine
hf-xsent onnx exported/mine --int8 --tatoeba data/tatoeba --languages de sw
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("folder", help="Add onnx/model.onnx to this folder of hf-xsent export.")
    parser.add_argument("--int8", action="store_true", help="Add onnx/model_quantized.onnx, if accuracy allows.")
    parser.add_argument("--tatoeba", metavar="FOLDER", help="Measure what int8 costs on this test set.")
    parser.add_argument("--languages", nargs="+", metavar="CODE", help="Measure on these languages only (de or deu).")
    parser.add_argument("--sample", type=int, default=200, help="Measure on at most so many pairs of each language.")
    parser.add_argument(
        "--largest_drop", type=float, default=0.5, help="Keep int8 if accuracy falls by at most so many points."
    )


def run(arguments: argparse.Namespace) -> None:
    """Export, compare, quantize, measure."""
    from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
    from hf_xsent.errors import RecipeError
    from hf_xsent.evaluation.retrieval import retrieval_by_language
    from hf_xsent.models.encodes import SupportsEncode
    from hf_xsent.publishing.onnx import export_onnx, quantize_onnx

    if arguments.int8 and arguments.tatoeba is None:
        raise RecipeError("--int8 is kept only if accuracy allows: give --tatoeba to measure it")
    count = arguments.sample
    sets = load_tatoeba(arguments.tatoeba, arguments.languages) if arguments.int8 else []
    pairs = {one.language: (one.sources[:count], one.targets[:count]) for one in sets}

    def accuracy(model: SupportsEncode) -> float:
        each = retrieval_by_language(model, pairs)
        return sum(one.mean for one in each.values()) / len(each)

    print(f"written: {export_onnx(arguments.folder)}", flush=True)
    if arguments.int8:
        before, after, kept = quantize_onnx(arguments.folder, accuracy, arguments.largest_drop)
        verdict = "kept" if kept else "not kept"
        print(
            f"int8 is {verdict}: accuracy {before:.2f} with float32 and {after:.2f} with int8 "
            f"(Tatoeba, {len(pairs)} languages of at most {count} pairs; {arguments.largest_drop} points may be lost)"
        )
