"""Measure mining on a Ray cluster of this machine, two workers of one thread, against one process of one thread.

  python benchmarks/at_scale.py text --model ENCODER --pairs de-en.tsv.xz --sentences 20000   # encode and search
  python benchmarks/at_scale.py vectors --sentences 200000       # search an index of vectors that Parquet files have
  python benchmarks/at_scale.py vectors --sentences 50000 --exact

Each measures both engines one after the other, from the start of a process to the end of its output, on a cluster that
runs already; the pairs must be equal. The folder keeps inputs and intermediate results: after an interruption, the same
command continues, and says that the time of the interrupted engine is incomplete.

The vectors are normal, with a standard deviation that falls with the dimension as that of embeddings does; half of the
sources have a noisy translation.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

WORKERS, WIDTH, PROBES = 2, 384, 16
BLOCK = 1 << 16  # vectors in a file
RESULTS = Path("benchmarks/results/at_scale.json")


class NoModel:
    """Stands for the model of vectors that exist already."""

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return vectors by which mining identifies the model."""
        return np.ones((len(texts), WIDTH), dtype=np.float32)


def write_texts(pairs: str, sentences: int, folder: Path) -> None:
    """Write the first pairs that have no repeated side as two text files."""
    from hf_xsent.data.readers.formats import read_pairs
    from hf_xsent.data.readers.sources import BitextSource

    seen: set[str] = set()
    distinct = (
        pair for pair in read_pairs(BitextSource("und", pairs)) if seen.isdisjoint(pair) and not seen.update(pair)
    )
    sides = zip(*islice(distinct, sentences), strict=True)
    for name, side in zip(("source.txt", "target.txt"), sides, strict=True):
        (folder / name).write_text("".join(f"{' '.join(text.split())}\n" for text in side))


def write_vectors(count: int, folder: Path) -> None:
    """Write both sides as Parquet; the first half of the targets translates the first half of the sources."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    deviations = (np.arange(1, WIDTH + 1) ** -0.75).astype(np.float32)
    for side in ("source", "target"):
        (folder / side).mkdir(exist_ok=True)
    for start in range(0, count, BLOCK):
        rows = np.arange(start, min(start + BLOCK, count))
        generator = np.random.default_rng((1, start))
        source, noise = (generator.standard_normal((len(rows), WIDTH), dtype=np.float32) * deviations for _ in range(2))
        target = np.where(rows[:, None] < count // 2, source + 0.5 * noise, noise)
        for side, vectors in (("source", source), ("target", target)):
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), WIDTH)
            table = pa.table({"id": rows, "text": [f"{side} {row}" for row in rows], "embedding": lists})
            pq.write_table(table, folder / side / f"{start:08d}.parquet")


def mine(folder: Path, settings: dict[str, Any]) -> None:
    """Mine in this process, as the command does."""
    from hf_xsent import mine_files

    mined = mine_files(**(settings | {"model": settings["model"] or NoModel()}), work=folder / settings["engine"])
    (folder / f"{settings['engine']}.recall").write_text(json.dumps(mined and mined.recall))


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Sample the memory of the processes below this one, shared pages divided among them; yield their peak in GB."""
    import psutil

    peak, ended = [0.0], threading.Event()

    def sample() -> None:
        while not ended.wait(2):
            used = 0
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    used += process.memory_full_info().pss
            peak[0] = max(peak[0], used / 1e9)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def measure(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Run one engine in a process; return its figures."""
    engine = settings["engine"]
    resumes = (folder / engine).exists()
    command = [sys.executable, __file__, "mine", "--folder", str(folder), "--settings", json.dumps(settings)]
    with peak_memory() as peak:
        started = time.perf_counter()
        subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        seconds = time.perf_counter() - started
    recall = json.loads((folder / f"{engine}.recall").read_text())
    return {"wall_seconds": round(seconds, 1), "peak_gb": round(peak[0], 2), "resumed": resumes, "recall": recall}


def main() -> None:
    """Measure both engines, and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("text", "vectors", "mine"))
    parser.add_argument("--model")
    parser.add_argument("--pairs")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--precision", default="bfloat16")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--settings", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.what == "mine":
        mine(options.folder, options.settings)
        return
    name = f"{options.what}-{options.sentences}" + ("-exact" if options.exact else "")
    folder = options.folder or Path("build/at_scale") / name
    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {"device": "cpu", "model": options.model}
    suffix = ".txt" if options.what == "text" else ""
    if not (folder / "written").exists():
        if suffix:
            write_texts(options.pairs, options.sentences, folder)
        else:
            write_vectors(options.sentences, folder)
        (folder / "written").touch()
    if suffix:
        settings["precision"] = options.precision
    elif not options.exact:
        cells = 2 ** round(math.log2(4 * math.sqrt(options.sentences)))
        settings |= {"index": f"IVF{cells},Flat", "probes": PROBES}
    settings |= {side: str(folder / f"{side}{suffix}") for side in ("source", "target")}
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    result = {"sentences": options.sentences, "cores": os.cpu_count(), "load_average_before": os.getloadavg()[0]}
    os.environ["OMP_NUM_THREADS"] = "1"
    for engine in ("local", "ray"):
        stored = folder / f"{engine}.json"
        if not stored.exists():
            of_engine = settings | {"engine": engine, "output": str(folder / f"{engine}.tsv")}
            if engine == "ray":
                import ray

                ray.init(num_cpus=WORKERS, include_dashboard=False, object_store_memory=100 << 20)
                of_engine["address"] = ray.get_runtime_context().gcs_address
            stored.write_text(json.dumps(measure(folder, of_engine)))
        result[engine] = json.loads(stored.read_text())
    outputs = [(folder / f"{engine}.tsv").read_bytes() for engine in ("local", "ray")]
    result["equal"] = outputs[0] == outputs[1]
    result["ray_to_local"] = round(result["ray"]["wall_seconds"] / result["local"]["wall_seconds"], 3)
    if not suffix:
        rows = [line.split(b"\t")[4:6] for line in outputs[0].splitlines()[1:]]
        half = options.sentences // 2
        result["share_of_translations"] = round(sum(int(a) < half and a == b for a, b in rows) / half, 4)
    results[name] = result
    print(json.dumps(result, indent=2))
    options.output.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
