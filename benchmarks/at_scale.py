"""Measure mining on a Ray cluster of this machine, two workers of one thread, against one process of one thread.

  OMP_NUM_THREADS=1 python benchmarks/at_scale.py --model ENCODER --source de.txt --target en.txt

Other programs may use the cores, so the CPU seconds of each worker are reported besides wall time: on idle cores, the
slower worker and the driver are what one waits for. The pairs must be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from hf_xsent import mine_files
from hf_xsent.data import sentences
from hf_xsent.runs.engines import RayEngine

WORKERS = 2


class Timed:
    """A job that notes the CPU seconds of its process: at the start of its first result, and in each."""

    def __init__(self, job: Any, phase: str, folder: Path) -> None:
        self.job, self.phase, self.folder, self.started = job, phase, folder, None

    def __call__(self, name: str, path: Path) -> None:
        """Compute a result, note its time."""
        before = time.process_time()
        self.started = before if self.started is None else self.started
        self.job(name, path)
        note = {"phase": self.phase, "start": self.started, "work": time.process_time() - before}
        with (self.folder / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(note) + "\n")


def mine(options: argparse.Namespace, folder: Path, engine: str) -> dict[str, Any]:
    """Mine once; return wall and CPU seconds of this process."""
    started, cpu = time.perf_counter(), time.process_time()
    mine_files(
        options.source, options.target, folder / f"{engine}.tsv", options.model, engine=engine, address="local",
        device="cpu",
    )  # fmt: skip
    return {
        "wall_seconds": round(time.perf_counter() - started, 1),
        "driver_cpu_seconds": round(time.process_time() - cpu, 1),
    }


def workers(notes: Path) -> list[dict[str, float]]:
    """Return start and work of each worker process, by phase."""
    found = []
    for file in sorted(notes.glob("*.jsonl")):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        work = sum(row["work"] for row in rows)
        found.append({"phase": rows[0]["phase"], "start": round(rows[0]["start"], 1), "work": round(work, 1)})
    return found


def main() -> None:
    """Measure, and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--rows_per_file", type=int, default=250)
    parser.add_argument("--output", default="benchmarks/results/at_scale.json")
    options = parser.parse_args()
    sentences.ROWS_PER_BATCH = options.rows_per_file
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        local = mine(options, folder, "local")
        notes = folder / "notes"
        notes.mkdir()
        call = RayEngine.__call__
        RayEngine.__call__ = lambda self, store, names, job, label: call(  # type: ignore[method-assign]
            self, store, names, Timed(job, label, notes), label
        )
        import ray

        ray.init(address="local", num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
        cluster = mine(options, folder, "ray")
        equal = (folder / "local.tsv").read_bytes() == (folder / "ray.tsv").read_bytes()
        result = {
            "load_average": os.getloadavg()[0],
            "cores": os.cpu_count(),
            "local": local,
            "ray": cluster | {"workers": workers(notes)},
            "equal": equal,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }
    print(json.dumps(result, indent=2))
    Path(options.output).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
