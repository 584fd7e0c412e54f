"""Compare exact mining in both directions with two faiss searches and with sentence-transformers' semantic search.

  OMP_WAIT_POLICY=PASSIVE python benchmarks/mining.py --sizes 12000 25000 50000

Random unit vectors, half of which have a noisy translation; k = 4, ratio margin, pairs without repetition. Each
contender mines the same vectors in a separate process, in alternation; the pairs must be equal. Prints CPU
seconds and peak memory, and writes them to --output.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from turns import Turn, take_turns

WIDTH, K = 384, 4


def vectors(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two sides; the first half of the targets translates the first half of the sources."""
    generator = np.random.default_rng(0)
    source = generator.standard_normal((count, WIDTH), dtype=np.float32)
    target = generator.standard_normal((count, WIDTH), dtype=np.float32)
    target[: count // 2] += 1.5 * source[: count // 2]
    return tuple(side / np.linalg.norm(side, axis=1, keepdims=True) for side in (source, target))  # type: ignore[return-value]


def ours(turn: Turn, count: int, folder: str) -> None:
    """Mine with hf-xsent."""
    from hf_xsent import mine_bitext

    _repeat(turn, "ours", folder, count, lambda source, target: _pairs(mine_bitext(source, target, K)))


def ours_bfloat16(turn: Turn, count: int, folder: str) -> None:
    """Mine with hf-xsent, searching in bfloat16 and confirming in float32."""
    import torch

    from hf_xsent import mine_bitext

    def mine(source: np.ndarray, target: np.ndarray) -> np.ndarray:
        return _pairs(mine_bitext(source, target, K, dtype=torch.bfloat16))

    _repeat(turn, "bfloat16", folder, count, mine)


def faiss_twice(turn: Turn, count: int, folder: str) -> None:
    """Search with ``faiss.knn`` in both directions, then score the same way."""
    import faiss
    import torch

    faiss.omp_set_num_threads(torch.get_num_threads())

    def mine(source: np.ndarray, target: np.ndarray) -> np.ndarray:
        there = faiss.knn(source, target, K, metric=faiss.METRIC_INNER_PRODUCT)
        back = faiss.knn(target, source, K, metric=faiss.METRIC_INNER_PRODUCT)
        return _scored(there, back)

    _repeat(turn, "faiss", folder, count, mine)


def semantic_search(turn: Turn, count: int, folder: str) -> None:
    """Search with ``sentence_transformers.util.semantic_search`` in both directions, then score the same way."""
    import torch

    from sentence_transformers import util

    def search(asking: np.ndarray, answering: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hits = util.semantic_search(
            torch.tensor(asking), torch.tensor(answering), top_k=K, score_function=util.dot_score
        )
        cosines = np.array([[hit["score"] for hit in row] for row in hits], dtype=np.float32)
        return cosines, np.array([[hit["corpus_id"] for hit in row] for row in hits])

    _repeat(turn, "st", folder, count, lambda source, target: _scored(search(source, target), search(target, source)))


def _scored(there: tuple[np.ndarray, np.ndarray], back: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Select the best pairs of both directions by ratio margin, without repetition, in numpy."""
    averages = there[0].mean(1), back[0].mean(1)
    pairs = []
    for (cosines, numbers), own, others in ((there, *averages), (back, *averages[::-1])):
        scores = cosines / ((own[:, None] + others[numbers]) / 2)
        best = scores.argmax(1)
        rows = np.arange(len(best))
        pairs.append((rows, numbers[rows, best], scores[rows, best]))
    source = np.concatenate((pairs[0][0], pairs[1][1]))
    target = np.concatenate((pairs[0][1], pairs[1][0]))
    order = np.argsort(-np.concatenate((pairs[0][2], pairs[1][2])), kind="stable")
    taken: tuple[set[int], set[int]] = (set(), set())
    kept = []
    for i, j in zip(source[order].tolist(), target[order].tolist(), strict=True):
        if i not in taken[0] and j not in taken[1]:
            taken[0].add(i)
            taken[1].add(j)
            kept.append((i, j))
    return np.array(kept)


def _pairs(mined: Any) -> np.ndarray:
    return np.stack((mined.source, mined.target), 1)


def _repeat(turn: Turn, name: str, folder: str, count: int, mine: Any) -> None:
    source, target = vectors(count)
    turn.wait()
    for _ in range(turn.steps):
        pairs = mine(source, target)
        turn.done()
    np.save(Path(folder) / f"{name}.npy", pairs)


CONTENDERS = {
    "hf-xsent": ours,
    "hf-xsent, bfloat16": ours_bfloat16,
    "faiss.knn twice": faiss_twice,
    "semantic_search twice": semantic_search,
}
FILES = {
    "hf-xsent": "ours",
    "hf-xsent, bfloat16": "bfloat16",
    "faiss.knn twice": "faiss",
    "semantic_search twice": "st",
}


def main() -> None:
    """Compare at each size, print and save the figures."""
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[12_000, 25_000, 50_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--without", nargs="*", default=[], choices=list(CONTENDERS))
    parser.add_argument("--output", default="benchmarks/results/mining.json")
    options = parser.parse_args()
    contenders = {name: contender for name, contender in CONTENDERS.items() if name not in options.without}
    results: dict[str, Any] = {}
    for count in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            result: dict[str, Any] = take_turns(
                contenders, options.rounds, warmup=0, threads=options.threads, count=count, folder=folder
            )
            found = {name: {*map(tuple, np.load(f"{folder}/{FILES[name]}.npy").tolist())} for name in contenders}
        for name, figures in result.items():
            figures["speedup_of_ours"] = round(figures["cpu_seconds"] / result["hf-xsent"]["cpu_seconds"], 2)
            figures["pairs_that_differ"] = len(found[name] ^ found["hf-xsent"])
        results[f"{count} x {count}"] = result
    Path(options.output).write_text(json.dumps(results, indent=2) + "\n")
    print(f"{'':24}{'CPU s':>10}{'of ours':>9}{'peak MiB':>10}{'pairs that differ':>19}")
    for size, result in results.items():
        print(size)
        for name, figures in result.items():
            print(
                f"  {name:22}{figures['cpu_seconds']:>10.1f}{figures['speedup_of_ours']:>9.2f}{figures['peak_mib']:>10}"
                f"{figures['pairs_that_differ']:>19}"
            )


if __name__ == "__main__":
    main()
