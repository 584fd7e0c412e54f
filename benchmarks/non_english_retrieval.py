"""Measure retrieval between pairs of languages that do not include English, on the 36 languages of Tatoeba.

  python benchmarks/non_english_retrieval.py --tatoeba FOLDER start=ENCODER ours=xsent-small

Two sentences are translations if their English sides are equal but for case. Each such sentence of one language
searches all sentences of the other by cosine; the figure is the share of the queries of all language pairs, in both
directions, whose nearest sentence is a translation.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from itertools import permutations

import numpy as np
import numpy.typing as npt

from hf_xsent.data.benchmarks.tatoeba import load_tatoeba, tatoeba_groups
from hf_xsent.files import write_json
from hf_xsent.models.embedder import SentenceEmbedder


def shared_english(targets: list[str]) -> dict[str, set[int]]:
    """Return the rows of each English sentence."""
    rows = defaultdict(set)
    for row, target in enumerate(targets):
        rows[target.strip().lower()].add(row)
    return rows


def hits(
    queries: npt.NDArray[np.float32], candidates: npt.NDArray[np.float32], translations: list[set[int]]
) -> list[bool]:
    """Return for each query whether its nearest candidate is among its translations."""
    nearest = (queries @ candidates.T).argmax(axis=1).tolist()
    return [row in rows for row, rows in zip(nearest, translations, strict=True)]


def accuracy(model: SentenceEmbedder, languages: dict[str, tuple[list[str], list[str]]]) -> dict[str, float]:
    """Return the accuracy over all queries and the mean over language pairs of at least ten queries."""
    vectors = {}
    for language, (sources, _) in languages.items():
        found = np.asarray(model.encode(sources), dtype=np.float32)
        vectors[language] = found / np.linalg.norm(found, axis=1, keepdims=True)
    english = {language: shared_english(targets) for language, (_, targets) in languages.items()}
    found_hits: list[bool] = []
    means = []
    for one, other in permutations(languages, 2):
        common = english[one].keys() & english[other].keys()
        shared = sorted((row, text) for text in common for row in english[one][text])
        if not shared:
            continue
        queries = vectors[one][[row for row, _ in shared]]
        found_hits += (here := hits(queries, vectors[other], [english[other][text] for _, text in shared]))
        if len(here) >= 10:
            means.append(float(np.mean(here)))
    if not means:
        raise SystemExit("no two languages share ten English sentences: give more languages of Tatoeba")
    return {
        "queries": len(found_hits),
        "accuracy": round(100 * float(np.mean(found_hits)), 2),
        "mean_of_language_pairs": round(100 * float(np.mean(means)), 2),
        "language_pairs": len(means),
    }


def main() -> None:
    """Measure, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--tatoeba", required=True)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--output", default="benchmarks/results/non_english_retrieval.json")
    options = parser.parse_args()
    languages = {
        test_set.language: (test_set.sources, test_set.targets)
        for test_set in load_tatoeba(options.tatoeba, list(tatoeba_groups()["36"]))
    }
    results = {}
    for name, _, path in (named_model.partition("=") for named_model in options.models):
        model = SentenceEmbedder.from_pretrained(path, precision=options.precision, max_length=64)
        results[name] = accuracy(model, languages)
    print(json.dumps(results, indent=2))
    write_json(options.output, results)


if __name__ == "__main__":
    main()
