"""Sort sentence pairs into files of similar pairs, for recipes/xsent-small.yaml and xsent-small-2.yaml.

  python trainer_scripts/similar_pairs.py "selected/{language}.tsv" --model runs/xsent-small-1 --output similar-1

The targets are encoded and clustered by spherical k-means. Cluster 0 goes to similar-1/und-AA.tsv, cluster 1 to
similar-1/und-AB.tsv, and so on. With one_language_batches, pretrain takes each file for a language, so that a batch
comes from one cluster: its other pairs are harder negatives than random ones, at no cost per step. Choose --clusters so
that each has several batches.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from string import ascii_uppercase

import numpy as np

from hf_xsent import SentenceEmbedder
from hf_xsent.data.bitext import read_pairs, resolve_sources
from hf_xsent.errors import HfXsentError
from hf_xsent.files import write_text
from hf_xsent.mining.index import import_faiss

Pairs = list[tuple[str, str]]
NAMES = [f"und-{first}{second}" for first in ascii_uppercase for second in ascii_uppercase]


def shares(sizes: Mapping[str, int], total: int, alpha: float) -> dict[str, int]:
    """Divide ``total`` pairs among languages in proportion to size ** alpha, at most all pairs of a language.

    >>> shares({"de": 900, "fr": 900, "jv": 10}, 410, alpha=0.5)
    {'jv': 10, 'de': 200, 'fr': 200}
    """
    chosen: dict[str, int] = {}
    sizes = {language: size for language, size in sizes.items() if size}
    for language in sorted(sizes, key=lambda language: sizes[language]):
        rest = sum(size**alpha for other, size in sizes.items() if other not in chosen)
        share = round((total - sum(chosen.values())) * sizes[language] ** alpha / rest)
        chosen[language] = min(sizes[language], share)
    return chosen


def sample(data: str, total: int, alpha: float, max_characters: int, seed: int) -> Pairs:
    """Draw different pairs of all languages."""
    pairs: dict[str, Pairs] = {}
    for language, sources in resolve_sources(data).items():
        read = (pair for source in sources for pair in read_pairs(source))
        short = (pair for pair in read if max(map(len, pair)) <= max_characters)
        pairs[language] = list(
            dict.fromkeys((" ".join(left.split()), " ".join(right.split())) for left, right in short)
        )
    generator = random.Random(seed)
    counts = shares({language: len(some) for language, some in pairs.items()}, total, alpha)
    return [pair for language, count in counts.items() for pair in generator.sample(pairs[language], count)]


def cluster(embeddings: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """Return the number of each embedding's cluster."""
    means = import_faiss().Kmeans(embeddings.shape[1], clusters, niter=15, seed=seed, spherical=True)
    means.train(embeddings)
    numbers: np.ndarray = means.index.search(embeddings, 1)[1][:, 0]
    return numbers


def main() -> None:
    """Write the files, and print the smallest and the largest number of pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="Pairs of all languages, such as selected/{language}.tsv.")
    parser.add_argument("--model", required=True, help="Encode the targets with this model.")
    parser.add_argument("--output", required=True, type=Path, help="Folder for the files.")
    parser.add_argument("--pairs", type=int, default=150_000, help="Number of pairs to draw from all languages.")
    parser.add_argument(
        "--alpha", type=float, default=0.4, help="Draw pairs of each language in proportion to size ** alpha."
    )
    parser.add_argument("--clusters", type=int, default=48, help=f"Number of clusters, at most {len(NAMES)}.")
    parser.add_argument("--max_characters", type=int, default=200, help="Longest side of a pair.")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.output.exists() and (options.output.is_file() or any(options.output.iterdir())):
        parser.error(f"{options.output} is a file or not empty: remove it, or choose another --output")
    if options.pairs < 1:
        parser.error(f"--pairs must be at least 1, not {options.pairs}")
    if not 1 <= options.clusters <= len(NAMES):
        parser.error(f"--clusters must be between 1 and {len(NAMES)}, not {options.clusters}")
    options.output.mkdir(parents=True, exist_ok=True)
    import_faiss()  # its error comes before the work of encoding
    pairs = sample(options.data, options.pairs, options.alpha, options.max_characters, options.seed)
    if not pairs:
        parser.error(f"no pair has two sides of at most {options.max_characters} characters: raise --max_characters")
    targets = {target: row for row, target in enumerate(dict.fromkeys(target for _, target in pairs))}
    if len(targets) < options.clusters:
        parser.error(f"{len(targets)} different targets are too few for {options.clusters} clusters: lower --clusters")
    model = SentenceEmbedder.from_pretrained(options.model, precision="auto", max_length=48)
    embeddings = model.encode(list(targets), show_progress=True, normalize_embeddings=True)
    of_target = cluster(np.asarray(embeddings, dtype=np.float32), options.clusters, options.seed)
    members: list[list[str]] = [[] for _ in range(options.clusters)]
    for source, target in pairs:
        members[of_target[targets[target]]].append(f"{source}\t{target}\n")
    filled = [lines for lines in members if lines]  # pretrain refuses empty files
    for name, lines in zip(NAMES, filled, strict=False):
        write_text(options.output / f"{name}.tsv", lines)
    sizes = sorted(map(len, filled))
    print(f"{len(pairs)} pairs in {len(filled)} clusters of {sizes[0]} to {sizes[-1]} pairs")


if __name__ == "__main__":
    try:
        main()
    except (HfXsentError, OSError) as error:
        sys.exit(f"similar_pairs.py: {error}")
