"""Measure what a training step costs by the size of the vocabulary: CPU seconds and peak memory.

  hf-xsent trim-vocab ENCODER --output trimmed --data "train/{language}-en.tsv.xz" --pieces 30000
  OMP_WAIT_POLICY=PASSIVE python benchmarks/vocabulary_growth.py --models ENCODER trimmed --data "PAIRS"

PAIRS is a path such as train/{language}-en.tsv.xz. Each encoder, the original and trimmed ones, trains on the same
pairs with translation ranking alone, and with TLM, whose softmax is over the whole vocabulary; steps alternate.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from training_step import TR, Pairs, ours, sample_pairs
from turns import Turn, take_turns

OBJECTIVES = {"TR": TR, "TR + TLM": TR | {"translation_language_modeling": 0.1}}


def train(turn: Turn, model: str, objectives: Any, options: argparse.Namespace, pairs: Pairs) -> None:
    """Train one encoder."""
    ours(turn, argparse.Namespace(**vars(options) | {"model": model}), pairs, objectives)


def vocabulary(model: str) -> dict[str, Any]:
    """Return the size of the vocabulary and the parameters of an encoder."""
    from transformers import AutoModel

    encoder = AutoModel.from_pretrained(model)
    parameters = sum(weight.numel() for weight in encoder.parameters())
    return {"pieces": encoder.config.vocab_size, "million_parameters": round(parameters / 1e6, 1)}


def tokens_per_sentence(model: str, pairs: Pairs, longest: int) -> float:
    """Return the mean length of the sentences, which a smaller vocabulary splits into more pieces."""
    from hf_xsent.models.loading import load_tokenizer

    sentences = [sentence for pair in pairs for sentence in pair]
    rows = load_tokenizer(model)(sentences, truncation=True, max_length=longest)["input_ids"]
    return round(sum(map(len, rows)) / len(rows), 2)


def main() -> None:
    """Measure, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", required=True, help="Encoders: folders or Hub ids.")
    parser.add_argument("--data", required=True, help="Pairs, such as train/{language}-en.tsv.xz.")
    parser.add_argument("--max_length", type=int, default=32)
    parser.add_argument("--pooling", default="mean")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    parser.add_argument("--output", default="benchmarks/results/vocabulary_growth.json")
    options = parser.parse_args()
    pairs = sample_pairs(options.data, options.batch * options.steps)
    contenders = {
        f"{model}, {name}": partial(train, model=model, objectives=objectives)
        for model in options.models
        for name, objectives in OBJECTIVES.items()
    }
    costs = take_turns(contenders, options.steps, options.warmup, options.threads, options=options, pairs=pairs)
    results = {"batch": options.batch, "threads": options.threads, "bf16": options.bf16, "encoders": []}
    for model in options.models:
        length = tokens_per_sentence(model, pairs, options.max_length)
        steps = {name: costs[f"{model}, {name}"] for name in OBJECTIVES}
        results["encoders"].append(vocabulary(model) | {"tokens_per_sentence": length, "steps": steps})
    print(json.dumps(results, indent=2))
    Path(options.output).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
