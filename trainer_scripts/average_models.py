"""Average the weights of several models that were trained from the same encoder (Wortsman et al., 2022).

  python trainer_scripts/average_models.py runs/xsent-small-2-1 runs/xsent-small-2-2 --output xsent-small

The output is an export: hf-xsent and sentence-transformers open it. The other settings (length, prompts) are those of
the first model. hf-xsent publish --run RUN describes the training by one of the runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from hf_xsent import SentenceEmbedder, export_sentence_transformer
from hf_xsent.errors import HfXsentError, ModelError


@torch.no_grad()
def average(models: Sequence[str]) -> SentenceEmbedder:
    """Load the first model, and set its weights to the mean of those of all models."""
    first = SentenceEmbedder.from_pretrained(models[0], device="cpu")
    first.model.merge_adapters()  # the mean of products is not the product of means
    weights = dict(first.model.named_parameters())
    for count, name in enumerate(models[1:], start=2):
        other = SentenceEmbedder.from_pretrained(name, device="cpu")
        other.model.merge_adapters()
        theirs = dict(other.model.named_parameters())
        if {key: one.shape for key, one in theirs.items()} != {key: one.shape for key, one in weights.items()}:
            raise ModelError(f"{name} and {models[0]} have different weights: average models of the same encoder")
        if _reading(other) != _reading(first):
            raise ModelError(f"{name} and {models[0]} have different pooling, layers or tokenizers: train them alike")
        for key, weight in weights.items():
            weight.lerp_(theirs[key], 1 / count)
    return first


def _reading(model: SentenceEmbedder) -> tuple[object, ...]:
    """Return what equal weights must share besides names: pooling, the layers of dual pivot, and word pieces."""
    return model.pooling, getattr(model.model, "layers", None), model.tokenizer.get_vocab()


def main() -> None:
    """Write the average as an export."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="Runs, checkpoints or exports: two or more.")
    parser.add_argument("--output", required=True, type=Path, help="Folder for the export.")
    options = parser.parse_args()
    if len(options.models) < 2:
        parser.error("give at least two models")
    if options.output.exists() and (options.output.is_file() or any(options.output.iterdir())):
        parser.error(f"{options.output} is a file or not empty: remove it, or choose another --output")
    mean = average(options.models)
    export_sentence_transformer(mean.model, options.output, mean.tokenizer, dim=mean.width)


if __name__ == "__main__":
    try:
        main()
    except HfXsentError as error:
        sys.exit(f"average_models.py: {error}")
