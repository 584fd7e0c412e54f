"""Measure what the shortcuts of training on a CPU give: each is switched off in turn, in one process and one thread.

  python benchmarks/cpu_shortcuts.py --model ENCODER --data de-en.tsv.xz
  ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 python benchmarks/cpu_shortcuts.py …   # as on a processor without AMX

A step is the forward and backward pass of translation ranking with dropout. Times are medians of CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import nn
from transformers import AutoTokenizer

from hf_xsent import SentenceEncoderForPreTraining
from hf_xsent.data.readers.formats import read_pairs
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.tensors import attention, dropout

WITHOUT = {"": (), "dropout": ("dropout",), "attention": ("attention",), "both": ("dropout", "attention")}


def step(model: Any, batch: dict[str, torch.Tensor], precision: str, without: tuple[str, ...]) -> float:
    """Return the CPU seconds of a step."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.__class__ = nn.Dropout if "dropout" in without else dropout.FastDropout
    plain = mock.patch.object(attention._TrainingOnCpu, "apply", attention._attention_by_runs)
    autocast = torch.autocast("cpu", torch.bfloat16) if precision == "bfloat16" else nullcontext()
    started = time.process_time()
    with plain if "attention" in without else nullcontext():
        with autocast:
            loss = model(**batch).loss
        loss.backward()
    return time.process_time() - started


def main() -> None:
    """Measure in turns, print and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help="a file of pairs")
    parser.add_argument("--pairs", type=int, default=128, help="in a step")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/cpu_shortcuts.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = SentenceEncoderForPreTraining.from_backbone(
        options.model, pooling="mean", max_length=32, dropout=0.1, objectives={"translation_ranking": {}}
    ).train()
    dropout.use_fast_dropout(model)
    pairs = list(islice(read_pairs(BitextSource("und", options.data)), options.pairs))
    examples = [{"source": source, "target": target, "language": "und"} for source, target in pairs]
    batch = PairCollator(AutoTokenizer.from_pretrained(options.model), 32)(examples)
    instructions = os.environ.get("ONEDNN_MAX_CPU_ISA", "all")
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    for precision in ("bfloat16", "float32"):
        seconds: dict[str, list[float]] = {name: [] for name in WITHOUT}
        for repeat in range(options.repeats + 1):
            for name, without in WITHOUT.items():
                spent = step(model, batch, precision, without)
                if repeat:  # the first one warms up
                    seconds[name].append(spent)
        medians = {f"without {name}" if name else "all": statistics.median(times) for name, times in seconds.items()}
        results[f"{precision}, {instructions}"] = {name: round(median, 3) for name, median in medians.items()}
    print(json.dumps(results, indent=2))
    options.output.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
