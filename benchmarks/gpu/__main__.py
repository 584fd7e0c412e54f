"""Measure everything on one GPU: training, large batches, encoding, mining, launchers, and the tests that need CUDA.

  make gpu                                              (20 minutes)
  python benchmarks/gpu --minutes 10 --only training
  python benchmarks/gpu --device cpu --quick            (toy sizes, to check that all parts run)

Each part runs in a separate process with a time limit: a failure is a row, and so is a part whose packages or hardware
are missing. Prints a table, and writes all rows to --output after each part.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from launched import cuda_tests, launch, reason_of
from setting import Setting, Skipped, make_encoder
from steps import train
from use import encode, mine

LARGE = {"batch": 65_536, "pairs_per_chunk": 1024}
# Name, the most minutes of 20, and what to run. Earlier parts leave to later ones what they do not use.
PARTS: dict[str, tuple[float, Callable[..., None]]] = {
    "tests: all that need CUDA": (3, cuda_tests),
    "training: hf-xsent, TR, bf16": (1, partial(train, contender="ours")),
    "training: sentence-transformers, TR, bf16": (1, partial(train, contender="sentence-transformers")),
    "training: padded loop, TR, bf16": (1, partial(train, contender="padded loop")),
    "training: hf-xsent, DAP, bf16": (1, partial(train, contender="ours", method="DAP")),
    "training: hf-xsent, TR, fp16": (1, partial(train, contender="ours", precision="fp16")),
    "training: sentence-transformers, TR, fp16": (
        1,
        partial(train, contender="sentence-transformers", precision="fp16"),
    ),
    "training: padded loop, TR, fp16": (1, partial(train, contender="padded loop", precision="fp16")),
    "training: hf-xsent, DAP, fp16": (1, partial(train, contender="ours", method="DAP", precision="fp16")),
    "training: hf-xsent, TR, bf16, all sentences of 32 tokens": (1, partial(train, contender="ours", longest=True)),
    "training: hf-xsent, TR, bf16, no dropout": (1, partial(train, contender="ours", dropout=0.0)),
    "training: hf-xsent, TR, bf16, flash_attention_2": (
        1,
        partial(train, contender="ours", attn_implementation="flash_attention_2"),
    ),
    "training: hf-xsent, TR, bf16, 65,536 pairs in chunks of 1,024": (4, partial(train, contender="ours", **LARGE)),
    "encoding: hf-xsent, bfloat16": (1, partial(encode, contender="ours", precision="bfloat16")),
    "encoding: sentence-transformers, bfloat16": (
        1,
        partial(encode, contender="sentence-transformers", precision="bfloat16"),
    ),
    "encoding: hf-xsent, float32": (1, partial(encode, contender="ours", precision="float32")),
    "encoding: sentence-transformers, float32": (
        1,
        partial(encode, contender="sentence-transformers", precision="float32"),
    ),
    "launchers: torchrun": (1, partial(launch, kind="torchrun")),
    "launchers: ZeRO-2": (2, partial(launch, kind="ZeRO-2")),
    "mining: bfloat16": (5, partial(mine, precision="bfloat16")),
    "mining: float32": (5, partial(mine, precision="float32")),
}
QUICK_LARGE = {"batch": 32, "pairs_per_chunk": 8}


def measure(options: argparse.Namespace, setting: Setting) -> list[dict[str, Any]]:
    """Run one part in a separate process; return its rows, the last of which says how it ended."""
    command = [sys.executable, str(Path(__file__).parent), "--part", options.part, "--folder", setting.folder]
    command += ["--device", setting.device, "--seconds", str(setting.seconds), "--result", setting.result]
    Path(setting.result).write_text("", encoding="utf-8")
    process = subprocess.Popen(
        command + ["--quick"] * setting.quick,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=setting.seconds)
        end = {} if process.returncode == 0 else {"failed": reason_of(output)}
    except subprocess.TimeoutExpired:
        end = {"failed": f"took longer than {setting.seconds:.0f} s"}
    finally:
        _end(process)
    rows = [json.loads(line) for line in Path(setting.result).read_text(encoding="utf-8").splitlines()]
    if end and not any("skipped" in row for row in rows):
        rows.append(end)
    return [{"part": options.part, **row} for row in rows]


def _end(process: subprocess.Popen[str]) -> None:
    """End a part and the processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_part(name: str, setting: Setting) -> None:
    """Run a part in this process."""
    work = PARTS[name][1]
    if setting.quick and isinstance(work, partial) and "pairs_per_chunk" in work.keywords:
        work = partial(work, **QUICK_LARGE)
    try:
        work(setting)
    except Skipped as reason:
        setting.report(skipped=str(reason))
    except BaseException as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}".splitlines()[0])
        raise SystemExit(1) from error


def machine(device: str) -> dict[str, Any]:
    """Describe the device and the versions of the libraries."""
    import torch
    import transformers

    cuda = device.startswith("cuda")
    return {
        "device": torch.cuda.get_device_name(device) if cuda else platform.processor() or platform.machine(),
        "memory_mib": torch.cuda.get_device_properties(device).total_memory >> 20 if cuda else None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def line_of(row: dict[str, Any]) -> str:
    """Format a row of the table."""
    for end in ("skipped", "failed"):
        if end in row:
            return f"{row['part']:66}{end}: {row[end]}"
    rates = [f"{row[key]:,.0f} {key[0]}/s" for key in row if key.endswith("_per_second")]
    share = f"{row['share_of_peak']:.1%}" if "share_of_peak" in row else ""
    memory = f"{row['peak_mib']:,} MiB" if row.get("peak_mib") else ""
    return f"{row['part']:66}{' '.join(rates):>22}{share:>8}{memory:>13}  {row.get('note', '')}".rstrip()


def main() -> None:
    """Measure all parts, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=20, help="Time for all parts.")
    parser.add_argument("--only", nargs="*", default=[""], help="Parts whose names start so, such as training.")
    parser.add_argument("--quick", action="store_true", help="Toy sizes.")
    parser.add_argument("--output", default="benchmarks/results/gpu.json")
    for hidden in ("part", "folder", "seconds", "result"):
        parser.add_argument(f"--{hidden}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        setting = Setting(options.folder, options.device, options.quick, float(options.seconds), options.result)
        return run_part(options.part, setting)
    import torch

    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device: try --device cpu --quick")
    started, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        make_encoder(Setting(folder, options.device, options.quick, 0, ""))
        for name in [part for part in PARTS if part.startswith(tuple(options.only))]:
            left = 60 * options.minutes - (time.monotonic() - started)
            seconds = min(left, 60 * PARTS[name][0] * options.minutes / 20)
            options.part = name
            if seconds < 10:
                found = [{"part": name, "skipped": "no time left"}]
            else:
                setting = Setting(folder, options.device, options.quick, seconds, f"{folder}/rows")
                found = measure(options, setting)
            print(*map(line_of, found), sep="\n", flush=True)
            rows += found
            results = {"machine": machine(options.device), "quick": options.quick, "rows": rows}
            Path(options.output).write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
