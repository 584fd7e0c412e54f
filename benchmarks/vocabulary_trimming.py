"""Compare the accuracy of hf-xsent trim-vocab with pieces chosen by frequency, at equal size.

  python benchmarks/vocabulary_trimming.py --model ENCODER --data "train/{language}-en.tsv.xz" --tatoeba FOLDER

Baseline: the most frequent ids of the corpus, and the unknown token for all others. Ours: pieces by their share of each
language, chosen in rounds, text segmented again. Reads ``--max_pairs`` and measures ``--sample`` pairs per language.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
from hf_xsent.data.bitext import load_bitext
from hf_xsent.evaluation.translation_retrieval import TatoebaTask
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.publishing.trimmed_tokenizer import PieceTable, trim_tokenizer
from hf_xsent.publishing.vocabulary_trimming import choose_pieces, word_shares


class OldIds:
    """A tokenizer that gives the original model's ids, of a trimmed tokenizer or with some ids unknown."""

    def __init__(self, tokenizer: Any, old: Sequence[int] | None = None, kept: set[int] | None = None) -> None:
        self.tokenizer, self.old, self.kept = tokenizer, old, kept

    def __call__(self, texts: list[str], **options: Any) -> dict[str, list[list[int]]]:
        """Return the token ids of each text."""
        rows = self.tokenizer(texts, **options)["input_ids"]
        if self.old is not None:
            rows = [[self.old[number] for number in row] for row in rows]
        if self.kept is not None:
            unknown = self.tokenizer.unk_token_id
            rows = [[number if number in self.kept else unknown for number in row] for row in rows]
        return {"input_ids": rows}


def main() -> None:
    """Count, choose, measure, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tatoeba", required=True)
    parser.add_argument("--pieces", type=int, nargs="+", default=[61000])
    parser.add_argument(
        "--languages", nargs="+", default=["afr", "ell", "eus", "heb", "ita", "kaz", "mar", "swh", "tur"]
    )
    parser.add_argument("--max_pairs", type=int, default=4000)
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--output", default="benchmarks/results/vocabulary_trimming.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    embedder = SentenceEmbedder.from_pretrained(options.model, device="cpu")
    tokenizer: Any = embedder.tokenizer
    bitext = load_bitext(options.data, max_pairs=options.max_pairs)
    texts = {language: [*chain(*bitext.pairs(language))] for language in bitext.languages}
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    for sentences in texts.values():
        for row in tokenizer(sentences, add_special_tokens=False)["input_ids"]:
            np.add.at(counts, row, 1)
    table, words = PieceTable(tokenizer), word_shares(tokenizer, texts)
    task = TatoebaTask(
        [
            PairSet(one.language, one.sources[: options.sample], one.targets[: options.sample])
            for one in load_tatoeba(options.tatoeba, options.languages)
        ]
    )
    results: dict[str, Any] = {"distinct pieces in the corpus": int((counts > 0).sum())}
    ways = {"as it is": OldIds(tokenizer)}
    for size in options.pieces:
        frequent = {*np.argsort(-counts, kind="stable")[: size - len(table.added)].tolist(), *table.added.values()}
        ways[f"{size}, blind"] = OldIds(tokenizer, kept=frequent)
        trimmed, old = trim_tokenizer(tokenizer, frequent)
        ways[f"{size}, most frequent, segmented anew"] = OldIds(trimmed, old)
        trimmed, old = trim_tokenizer(tokenizer, choose_pieces(table, words, size))
        ways[f"{size}, trim-vocab"] = OldIds(trimmed, old)
    for name, way in ways.items():
        embedder.tokenizer = way  # type: ignore[assignment]
        languages = task.score(embedder.encode).languages
        each = {language: round(figures["mean"], 2) for language, figures in languages.items()}
        results[name] = {"mean": round(sum(each.values()) / len(each), 2), "languages": each}
        print(name, results[name], flush=True)
        Path(options.output).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
