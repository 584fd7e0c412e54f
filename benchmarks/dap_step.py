"""Measure the cost of a DAP step at the size of mBERT, relative to a padded Hugging Face step of translation ranking.

  OMP_WAIT_POLICY=PASSIVE python benchmarks/dap_step.py

Random weights and word pieces (12 layers × 768, 119,547 pieces), 32 pairs, lengths of mean 18 and at most 32 tokens;
each step is forward, backward, clipping and AdamW. The processes alternate (see turns.py). Prints CPU seconds relative
to the padded step, page faults and peak memory, and writes them to --output.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from turns import Turn, take_turns

VOCABULARY, RESTRICTED, PAIRS, LONGEST = 119_547, 30_000, 32, 32
DAP_RESTRICTED = {
    "translation_ranking": 1.0,
    "representation_translation": {"weight": 0.8, "vocabulary_size": RESTRICTED},
}


def lengths(generator: Any) -> Any:
    """Sample lengths of PAIRS sentences: mean 18, at most 32, as of real pairs truncated at 32 tokens."""
    import torch

    drawn = torch.randn(PAIRS, generator=generator) * 7 + 17.8
    return drawn.round().long().clamp(5, LONGEST)


def batch(step: int) -> dict[str, Any]:
    """Return the pairs of one step, equal for every contender; targets use the restricted pieces only."""
    import torch

    generator = torch.Generator().manual_seed(step)
    result = {}
    for side in ("source", "target"):
        mask = torch.arange(LONGEST) < lengths(generator)[:, None]
        ids = torch.randint(200, RESTRICTED if side == "target" else VOCABULARY, mask.shape, generator=generator)
        ids[:, 0] = 101
        result[f"{side}_input_ids"] = ids * mask
        result[f"{side}_attention_mask"] = mask.long()
    return {name: rows[:, : int(result[f"{name[:6]}_attention_mask"].sum(1).max())] for name, rows in result.items()}


def encoder_config() -> Any:
    """Return a configuration of the size of mBERT."""
    from transformers import BertConfig

    return BertConfig(vocab_size=VOCABULARY)


def train(turn: Turn, model: Any, loss: Any, batch: Any = batch) -> None:
    """Train with the same loop for all contenders."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    turn.wait()
    for step in range(turn.steps):
        loss(batch(step)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        turn.done()


def padded(turn: Turn) -> None:
    """Train translation ranking with both sides padded, in two forward passes."""
    import torch
    from transformers import BertModel

    torch.manual_seed(0)
    model = BertModel(encoder_config(), add_pooling_layer=False).train()

    def loss(pairs: dict[str, Any]) -> Any:
        source, target = (
            model(pairs[f"{side}_input_ids"], attention_mask=pairs[f"{side}_attention_mask"]).last_hidden_state[:, 0]
            for side in ("source", "target")
        )
        source, target = (torch.nn.functional.normalize(side, dim=-1) for side in (source, target))
        return torch.nn.functional.cross_entropy(source @ target.T / 0.05, torch.arange(len(source)))

    train(turn, model, loss)


def ours(turn: Turn, bf16: bool = False, **settings: Any) -> None:
    """Train our model, reusing freed memory between steps as AlignmentTrainer does."""
    import torch

    from hf_xsent import DapConfig, XlmrWithRTLHead
    from hf_xsent.compat import keep_freed_memory

    keep_freed_memory()
    torch.manual_seed(0)
    config = DapConfig(encoder_config=encoder_config(), max_length=LONGEST, mask_token_id=103, **settings)
    model = XlmrWithRTLHead(config).train()

    def loss(pairs: dict[str, Any]) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            return model(**pairs).loss

    train(turn, model, loss)


def tr(turn: Turn) -> None:
    """Train our translation ranking alone."""
    ours(turn, objectives={"translation_ranking": 1.0})


def dap_restricted(turn: Turn) -> None:
    """Train our DAP with a vocabulary of 30,000 pieces."""
    ours(turn, objectives=DAP_RESTRICTED)


def dap_full(turn: Turn) -> None:
    """Train our DAP over all pieces."""
    ours(turn)


def dap_bf16(turn: Turn) -> None:
    """Train our restricted DAP under autocast to bfloat16."""
    ours(turn, bf16=True, objectives=DAP_RESTRICTED)


CONTENDERS = {"padded TR": padded, "TR": tr, "DAP restricted": dap_restricted, "DAP full": dap_full}


def main() -> None:
    """Compare, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="Also measure bfloat16; slow on CPUs without it.")
    parser.add_argument("--without", nargs="*", default=[], choices=list(CONTENDERS), help="To save memory.")
    parser.add_argument("--output", default="benchmarks/results/dap_step.json")
    options = parser.parse_args()
    chosen = {name: contender for name, contender in CONTENDERS.items() if name not in options.without}
    contenders = chosen | ({"DAP restricted, bf16": dap_bf16} if options.bf16 else {})
    results: dict[str, Any] = take_turns(contenders, options.steps, options.warmup, options.threads)
    print(f"\n{'':24}CPU s/step  of padded TR  page faults  peak MiB")
    for name, cost in results.items():
        cost["of_padded"] = round(cost["cpu_seconds"] / results["padded TR"]["cpu_seconds"], 3)
        print(
            f"{name:24}{cost['cpu_seconds']:>10.2f}{cost['of_padded']:>14.3f}{cost['page_faults']:>13,}{cost['peak_mib']:>10}"
        )
    settings = {"steps": options.steps, "warmup": options.warmup, "threads": options.threads}
    Path(options.output).write_text(json.dumps({"settings": settings, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
