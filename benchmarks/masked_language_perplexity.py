"""Measure the perplexity of a masked-language head on held-out sentences, by language and by Tatoeba's groups.

  python benchmarks/masked_language_perplexity.py --model runs/mlm-small --data "dev/{language}-en.tsv"

The model is a run of hf-xsent pretrain with masked_language_modeling. 15% of the word pieces are masked by BERT's rule,
with the same seed for every model; the softmax is over the full vocabulary. A group's perplexity is exp of the mean
over its languages of the loss per masked piece.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForPreTraining

from hf_xsent.data.benchmarks.tatoeba import tatoeba_groups
from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.languages import find_language
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import DataError, ModelError
from hf_xsent.models.loading import load_tokenizer

OBJECTIVE = "masked_language_modeling"


@torch.inference_mode()
def masked_loss(model: Any, collate: PairCollator, sentences: Sequence[str], batch: int, seed: int = 0) -> float:
    """Return the mean cross entropy of the masked word pieces of single sentences, in nats."""
    objective = model.objectives[OBJECTIVE]
    torch.manual_seed(seed)
    total, count = 0.0, 0
    for start in range(0, len(sentences) - 1, 2 * batch):
        some = sentences[start : start + 2 * batch]
        rows = [
            {"source": one, "target": other, "language": "und"}
            for one, other in zip(some[::2], some[1::2], strict=False)
        ]
        encoded = model.encode_pairs({name: tensor.to(model.device) for name, tensor in collate(rows).items()})
        for part in encoded.sampled[OBJECTIVE]:
            total += objective.token_loss(encoded.tokens, encoded.states, part).item()
            count += int(part.count)
    if not count:
        raise DataError("no word piece was masked: give more sentences")
    return total / count


def by_group(losses: dict[str, float]) -> dict[str, float]:
    """Return the perplexity of each group of Tatoeba whose languages were all measured, and of all languages."""
    groups = {name: [find_language(code).code for code in codes] for name, codes in tatoeba_groups().items()}
    measured = {name: codes for name, codes in groups.items() if codes and set(codes) <= set(losses)}
    measured["all"] = [*losses]
    return {name: math.exp(sum(losses[code] for code in codes) / len(codes)) for name, codes in measured.items()}


def main() -> None:
    """Measure each language and English, and print and save the perplexities."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Folder of a run with masked_language_modeling.")
    parser.add_argument("--data", required=True, nargs="+", help="Held-out bitext, written like --data of pretrain.")
    parser.add_argument("--pairs", type=int, default=300, help="Sentences per language.")
    parser.add_argument("--batch", type=int, default=32, help="Pairs of sentences per batch.")
    parser.add_argument("--output", default="benchmarks/results/masked_language_perplexity.json")
    options = parser.parse_args()
    model: Any = AutoModelForPreTraining.from_pretrained(options.model, use_safetensors=True).eval()
    if OBJECTIVE not in model.config.objectives:
        raise ModelError(f"{options.model} was not trained by {OBJECTIVE}: give a run of mlm-small.yaml")
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    model.objectives[OBJECTIVE].head.sample = None
    collate = PairCollator(load_tokenizer(options.model), model.config.max_length)
    bitext = load_bitext(options.data, cleaning=None, max_pairs=options.pairs)
    losses: dict[str, float] = {}
    for language in bitext.languages:
        losses[language] = masked_loss(model, collate, bitext.pairs(language)[0], options.batch)
        print(f"{language} {math.exp(losses[language]):.2f}", flush=True)
    english = list(dict.fromkeys(text for language in bitext.languages for text in bitext.pairs(language)[1][:20]))
    result = {
        "model": options.model,
        "groups": by_group(losses),
        "en": math.exp(masked_loss(model, collate, english, options.batch)),
        "languages": {language: math.exp(loss) for language, loss in losses.items()},
    }
    Path(options.output).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({"groups": result["groups"], "en": result["en"]}, indent=2))


if __name__ == "__main__":
    main()
