"""Measure what another language costs the known ones: old queries and new ones against stored vectors of the start.

  python benchmarks/extend.py --start MODEL --pairs eu=dev/eu-en.tsv extended=runs/extended ranking=runs/ranking \
    --ntrex FOLDER --output benchmarks/results/extend.json

The stored vectors are the start's embeddings of all known languages in NTREX, and of the English side of the pairs. Per
model: the mean cosine of known sentences with their stored vectors; the share of queries in known languages whose
translation is nearest in the stored vectors of each other known language; and that of the new language's side of the
pairs in the stored vectors of the English side.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from hf_xsent import SentenceEmbedder
from hf_xsent.data.benchmarks.parallel import load_parallel
from hf_xsent.data.readers.formats import read_pairs
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.logs import configure_logging

NEW, ENGLISH = "new language", "its English side"


def encode(model: str, texts: dict[str, list[str]], max_length: int) -> dict[str, np.ndarray]:
    """Return normalized vectors by language."""
    embedder = SentenceEmbedder.from_pretrained(model, max_length=max_length, precision="auto")
    vectors = {language: np.asarray(embedder.encode(sentences)) for language, sentences in texts.items()}
    return {language: value / np.linalg.norm(value, axis=1, keepdims=True) for language, value in vectors.items()}


def accuracy(queries: np.ndarray, stored: np.ndarray) -> float:
    """Return the percentage of queries whose nearest stored vector is that of their row."""
    return 100 * float((np.argmax(queries @ stored.T, axis=1) == np.arange(len(queries))).mean())


def measure(vectors: dict[str, np.ndarray], stored: dict[str, np.ndarray], known: list[str]) -> dict[str, float]:
    """Return the figures of a model; ``stored`` are the start's vectors."""
    cosines = [float((vectors[language] * stored[language]).sum(1).mean()) for language in known]
    pairs = [(first, second) for first in known for second in known if first != second]
    return {
        "cosine": float(np.mean(cosines)),
        "lowest_cosine_of_a_language": min(cosines),
        "known_queries": float(np.mean([accuracy(vectors[first], stored[second]) for first, second in pairs])),
        "new_queries": accuracy(vectors[NEW], stored[ENGLISH]),
    }


def main() -> None:
    """Measure the start and the models; add them to the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--start", required=True)
    parser.add_argument("--pairs", required=True, metavar="CODE=FILE", help="the new language, with English second")
    parser.add_argument("--ntrex", required=True, help="a folder of NTREX-128")
    parser.add_argument("--sentences", type=int, default=300)
    parser.add_argument("--output", required=True, type=Path)
    options = parser.parse_args()
    configure_logging()
    language, _, path = options.pairs.partition("=")
    sets = load_parallel(options.ntrex, None, options.sentences)
    texts = {test_set.language: list(test_set.sentences) for test_set in sets if test_set.language != language}
    known = list(texts)
    texts[NEW], texts[ENGLISH] = map(list, zip(*read_pairs(BitextSource(language, path)), strict=True))
    folders = {"start": options.start, **dict(text.split("=", 1) for text in options.models)}
    stored: dict[str, np.ndarray] = {}
    figures = {}
    for name, folder in folders.items():
        vectors = encode(folder, texts, max_length=192)
        stored = stored or vectors
        figures[name] = measure(vectors, stored, known)
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    counts = {"sentences": options.sentences, "known": len(known), "pairs": len(texts[NEW])}
    results[language] = {**counts, "models": figures}
    options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
