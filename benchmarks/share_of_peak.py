"""Measure which share of the processor's rate of matrix products training and encoding reach, and the limit of both.

  OMP_WAIT_POLICY=PASSIVE python benchmarks/share_of_peak.py --model ENCODER --data "train/{language}-en.tsv.xz"

The peak is the rate of products of two 2,048 × 2,048 matrices, in float32 and in bfloat16, measured in steps that
alternate with the others. torch's FlopCounterMode counts the operations of encoding, over real lengths without padding;
a training step has three times as many: the gradient takes two products for each one of the forward pass. What
else a step does (optimizer, tokenizer, elementwise operations) takes time, but is not counted.

``linear_layers_alone`` is the share of each one's time that the products of its linear layers take alone, with matrices
of the same sizes: what remains if attention, elementwise operations and the optimizer cost nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from training_step import Pairs, ours, sample_pairs
from turns import Turn, take_turns

SIZE, PRODUCTS, ROWS = 2048, 16, 2048  # an encoding batch has 2,048 tokens
PRECISIONS = {"float32": False, "bfloat16": True}


def product(turn: Turn, dtype: str, options: argparse.Namespace, pairs: Pairs) -> None:
    """Multiply matrices."""
    import torch

    left, right = torch.randn(2, SIZE, SIZE).to(getattr(torch, dtype))
    turn.wait()
    for _ in range(turn.steps):
        for _ in range(PRODUCTS):
            left @ right
        turn.done()


def train(turn: Turn, bf16: bool, options: argparse.Namespace, pairs: Pairs) -> None:
    """Train with translation ranking."""
    ours(turn, argparse.Namespace(**vars(options), bf16=bf16), pairs)


def encode(turn: Turn, dtype: str, options: argparse.Namespace, pairs: Pairs) -> None:
    """Encode both sides of as many pairs as a step of training has."""
    from hf_xsent.models.embedder import SentenceEmbedder

    embedder = SentenceEmbedder.from_pretrained(options.model, max_length=options.max_length, precision=dtype)
    turn.wait()
    for step in range(turn.steps):
        some = pairs[step * options.batch : (step + 1) * options.batch]
        embedder.encode([sentence for pair in some for sentence in pair])
        turn.done()


def linear_layers(turn: Turn, dtype: str, gradients: bool, options: argparse.Namespace, pairs: Pairs) -> None:
    """Multiply as the linear layers do when they encode or train with both sides of a step's pairs."""
    import torch
    from transformers import AutoConfig, AutoTokenizer

    config, tokenizer = AutoConfig.from_pretrained(options.model), AutoTokenizer.from_pretrained(options.model)
    wide, inner = config.hidden_size, config.intermediate_size
    kind = getattr(torch, dtype)
    weights = [torch.randn(size).to(kind) for size in 4 * [(wide, wide)] + [(inner, wide), (wide, inner)]]
    texts = [text for pair in pairs for text in pair]
    lengths = [len(ids) for ids in tokenizer(texts, truncation=True, max_length=options.max_length)["input_ids"]]
    tokens = [sum(lengths[start : start + 2 * options.batch]) for start in range(0, len(lengths), 2 * options.batch)]
    values = {size: torch.randn(max(tokens), size).to(kind) for size in (wide, inner)}
    turn.wait()
    for total in tokens:
        for rows in [total] if gradients else [min(ROWS, total - start) for start in range(0, total, ROWS)]:
            for weight in config.num_hidden_layers * weights:
                outputs, inputs = (values[size][:rows] for size in weight.shape)
                inputs @ weight.T
                if gradients:
                    outputs @ weight
                    outputs.T @ inputs
        turn.done()


def operations(model: str, max_length: int, sentences: list[str]) -> float:
    """Count the operations of encoding the sentences in float32."""
    from torch.utils.flop_counter import FlopCounterMode

    from hf_xsent.models.embedder import SentenceEmbedder

    embedder = SentenceEmbedder.from_pretrained(model, max_length=max_length, device="cpu")
    with FlopCounterMode(display=False) as counter:
        embedder.encode(sentences)
    return float(counter.get_total_flops())


def main() -> None:
    """Measure, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Encoder: folder or Hub id.")
    parser.add_argument("--data", required=True, help="Pairs, such as train/{language}-en.tsv.xz.")
    parser.add_argument("--max_length", type=int, default=32)
    parser.add_argument("--pooling", default="mean")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    parser.add_argument("--output", default="benchmarks/results/share_of_peak.json")
    options = parser.parse_args()
    pairs = sample_pairs(options.data, options.batch * options.steps)
    counted = [sentence for pair in pairs[options.batch * options.warmup :] for sentence in pair]
    encoding = operations(options.model, options.max_length, counted) / (options.steps - options.warmup)
    contenders: dict[str, Callable[..., None]] = {}
    work: dict[str, float] = {}  # operations of a step
    for name, bf16 in PRECISIONS.items():
        contenders[f"product, {name}"] = partial(product, dtype=name)
        contenders[f"training, {name}"] = partial(train, bf16=bf16)
        contenders[f"encoding, {name}"] = partial(encode, dtype=name)
        work |= dict(zip(list(contenders)[-3:], (2.0 * PRODUCTS * SIZE**3, 3 * encoding, encoding), strict=True))
        for what, gradients in {"training": True, "encoding": False}.items():
            contenders[f"linear layers of {what}, {name}"] = partial(linear_layers, dtype=name, gradients=gradients)
    costs = take_turns(contenders, options.steps, options.warmup, options.threads, options=options, pairs=pairs)
    results: dict[str, Any] = {"batch": options.batch, "threads": options.threads, "giga_operations_per_second": {}}
    rates = {name: work[name] / 1e9 / costs[name]["cpu_seconds"] for name in work}
    results["giga_operations_per_second"] = {name: round(rate, 1) for name, rate in rates.items()}
    results["share_of_peak"] = {
        name: round(rate / rates[f"product, {name.split(', ')[1]}"], 3) for name, rate in rates.items()
    }
    results["linear_layers_alone"] = {
        name: round(costs[f"linear layers of {name}"]["cpu_seconds"] / costs[name]["cpu_seconds"], 3)
        for name in work
        if not name.startswith("product")
    }
    print(json.dumps(results, indent=2))
    Path(options.output).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
