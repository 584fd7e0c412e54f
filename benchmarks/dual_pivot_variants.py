"""Compare dual pivot by its text with its authors' code: accuracy on Tatoeba, and the share of rows with a gradient.

  python benchmarks/dual_pivot_variants.py --model ENCODER --data de=train/de-en.tsv.xz --tatoeba data/tatoeba

The frozen encoder encodes each sentence once. ``--states`` stores the hidden states of all tokens, 10 KiB per token of
an encoder of 12 layers × 384, because the layer norm and dropout of the authors' code need them. All runs read the
same states, and with the same seed the same batches. Finished runs are in the output file; the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from hf_xsent import DualPivotConfig, DualPivotForPreTraining, load_bitext
from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
from hf_xsent.evaluation.metrics import translation_retrieval
from hf_xsent.files import digest, write_json
from hf_xsent.logs import configure_logging
from hf_xsent.models.loading import load_tokenizer
from hf_xsent.runs.identity import identify_model
from hf_xsent.tensors.packing import pack

MAX_LENGTH, BATCH = 64, 32
AUTHORS = {"variant": "authors"}


def supervised(negatives: int, margin: float, hinge: bool, **settings: Any) -> dict[str, Any]:
    """Return a method that is trained on pairs."""
    return settings | {"objectives": {"triplet_ranking": {"negatives": negatives, "margin": margin, "hinge": hinge}}}


def unsupervised(hinge: bool, **settings: Any) -> dict[str, Any]:
    """Return a method that is trained without pairs, with the paper's settings for Tatoeba."""
    cycle = {"weight": 10.0, "negatives": 2, "margin": 0.2, "hinge": hinge}
    return settings | {"objectives": {"adversarial": {"critic_steps": 2}, "cycle": cycle}}


METHODS = {
    "text, n 1, α 0": supervised(1, 0.0, True),
    "text, n 1, α 0.2": supervised(1, 0.2, True),
    "text, n 2, α 0": supervised(2, 0.0, True),
    "text, n 2, α 0.2": supervised(2, 0.2, True),
    "text, n 4, α 0.2": supervised(4, 0.2, True),
    "text without hinge, n 1": supervised(1, 0.0, False),
    "text without hinge, n 4, α 0.2": supervised(4, 0.2, False),
    "authors, n 1": supervised(1, 0.0, False, **AUTHORS),
    "authors, n 2, α 0.2": supervised(2, 0.2, False, **AUTHORS),
    "authors, n 4, α 0.2": supervised(4, 0.2, False, **AUTHORS),
    "unsupervised, text": unsupervised(True),
    "unsupervised, text without hinge": unsupervised(False),
    "unsupervised, authors": unsupervised(False, **AUTHORS),
}


class States:
    """The hidden states of the tokens of some sentences, in a memory-mapped file."""

    def __init__(self, sentences: Sequence[str], model: Any, tokenizer: Any, file: Path) -> None:
        self.ids = tokenizer(list(sentences), truncation=True, max_length=MAX_LENGTH)["input_ids"]
        numbers: dict[str, int] = {}
        self.identity = torch.tensor([numbers.setdefault(sentence, len(numbers)) for sentence in sentences])
        ends = np.cumsum([len(row) for row in self.ids])
        self.places = [slice(end - len(one), end) for one, end in zip(self.ids, ends, strict=True)]
        config = model.config.encoder_config
        shape = (int(ends[-1]), config.num_hidden_layers + 1, config.hidden_size)
        if not file.is_file():
            self._encode(model, file.with_suffix(".part"), shape)
            file.with_suffix(".part").rename(file)
        self.states = np.load(file, mmap_mode="r")

    @torch.inference_mode()
    def _encode(self, model: Any, file: Path, shape: tuple[int, ...]) -> None:
        stored = np.lib.format.open_memmap(file, mode="w+", dtype=np.float16, shape=shape)
        order = sorted(range(len(self.ids)), key=lambda row: len(self.ids[row]))
        for start in range(0, len(order), 64):
            rows = order[start : start + 64]
            packed = pack(*padded([self.ids[row] for row in rows]))
            found = torch.stack([*model.backbone.hidden_states(packed)], 1)[packed.token_order.argsort()]
            for row, states in zip(rows, found.split([len(self.ids[row]) for row in rows]), strict=True):
                stored[self.places[row]] = states.half().numpy()
        stored.flush()


def joined(parts: Sequence[tuple[States, Sequence[int]]]) -> dict[str, Any]:
    """Return the hidden states of some rows of each side as a batch of the model."""
    chosen = [(side, row) for side, rows in parts for row in rows]
    packed = pack(*padded([side.ids[row] for side, row in chosen]))
    flat = torch.from_numpy(np.concatenate([side.states[side.places[row]] for side, row in chosen]))
    return {"layer_states": flat[packed.token_order].float().unbind(1), "packed": packed}


def padded(sentences: Sequence[Sequence[int]]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the padded ids and the mask of some sentences."""
    ids = [torch.tensor(row) for row in sentences]
    masks = [torch.ones_like(row) for row in ids]
    return [torch.nn.utils.rnn.pad_sequence(ids, True)], [torch.nn.utils.rnn.pad_sequence(masks, True)]


def train(
    settings: dict[str, Any], seed: int, sides: tuple[States, States], options: argparse.Namespace, config: Any
) -> tuple[Any, dict[str, list[float]]]:
    """Train a model; return it, and the share of source rows with a gradient in the first and the last ten steps."""
    torch.manual_seed(seed)
    encoder = BertConfig(
        vocab_size=8,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=1,
        intermediate_size=4,
    )  # never run: all states are stored
    stated = DualPivotConfig(encoder_config=encoder, **settings)
    model: Any = DualPivotForPreTraining(stated, encoder=BertModel(encoder, add_pooling_layer=False)).train()
    adversarial = "adversarial" in stated.objectives
    weights = [weight for weight in model.trained_weights() if weight.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=options.learning_rate)
    numbers, shares = np.random.default_rng(seed), []
    for rows in batches(numbers, len(sides[0].ids), options.steps, paired=not adversarial or bool(stated.paired_rows)):
        batch = joined([*zip(sides, rows, strict=True)])
        names = ("source_identity", "target_identity")
        batch |= {name: side.identity[some] for name, side, some in zip(names, sides, rows, strict=True)}
        model.train_critics(batch, options.learning_rate)
        pairs = model.sentence_pairs(batch)
        pairs.source.retain_grad()
        optimizer.zero_grad()
        model.sentence_loss(pairs, batch)[0].backward()
        optimizer.step()
        shares.append(100 * float(pairs.source.grad.any(1).float().mean()))
    return model.eval(), {"first": shares[:10], "last": shares[-10:]}


def batches(numbers: Any, count: int, steps: int, paired: bool) -> Any:
    """Yield the rows of both sides of each step; without pairs, each side has its own order."""
    left: list[list[int]] = [[], []]
    for _ in range(steps):
        if len(left[0]) < BATCH:
            left[0] = numbers.permutation(count).tolist()
            left[1] = list(left[0]) if paired else numbers.permutation(count).tolist()
        yield left[0][:BATCH], left[1][:BATCH]
        left = [side[BATCH:] for side in left]


@torch.inference_mode()
def embed(model: Any, side: States) -> np.ndarray:
    """Embed all sentences of a side."""
    found = []
    for start in range(0, len(side.ids), 128):
        batch = joined([(side, range(start, min(start + 128, len(side.ids))))])
        found.append(model.extract_tokens(batch["layer_states"], batch["packed"]))
    return torch.cat(found).numpy()


def summary(results: dict[str, Any]) -> str:
    """Render a table: means over seeds ± standard deviations."""
    languages = results["languages"]
    lines = [f"| | {' | '.join(languages)} | mean | rows with a gradient, first and last ten steps |"]
    lines.append("|---" * (len(languages) + 3) + "|")
    for name, runs in results["runs"].items():
        columns = [[run["accuracy"][language] for run in runs.values()] for language in languages]
        columns.append([statistics.mean(run["accuracy"].values()) for run in runs.values()])
        spread = [f" ± {statistics.stdev(column):.2f}" if len(column) > 1 else "" for column in columns]
        cells = [f"{statistics.mean(one):.2f}{more}" for one, more in zip(columns, spread, strict=True)]
        shares = [
            f"{statistics.mean(share for run in runs.values() for share in run['rows'][when]):.1f}%"
            for when in ("first", "last")
            if all("rows" in run for run in runs.values())
        ]
        lines.append(f"| {name} | {' | '.join(cells)} | {' → '.join(shares)} |")
    return "\n".join(lines)


def main() -> None:
    """Train and measure every method with every seed that the output lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--tatoeba", required=True)
    parser.add_argument("--languages", nargs="+", default=["de", "ar", "sw", "kk"])
    parser.add_argument("--pairs", type=int, default=1600)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--states", type=Path, default=Path("runs/dual_pivot_states"))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/dual_pivot_variants.json"))
    options = parser.parse_args()
    configure_logging()
    options.states.mkdir(parents=True, exist_ok=True)
    tokenizer = load_tokenizer(options.model)
    encoder: Any = DualPivotForPreTraining.from_backbone(options.model, max_length=MAX_LENGTH).eval()
    bitext = load_bitext(options.data, max_pairs=options.pairs, cache_dir=options.states / "cache")
    pairs = [list(side) for side in bitext.pairs(next(iter(bitext.languages)))]

    fingerprint = identify_model(options.model)

    def states(sentences: Sequence[str], name: str) -> States:
        file = options.states / f"{name}-{digest([fingerprint, list(sentences)])}.npy"
        return States(sentences, encoder, tokenizer, file)

    sides = (states(pairs[0], "source"), states(pairs[1], "target"))
    tests = {
        code: (states(test_set.sources, f"{code}-source"), states(test_set.targets, f"{code}-target"))
        for code, test_set in zip(options.languages, load_tatoeba(options.tatoeba, options.languages), strict=True)
    }

    def measure(model: Any) -> dict[str, float]:
        return {
            code: round(translation_retrieval(embed(model, one), embed(model, other))["mean"], 4)
            for code, (one, other) in tests.items()
        }

    names = ("model", "data", "languages", "pairs", "steps", "learning_rate")
    stated = {key: getattr(options, key) for key in names}
    results: dict[str, Any] = stated | {"runs": {}}
    if options.output.is_file():
        results = json.loads(options.output.read_text())
    if any(results.setdefault(key, value) != value for key, value in stated.items()):
        raise SystemExit(f"{options.output} has runs with other settings: name another --output")
    untrained: Any = {"average of the layers": {"layer_mix": False}}
    for seed in options.seeds:
        for name, settings in (untrained | METHODS).items():
            runs = results["runs"].setdefault(name, {})
            if str(seed) in runs or (name in untrained and runs):
                continue
            clock, cpu = time.perf_counter(), time.process_time()
            steps = argparse.Namespace(**vars(options) | ({"steps": 0} if name in untrained else {}))
            model, rows = train(settings, seed, sides, steps, encoder.config.encoder_config)
            taken = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
            run = {"accuracy": measure(model), **{unit: round(value, 2) for unit, value in taken.items()}}
            runs[str(seed)] = run | ({"rows": rows} if rows["first"] else {})
            write_json(options.output, results)
            print(name, seed, run, flush=True)
    print(summary(results))


if __name__ == "__main__":
    main()
