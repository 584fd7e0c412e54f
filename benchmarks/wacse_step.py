"""Measure the cost of the word objectives relative to translation ranking alone, at the size of mBERT.

  OMP_WAIT_POLICY=PASSIVE python benchmarks/wacse_step.py

The model, lengths and loop of dap_step.py. Two of three words are one piece long, the others two, and three of four are
linked to the word at the same position. WACSE masks a quarter of the sentences and samples the softmax, as
wacse-small.yaml does; "whole" masks all of them and projects onto all word pieces, as the paper does.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from dap_step import PAIRS, batch, encoder_config, train
from turns import Turn, take_turns

RANKING, WTR = {"translation_ranking": 0.8}, {"word_translation_ranking": 0.18}
AWP = {"aligned_word_prediction": 0.02}
CHEAP_AWP = {"aligned_word_prediction": {"weight": 0.02, "masked_share": 0.25, "sampled_pieces": 8000}}


def linked_batch(step: int) -> dict[str, Any]:
    """Return the pairs of a step with the words of their tokens and links between them."""
    import torch

    pairs = batch(step)
    generator = torch.Generator().manual_seed(step)
    counts = []
    for side in ("source", "target"):
        ids, mask = pairs[f"{side}_input_ids"], pairs[f"{side}_attention_mask"].bool()
        inner = mask & mask.roll(-1, 1) & (torch.arange(ids.shape[1]) > 0)  # neither the first token nor the last
        begins = (torch.rand(ids.shape, generator=generator) < 0.75) | (torch.arange(ids.shape[1]) == 1)
        words = (begins & inner).cumsum(1) - 1
        pairs[f"{side}_words"] = torch.where(inner, words, -1)
        counts.append(pairs[f"{side}_words"].amax(1) + 1)
    number = torch.arange(int(torch.minimum(*counts).max())).expand(PAIRS, -1)
    linked = (number < torch.minimum(*counts)[:, None]) & (torch.rand(number.shape, generator=generator) < 0.75)
    pairs["links"] = torch.where(linked, number, -1)[..., None].expand(-1, -1, 2).contiguous()
    return pairs


def ours(turn: Turn, objectives: dict[str, Any]) -> None:
    """Train the model of WACSE with some of its objectives."""
    import torch

    from hf_xsent import WacseConfig
    from hf_xsent.compat import keep_freed_memory
    from hf_xsent.models.wacse import WacseForPreTraining

    keep_freed_memory()
    torch.manual_seed(0)
    config = WacseConfig(encoder_config=encoder_config(), mask_token_id=103, objectives=objectives)
    model = WacseForPreTraining(config).train()
    train(turn, model, lambda pairs: model(**pairs).loss, linked_batch)


def tr(turn: Turn) -> None:
    """Train translation ranking alone."""
    ours(turn, RANKING)


def wtr(turn: Turn) -> None:
    """Add word translation ranking."""
    ours(turn, RANKING | WTR)


def awp(turn: Turn) -> None:
    """Add aligned word prediction."""
    ours(turn, RANKING | CHEAP_AWP)


def wacse(turn: Turn) -> None:
    """Add both."""
    ours(turn, RANKING | CHEAP_AWP | WTR)


def whole(turn: Turn) -> None:
    """Add both, with all sentences masked and all word pieces in the softmax."""
    ours(turn, RANKING | AWP | WTR)


CONTENDERS = {"TR": tr, "TR + WTR": wtr, "TR + AWP": awp, "WACSE": wacse, "WACSE, whole": whole}


def main() -> None:
    """Compare, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--without", nargs="*", default=[], choices=list(CONTENDERS))
    parser.add_argument("--output", default="benchmarks/results/wacse_step.json")
    options = parser.parse_args()
    contenders = {name: contender for name, contender in CONTENDERS.items() if name not in options.without}
    results: dict[str, Any] = take_turns(contenders, options.steps, options.warmup, options.threads)
    print(f"\n{'':16}CPU s/step  of TR  page faults  peak MiB")
    for name, cost in results.items():
        cost["of_tr"] = round(cost["cpu_seconds"] / results["TR"]["cpu_seconds"], 3)
        print(
            f"{name:16}{cost['cpu_seconds']:>10.2f}{cost['of_tr']:>7.2f}{cost['page_faults']:>13,}{cost['peak_mib']:>10}"
        )
    settings = {"steps": options.steps, "warmup": options.warmup, "threads": options.threads}
    Path(options.output).write_text(json.dumps({"settings": settings, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
