"""Count forward operations per pair, as table 6 of the DAP paper does and as our model needs.

  python benchmarks/flops.py

The paper pads every sentence to 32 tokens and runs all layers on all tokens; it counts a multiplication and an
addition as two. torch's FlopCounterMode counts our forward pass at the size of mBERT, first with all sentences of 32
tokens, then with real lengths (mean 18) without padding.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

WIDTH, LAYERS, INNER, VOCABULARY, TOKENS = 768, 12, 3072, 119_547, 32
PAPER = {"TR": 11.0, "TR + TLM": 33.7, "DAP": 16.5}
RESTRICTED = 37_000  # the size that 16.5 G implies


def layers(count: int, tokens: int) -> int:
    """Count the operations of transformer layers on one row of ``tokens`` tokens."""
    linear = 4 * WIDTH * WIDTH + 2 * WIDTH * INNER
    attention = 2 * tokens * WIDTH
    return count * 2 * tokens * (linear + attention)


def projection(tokens: int, vocabulary: int) -> int:
    """Count a masked-language head: dense layer and vocabulary."""
    return 2 * tokens * WIDTH * (WIDTH + vocabulary)


def papers_way(vocabulary: int) -> dict[str, float]:
    """Count G operations per pair, both sentences padded to 32 tokens."""
    ranking = 2 * layers(LAYERS, TOKENS)
    tlm = layers(LAYERS, 2 * TOKENS) + projection(2 * TOKENS, VOCABULARY)
    translation = layers(2, 2 * TOKENS) + projection(2 * TOKENS, vocabulary)
    return {"TR": ranking / 1e9, "TR + TLM": (ranking + tlm) / 1e9, "DAP": (ranking + translation) / 1e9}


def vocabulary_of(giga: float) -> int:
    """Return the vocabulary size at which the paper's DAP costs ``giga`` G operations."""
    fixed = 2 * layers(LAYERS, TOKENS) + layers(2, 2 * TOKENS) + projection(2 * TOKENS, 0)
    return round((giga * 1e9 - fixed) / (2 * 2 * TOKENS * WIDTH))


def ours(objectives: dict[str, Any], pairs: dict[str, Any]) -> float:
    """Count G operations per pair of our forward pass."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import BertConfig

    from hf_xsent import DapConfig, XlmrWithRTLHead

    config = DapConfig(
        encoder_config=BertConfig(vocab_size=VOCABULARY),
        objectives=objectives,
        max_length=TOKENS,
        mask_token_id=103,
    )
    model = XlmrWithRTLHead(config).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(**pairs)
    return counter.get_total_flops() / 1e9 / len(pairs["source_input_ids"])


def main() -> None:
    """Count, print and save the figures."""
    from dap_step import batch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="benchmarks/results/flops.json")
    options = parser.parse_args()
    real = batch(0)
    full = {name: tensor.new_full((len(tensor), TOKENS), 1 if "mask" in name else 200) for name, tensor in real.items()}
    ranking, rtl, tlm = "translation_ranking", "representation_translation", "translation_language_modeling"
    cases: dict[str, dict[str, Any]] = {
        "TR": {ranking: 1.0},
        "TR + TLM": {ranking: 1.0, tlm: 1.0},
        "DAP": {ranking: 1.0, rtl: {"weight": 0.8, "vocabulary_size": RESTRICTED}},
    }
    counted = papers_way(RESTRICTED)
    results = {
        name: {
            "paper": PAPER[name],
            "paper's way, counted": round(counted[name], 2),
            "ours, 32 tokens": round(ours(objectives, full), 2),
            "ours, real lengths": round(ours(objectives, real), 2),
        }
        for name, objectives in cases.items()
    }
    columns = list(results["TR"])
    print("G operations a pair, forward")
    print(f"{'':10}" + "".join(f"{column:>22}" for column in columns))
    for name, row in results.items():
        print(f"{name:10}" + "".join(f"{row[column]:>22.2f}" for column in columns))
    print(f"\nThe paper's 16.5 G imply a restricted vocabulary of {vocabulary_of(PAPER['DAP']):,} pieces;")
    print(f"over all {VOCABULARY:,} pieces its way takes {papers_way(VOCABULARY)['DAP']:.1f} G.")
    Path(options.output).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
