"""Measure mining through a faiss index: CPU seconds, peak memory, recall of neighbours, share of translations found.

  python benchmarks/index_mining.py --sizes 20000 100000 1000000

Unit vectors around random centres, about 100 per centre, since embeddings of sentences form clusters, too; half of the
sources have a noisy translation. k = 4, ratio margin, pairs without repetition; exact mining at the same sizes, except
the largest, is the comparison.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, K = 384, 4


def vectors(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two sides; the first half of the targets translates the first half of the sources."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((max(1, count // 100), WIDTH), dtype=np.float32)
    sides = []
    for _ in range(2):
        side = centres[generator.integers(len(centres), size=count)]
        side += 2 * generator.standard_normal((count, WIDTH), dtype=np.float32)
        sides.append(side)
    half = count // 2
    sides[1][:half] = sides[0][:half] + 1.5 * generator.standard_normal((half, WIDTH), dtype=np.float32)
    for side in sides:
        side /= np.linalg.norm(side, axis=1, keepdims=True)
    return sides[0], sides[1]


def measure(count: int, probes: int | None, threads: int) -> dict[str, Any]:
    """Mine ``count`` × ``count`` vectors, exactly if ``probes`` is None; return the figures."""
    import faiss
    import torch

    from hf_xsent.mining.index import nearest_by_index
    from hf_xsent.mining.margin import pairs_of_neighbours
    from hf_xsent.mining.neighbours import nearest_both_ways

    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
    source, target = vectors(count)
    factory = f"IVF{2 ** round(math.log2(4 * math.sqrt(count)))},Flat"
    started, recall = time.process_time(), 1.0
    if probes is None:
        of_source, of_target = nearest_both_ways(source, target, K)
    else:
        of_source, of_target, recall = nearest_by_index(source, target, K, factory, probes)
    mined = pairs_of_neighbours(of_source, of_target, "ratio", "max")
    seconds = time.process_time() - started
    rows, columns = np.asarray(mined.source), np.asarray(mined.target)
    translations = int(((rows == columns) & (rows < count // 2)).sum())
    return {
        "sentences": count,
        "index": None if probes is None else factory,
        "probes": probes,
        "cpu_seconds": round(seconds, 1),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "recall_of_neighbours": round(recall, 4),
        "share_of_translations": round(translations / (count // 2), 4),
    }


def main() -> None:
    """Measure each size in a process of its own, and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 100_000, 1_000_000])
    parser.add_argument("--probes", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", default="benchmarks/results/index_mining.json")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    sizes = sorted(options.sizes)
    for count, probes in [*((size, None) for size in sizes[:-1]), *((size, options.probes) for size in sizes)]:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            results.append(pool.apply(measure, (count, probes, options.threads)))
        print(json.dumps(results[-1]), flush=True)
        Path(options.output).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
