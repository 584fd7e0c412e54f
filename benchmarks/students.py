"""Measure students against their start: sentences a second, size, and accuracy on the 36 languages of Tatoeba.

  python benchmarks/students.py --start STARTING_ENCODER --tatoeba FOLDER --ours 12=runs/teacher 4=runs/student-4

also: --precision float32 bfloat16, --int8 4=exported/student-4, --theirs static=exported/static

``--start`` is encoded by SentenceTransformer.encode with its defaults, the reference of speeds, and so are
``--theirs``; ``--ours`` are encoded by SentenceEmbedder in each ``--precision``, ``--int8`` by SentenceTransformer's
ONNX backend (hf-xsent export --onnx int8). Accuracy is measured in the last precision alone, that of the start by
SentenceEmbedder. All contenders encode the same chunks of Tatoeba's sentences in alternating steps, each in a separate
process. Speeds are sentences per CPU second, times the number of threads.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from evaluation_speed import chunk
from tqdm import tqdm
from turns import Contender, Turn, take_turns

from hf_xsent.data.benchmarks.tatoeba import tatoeba_groups
from hf_xsent.evaluation.translation_retrieval import TatoebaTask
from hf_xsent.files import write_json
from hf_xsent.models.embedder import SentenceEmbedder

REFERENCE = "start, SentenceTransformer.encode"
QUANTIZED = "onnx/model_quantized.onnx"


class Encoder:
    """Adapt an ``encode`` function to the interface of our evaluation."""

    def __init__(self, encode: Callable[..., Any]) -> None:
        self.encode = encode


def open_model(kind: str, path: str) -> Any:
    """Open a model as ours in a precision, as a SentenceTransformer, or as a SentenceTransformer with int8 weights."""
    if kind not in ("theirs", "int8"):
        return SentenceEmbedder.from_pretrained(path, precision=kind, device="cpu")
    from sentence_transformers import SentenceTransformer

    onnx: dict[str, Any] = {"backend": "onnx", "model_kwargs": {"file_name": QUANTIZED}} if kind == "int8" else {}
    model = SentenceTransformer(path, device="cpu", local_files_only=True, **onnx)
    return Encoder(partial(model.encode, show_progress_bar=False))


def encode_chunks(turn: Turn, tatoeba: str, chunks: int, kind: str, path: str) -> None:
    """Encode one chunk of sentences in each step."""
    model = open_model(kind, path)
    parts = [chunk(tatoeba, chunks, step) for step in range(turn.steps)]
    turn.wait()
    for part in parts:
        model.encode(part)
        turn.done()


def size_mib(kind: str, path: str) -> float:
    """Return the size of the weights on disk."""
    files = [Path(path) / QUANTIZED] if kind == "int8" else [*Path(path).rglob("*.safetensors")]
    files = [file for file in files if not file.parent.name.startswith("checkpoint-")]
    return round(sum(file.stat().st_size for file in files) / 2**20, 1)


def accuracy(kind: str, path: str, tatoeba: str, languages: Sequence[str]) -> float:
    """Return the mean accuracy@1 of both directions over the languages."""
    return round(TatoebaTask.load(tatoeba, languages).score(open_model(kind, path).encode).groups["all"]["mean"], 2)


def main() -> None:
    """Compare, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", required=True)
    parser.add_argument("--tatoeba", required=True)
    for kind in ("ours", "theirs", "int8"):
        parser.add_argument(f"--{kind}", nargs="*", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--precision", nargs="*", default=["float32"], choices=["float32", "bfloat16"])
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--languages", nargs="*", help="instead of the 36 of XTREME")
    parser.add_argument("--output", default="benchmarks/results/students.json")
    options = parser.parse_args()
    models = {REFERENCE: ("theirs", options.start)}
    for kind in ("ours", "theirs", "int8"):
        for name, _, path in (named_model.partition("=") for named_model in getattr(options, kind)):
            for how in options.precision if kind == "ours" else [kind]:
                models[f"{name}, {how}"] = (how, path)
    contenders: dict[str, Contender] = {
        name: partial(encode_chunks, kind=kind, path=path) for name, (kind, path) in models.items()
    }
    settings = {"tatoeba": options.tatoeba, "chunks": options.chunks}
    costs = take_turns(contenders, options.steps, 1, options.threads, **settings)
    count = len(chunk(options.tatoeba, options.chunks, 0))
    languages = options.languages or list(tatoeba_groups()["36"])
    figures: dict[str, dict[str, float]] = {}
    for name, (kind, path) in models.items():
        figures[name] = {
            "sentences_a_second": round(options.threads * count / costs[name]["cpu_seconds"], 1),
            "speed": round(costs[REFERENCE]["cpu_seconds"] / costs[name]["cpu_seconds"], 2),
            "weights_mib": size_mib(kind, path),
            "peak_mib": costs[name]["peak_mib"],
        }
    results = {"threads": options.threads, "steps": options.steps - 1, "languages": len(languages), "models": figures}
    write_json(options.output, results)
    for name, (kind, path) in tqdm(models.items(), desc="accuracy"):
        if kind not in options.precision[:-1]:
            of = options.precision[-1] if name == REFERENCE else kind
            figures[name]["tatoeba"] = accuracy(of, path, options.tatoeba, languages)
            write_json(options.output, results)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
