"""Measure how reading bitext grows with its size: first load, loading again, random rows, disk and memory.

  python benchmarks/data_growth.py --sizes 30000 100000 300000 1000000

Pairs are synthetic: 12 words per side of a vocabulary of 50,000. Each size is a separate process. Times are CPU
seconds; the exponent is that of the least squares fit of log time over log size.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing as mp
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

WORDS, VOCABULARY, ROWS = 12, 50_000, 20_000


def write_pairs(path: Path, count: int) -> None:
    """Write pairs of random words."""
    import random

    generator = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            sides = [" ".join(_word(generator.randrange(VOCABULARY)) for _ in range(WORDS)) for _ in range(2)]
            file.write("\t".join(sides) + "\n")


def _word(number: int) -> str:
    """Spell a number by letters."""
    letters = ""
    while number or not letters:
        number, letter = divmod(number, 20)
        letters += "abcdefghijklmnoprstu"[letter]
    return letters + "a"


def measure(count: int, answer: Any) -> None:
    """Load once, load again, and read random rows; send the figures."""
    from hf_xsent.data.bitext import load_bitext
    from hf_xsent.data.sampling.mixing import TemperatureSampler

    with tempfile.TemporaryDirectory() as folder:
        path, cache = Path(folder) / "pairs.tsv", Path(folder) / "cache"
        write_pairs(path, count)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        figures: dict[str, Any] = {"pairs": count}
        for name in ("first_load", "load_again"):
            started = time.process_time()
            bitext: Any = load_bitext({"de": str(path)}, cache_dir=cache)
            figures[f"{name}_seconds"] = round(time.process_time() - started, 3)
        started = time.process_time()
        rows = list(TemperatureSampler(bitext.ranges, alpha=0.5, seed=0, num_samples=ROWS))
        for start in range(0, ROWS, 100):
            bitext.__getitems__(rows[start : start + 100])
        figures["us_per_random_row"] = round((time.process_time() - started) / ROWS * 1e6, 2)
        figures["added_peak_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
        stored = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
        figures["bytes_per_pair"] = {"file": round(path.stat().st_size / count), "cache": round(stored / count)}
    answer.send(figures)


def exponent(sizes: list[int], values: list[float]) -> float:
    """Fit values = a × size^b by least squares of logarithms; return b."""
    points = statistics.linear_regression([*map(math.log, sizes)], [*map(math.log, values)])
    return round(points.slope, 2)


def main() -> None:
    """Measure each size, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[30_000, 100_000, 300_000, 1_000_000])
    parser.add_argument("--output", default="benchmarks/results/data_growth.json")
    options = parser.parse_args()
    context, measured = mp.get_context("spawn"), []
    for count in options.sizes:
        here, there = context.Pipe()
        process = context.Process(target=measure, args=(count, there))
        process.start()
        there.close()  # else recv waits forever for a process that failed
        measured.append(here.recv())
        process.join()
        print(measured[-1], flush=True)
    times = [size["first_load_seconds"] for size in measured]
    results = {"sizes": measured, "exponent_of_first_load": exponent(options.sizes, times)}
    Path(options.output).write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    print(f"first load grows as size^{results['exponent_of_first_load']}")


if __name__ == "__main__":
    main()
