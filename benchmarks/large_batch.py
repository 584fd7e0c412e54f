"""Measure memory by batch size with gradient caching, speed by number of processes, and the loader's throughput.

  OMP_WAIT_POLICY=PASSIVE python benchmarks/large_batch.py --model ENCODER --data "train/{language}-en.tsv.xz"

Each figure is a separate run of ``hf-xsent pretrain``: peak resident memory as the system counts it, and pairs per
second from metrics.jsonl. Speed needs an idle machine, memory does not: leave --batches or --processes empty to measure
one alone; --output retains the figures of the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "trainer_scripts/run_pretrain.py"


def train(options: argparse.Namespace, batch: int, chunk: int | None, processes: int, steps: int) -> dict[str, Any]:
    """Train once; return the largest memory of its processes, and pairs per second of all after the first step."""
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    flags = {
        "model": options.model,
        "data": options.data,
        "cache_dir": options.cache,
        "per_device_train_batch_size": batch // processes,
        "max_steps": steps,
        "logging_steps": 1,
        "warmup_steps": 0,
    }
    if processes > 1:
        flags |= {"ddp_backend": "gloo", "use_cpu": True}
    if chunk is not None:
        flags["pairs_per_chunk"] = chunk
    if options.encoder_layers is not None:
        flags["encoder_layers"] = options.encoder_layers
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            *(launch if processes > 1 else []),
            str(SCRIPT),
            "tr-small",
            f"--output_dir={folder}",
        ]
        environment = os.environ | {"OMP_NUM_THREADS": str(max(1, options.threads // processes))}
        process = subprocess.Popen(
            [*command, *(f"--{name}={value}" for name, value in flags.items())],
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"the run of {batch} pairs failed: {' '.join(command)}")
        lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    rates = [line["pairs_per_second"] for line in lines if "pairs_per_second" in line][1:]
    return {
        "pairs": batch,
        "chunk": chunk,
        "processes": processes,
        "peak_mib": usage.ru_maxrss >> 10,
        "pairs_per_second": round(sum(rates) / len(rates), 1),
    }


def loader(options: argparse.Namespace, pairs: int) -> float:
    """Measure pairs per second of reading, mixing, tokenizing and batching alone."""
    from torch.utils.data import BatchSampler, DataLoader

    from hf_xsent.data.bitext import load_bitext
    from hf_xsent.data.sampling.collators import PairCollator
    from hf_xsent.data.sampling.mixing import TemperatureSampler
    from hf_xsent.models.loading import load_tokenizer

    bitext: Any = load_bitext(options.data, cache_dir=options.cache)
    sampler = TemperatureSampler(bitext.ranges, alpha=0.5, seed=0, num_samples=pairs)
    batches = DataLoader(
        bitext,
        batch_sampler=BatchSampler(sampler, 128, drop_last=False),
        collate_fn=PairCollator(load_tokenizer(options.model), 32),
    )
    started = time.perf_counter()
    for _ in batches:
        pass
    return round(pairs / (time.perf_counter() - started))


def main() -> None:
    """Measure, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Encoder to train: folder or Hub id.")
    parser.add_argument("--data", required=True, help="Pairs, such as train/{language}-en.tsv.xz.")
    parser.add_argument("--cache", required=True, help="Store the memory-mapped bitext in this folder.")
    parser.add_argument("--batches", type=int, nargs="*", default=[64, 512, 4096])
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--encoder_layers", type=int, help="Use some layers of the encoder only, for a faster measurement."
    )
    parser.add_argument("--output", default="benchmarks/results/large_batch.json")
    options = parser.parse_args()
    output = Path(options.output)
    result: dict[str, Any] = json.loads(output.read_text()) if output.is_file() else {"caching": [], "processes": []}
    # Peaks rise with each chunk longer than any before: a batch of one chunk takes as many as the largest has.
    chunks = max(2 * max(options.batches, default=1) // options.chunk, 16)
    runs = [
        ("caching", batch, None, 1, chunks) if batch <= options.chunk else ("caching", batch, options.chunk, 1, 2)
        for batch in options.batches
    ]
    runs += [("processes", 128, None, processes, 6) for processes in options.processes]
    for kind in {kind for kind, *_ in runs}:
        result[kind] = []
    if options.processes:
        result["loader_pairs_per_second"] = loader(options, 20_000)
        print(f"the loader alone: {result['loader_pairs_per_second']} pairs/s", flush=True)
    for kind, *settings in runs:
        result[kind].append(train(options, *settings))
        print(kind, result[kind][-1], flush=True)
        output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
