"""Measure the time of encoding Tatoeba, ours and SentenceTransformer.encode with its defaults.

  python benchmarks/evaluation_speed.py --model ENCODER --tatoeba FOLDER [--chunks 64] [--precision float32 bfloat16]

All distinct sentences of the 112 languages are shuffled and split into chunks; each step encodes one, in alternating
processes. ``--chunks 16 --steps 17`` measures all of them after a warm-up step. Times are CPU seconds.
``--precision`` applies to our encoder only; theirs stays in float32.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from turns import Turn, take_turns


def chunk(tatoeba: str, chunks: int, step: int) -> list[str]:
    """Return the sentences of a step, equal for all contenders."""
    from hf_xsent.evaluation.translation_retrieval import TatoebaTask

    sentences = sorted({text for _, text in TatoebaTask.load(tatoeba).inputs()})
    random.Random(0).shuffle(sentences)
    return sentences[step % chunks :: chunks]


def float32(turn: Turn, model: str, tatoeba: str, chunks: int, precision: str = "float32") -> None:
    """Encode with SentenceEmbedder."""
    from hf_xsent.models.embedder import SentenceEmbedder

    embedder = SentenceEmbedder.from_pretrained(model, precision=precision, device="cpu")
    parts = [chunk(tatoeba, chunks, step) for step in range(turn.steps)]
    turn.wait()
    for part in parts:
        embedder.encode(part)
        turn.done()


def bfloat16(turn: Turn, model: str, tatoeba: str, chunks: int) -> None:
    """Encode with SentenceEmbedder in bfloat16."""
    float32(turn, model, tatoeba, chunks, "bfloat16")


def theirs(turn: Turn, model: str, tatoeba: str, chunks: int) -> None:
    """Encode with SentenceTransformer's defaults: batches of 32, sorted by length, padded."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(model, device="cpu", local_files_only=True)
    parts = [chunk(tatoeba, chunks, step) for step in range(turn.steps)]
    turn.wait()
    for part in parts:
        encoder.encode(part, show_progress_bar=False)
        turn.done()


OURS = {"float32": float32, "bfloat16": bfloat16}


def main() -> None:
    """Compare, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tatoeba", required=True)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), nargs="+", default=["float32"])
    parser.add_argument("--output", default="benchmarks/results/evaluation_speed.json")
    options = parser.parse_args()
    measured = take_turns(
        {f"hf-xsent, {precision}": OURS[precision] for precision in options.precision}
        | {"SentenceTransformer.encode": theirs},
        options.steps,
        1,
        options.threads,
        model=options.model,
        tatoeba=options.tatoeba,
        chunks=options.chunks,
    )
    size = len(chunk(options.tatoeba, options.chunks, 0))
    for figures in measured.values():
        figures["of_theirs"] = round(figures["cpu_seconds"] / measured["SentenceTransformer.encode"]["cpu_seconds"], 3)
    results: dict[str, Any] = {"sentences_a_step": size, "steps": options.steps - 1, "threads": options.threads} | {
        name: figures | {"ms_a_sentence": round(1000 * figures["cpu_seconds"] / size, 2)}
        for name, figures in measured.items()
    }
    print(json.dumps(results, indent=2))
    Path(options.output).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
