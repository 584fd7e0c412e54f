"""Measure F1 on BUCC of exact mining and of faiss indexes, and extrapolate the time of mining 1M × 1M.

  python benchmarks/bucc.py --model ENCODER --data FOLDER --vectors FOLDER [--pair zh-en] [--split dev]

Embeddings are encoded once per model, pair and split into the folder of --vectors. Times are CPU seconds of one thread;
an index may use more.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_xsent.data.benchmarks.bucc import load_bucc
from hf_xsent.files import digest, write_arrays
from hf_xsent.mining.calibration import best_threshold
from hf_xsent.mining.index import nearest_by_index
from hf_xsent.mining.margin import pairs_of_neighbours
from hf_xsent.mining.neighbours import nearest_both_ways
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.runs.identity import identify_model

INDEXES = (("IVF64,Flat", 4), ("IVF64,Flat", 8), ("IVF64,Flat", 16), ("HNSW32", 1))


def main() -> None:
    """Encode, mine in each way, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--pair", default="zh-en")
    parser.add_argument("--split", default="dev")
    parser.add_argument("--output", default="benchmarks/results/bucc.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bucc = load_bucc(options.data, options.pair, options.split)
    kept = Path(options.vectors)
    sides, encoding = [], []
    model = identify_model(options.model)
    for language, texts in zip(options.pair.split("-"), (bucc.sources, bucc.targets), strict=True):
        path = kept / f"{language}-{digest([model, texts])}.npz"
        if not path.is_file():
            started = time.process_time()
            vectors = SentenceEmbedder.from_pretrained(options.model, device="cpu").encode(texts)
            write_arrays(path, {"vectors": vectors, "cpu_seconds": time.process_time() - started})
        with np.load(path) as file:
            sides.append(file["vectors"])
            encoding.append(float(file["cpu_seconds"]))
    results: dict[str, Any] = {}
    for index, probes in ((None, 0), *INDEXES):
        started = time.process_time()
        nearest = nearest_both_ways(*sides) if index is None else nearest_by_index(*sides, 4, index, probes)[:2]
        mined = pairs_of_neighbours(*nearest, "ratio", "max")
        seconds = time.process_time() - started
        best = best_threshold(mined, bucc.gold)
        name = "exact" if index is None else f"{index}, {probes} probes" if index.startswith("IVF") else index
        results[name] = {
            "f1": round(best.f1, 2),
            "precision": round(best.precision, 2),
            "recall": round(best.recall, 2),
            "threshold": round(best.threshold, 4),
            "cpu_seconds": round(seconds, 2),
        }
        print(name, results[name], flush=True)
    cosines = len(bucc.sources) * len(bucc.targets)
    sentences = len(bucc.sources) + len(bucc.targets)
    results["encoding_cpu_seconds"] = round(sum(encoding), 1)
    results["cpu_hours_of_1M_x_1M"] = {
        "encoding": round(2e6 * sum(encoding) / sentences / 3600, 1),
        "exact mining": round(1e12 / cosines * results["exact"]["cpu_seconds"] / 3600, 1),
    }
    print(results["cpu_hours_of_1M_x_1M"])
    Path(options.output).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
