"""Measure every figure of docs/performance.md on this machine, in about 25 minutes, and write them into that page.

  python benchmarks/performance.py --model ENCODER --data "train/{language}-en.tsv.xz" --tatoeba FOLDER

Each part is one of the other scripts, whose contenders alternate step by step; a figure is a ratio of their medians.
The machine must be idle and needs 18 GB of memory. ``--only encoding`` measures some parts and retains the others.
``--only large_batch --minutes 120`` measures the memory of 65,536 pairs through two layers of the encoder, which takes
an hour more.
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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PAGE = FOLDER.parent / "docs/performance.md"
RESULTS = FOLDER / "results/performance.json"
START, END = "<!-- figures: written by benchmarks/performance.py -->", "<!-- end of figures -->"
COST, WALL = "cpu_seconds", "wall_seconds"
OURS, THEIRS, PADDED = "hf-xsent", "sentence-transformers", "padded loop"


@dataclass(frozen=True)
class Figure:
    """One ratio of a part's results."""

    part: str
    text: str
    goal: str
    ratio: Callable[[Any], float]


def parts(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return the command of each part, without its output file."""
    pairs = ["--model", options.model, "--data", options.data]
    training = ["training_step.py", *pairs, "--max_length", "32", "--steps", str(options.steps), "--warmup", "2"]
    dap = ["dap_step.py", "--steps", str(options.steps), "--bf16", "--without", "TR", "DAP full"]
    mining = ["mining.py", "--sizes", str(options.sentences), "--rounds", "2", "--without", "semantic_search twice"]
    encoding = ["evaluation_speed.py", "--model", options.model, "--tatoeba", options.tatoeba]
    batches = ["large_batch.py", *pairs, "--cache", str(Path(tempfile.gettempdir()) / "hf-xsent-performance")]
    return {
        "training": [*training, "--threads", "1"],
        "training_bf16": [*training, "--threads", "2", "--batch", "128", "--bf16"],
        "dap": [*dap, "--warmup", "2", "--threads", "1"],
        "encoding": [*encoding, "--steps", "5", "--threads", "1", "--precision", "float32", "bfloat16"],
        "data": ["data_growth.py"],
        "mining": [*mining, "--threads", "1"],
        "peak": ["share_of_peak.py", *pairs, "--steps", str(options.steps)],
        "threads": [*batches, "--batches", "--processes", "1", "2"],
        "large_batch": [*batches, "--batches", "64", "65536", "--encoder_layers", "2", "--processes"],
    }


def _of(first: str, second: str, key: str = COST) -> Callable[[Any], float]:
    return lambda results: results[first][key] / results[second][key]


def _step(first: str, second: str, key: str = COST) -> Callable[[Any], float]:
    return lambda results: _of(first, second, key)(results["results"]["max_length 32"])


def _dap(name: str, key: str = COST) -> Callable[[Any], float]:
    return lambda results: _of(name, "padded TR", key)(results["results"])


def _mined(name: str) -> Callable[[Any], float]:
    return lambda results: _of("faiss.knn twice", name)(
        next(figures for name, figures in results.items() if " x " in name)
    )


def _listed(kind: str, key: str, first: int, second: int) -> Callable[[Any], float]:
    return lambda results: results[kind][first][key] / results[kind][second][key]


ENCODED = "SentenceTransformer.encode"
FIGURES = [
    Figure("training", "training step, float32, 32 tokens: speed-up over a padded loop ↑", "2.3", _step(PADDED, OURS)),
    Figure("training", "… speed-up over sentence-transformers ↑", "2.5", _step(THEIRS, OURS)),
    Figure(
        "training_bf16",
        "training step, bfloat16, 128 pairs: speed-up over sentence-transformers in bfloat16, CPU time ↑",
        "2.2",
        _step(THEIRS, OURS),
    ),
    Figure("training_bf16", "… wall-clock time ↑", "2.0", _step(THEIRS, OURS, WALL)),
    Figure("dap", "DAP step, float32: CPU time relative to a padded TR step ↓", "0.50", _dap("DAP restricted")),
    Figure("dap", "… in bfloat16, relative to padded TR in float32 ↓", "0.28", _dap("DAP restricted, bf16")),
    Figure("dap", "… peak memory in float32 ↓", "0.75", _dap("DAP restricted", "peak_mib")),
    Figure("mining", "exact mining, float32: speed-up over two calls of faiss.knn ↑", "2.2", _mined("hf-xsent")),
    Figure("mining", "… bfloat16 search, rescored in float32 ↑", "3.5", _mined("hf-xsent, bfloat16")),
    Figure("encoding", f"encoding, float32: time relative to {ENCODED} ↓", "0.50", _of("hf-xsent, float32", ENCODED)),
    Figure("encoding", f"… bfloat16, relative to {ENCODED} in float32 ↓", "0.22", _of("hf-xsent, bfloat16", ENCODED)),
    Figure(
        "data",
        "first reading of 1,000,000 pairs, without cache: µs per pair",
        "as for 30,000",
        lambda results: 1e6 * results["sizes"][-1]["first_load_seconds"] / results["sizes"][-1]["pairs"],
    ),
    Figure(
        "data",
        "… exponent of the growth of its total time from 30,000 pairs ↓",
        "1.00",
        lambda results: results["exponent_of_first_load"],
    ),
    *(
        Figure(
            "peak",
            f"{what}, {dtype}: share of the operations per second of a matrix product ↑",
            "1 is the limit",
            lambda results, of=f"{what}, {dtype}": results["share_of_peak"][of],
        )
        for what in ("training", "encoding")
        for dtype in ("float32", "bfloat16")
    ),
    Figure(
        "threads",
        "one process with two threads: pairs per second relative to two processes with one ↑",
        "0.95",
        _listed("processes", "pairs_per_second", 0, 1),
    ),
    Figure(
        "large_batch",
        "batch of 65,536 pairs, two layers: peak memory relative to a batch of 64 ↓",
        "1.15",
        _listed("caching", "peak_mib", 1, 0),
    ),
]


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    import torch

    named = {"torch": torch.__version__, "processor": platform.machine(), "cores": os.cpu_count()}
    file = Path("/proc/cpuinfo")
    lines = file.read_text("utf-8").splitlines() if file.is_file() else []
    stated = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines}
    flags = set(stated.get("flags", "").split())
    named |= {"model": stated.get("model name"), "bfloat16": sorted({"avx512_bf16", "amx_bf16"} & flags)}
    return named | {"load": round(os.getloadavg()[0], 2), "date": time.strftime("%Y-%m-%d")}


def measure(command: list[str], seconds: float) -> dict[str, Any]:
    """Run one part; return its results, or the reason why there are none."""
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "results.json"
        line = [sys.executable, str(FOLDER / command[0]), *command[1:], "--output", str(output)]
        process = subprocess.Popen(line, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return {"failed": f"not finished in {seconds:.0f} s"}
        finally:
            with suppress(ProcessLookupError):  # also end the processes that it started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if code:
            return {"failed": f"{command[0]} ended with exit code {code}"}
        found: dict[str, Any] = json.loads(output.read_text("utf-8"))
    return found


def table(results: dict[str, Any]) -> str:
    """Return the Markdown table of all figures."""
    lines = ["| what | measured | goal |", "|---|---|---|"]
    for figure in FIGURES:
        found = results.get(figure.part, {"failed": "not measured yet"})
        value = found["failed"] if "failed" in found else f"**{figure.ratio(found):.2f}**"
        lines.append(f"| {figure.text} | {value} | {figure.goal} |")
    return "\n".join(lines)


def machines(results: dict[str, Any]) -> str:
    """Return a line per machine, with the parts that it measured."""
    measured: dict[str, list[str]] = {}
    for part, found in results.items():
        if "machine" in found and "failed" not in found:
            about = ", ".join(f"{name} {value}" for name, value in found["machine"].items() if name != "load")
            measured.setdefault(about, []).append(part)
    return "".join(f"Measured on {about}: {', '.join(some)}.\n\n" for about, some in measured.items())


def reading_chart(sizes: list[dict[str, Any]]) -> str:
    """Draw the cost of reading bitext by its size as SVG."""
    from hf_xsent.pages.charts import Axes, place_name, standalone, svg

    names = {"first_load_seconds": "first time", "load_again_seconds": "from the cache"}
    lines = {name: [(0.0, 0.0), *((size["pairs"] / 1000, size[key]) for size in sizes)] for key, name in names.items()}
    axes = Axes.around([point for line in lines.values() for point in line])
    parts, taken = axes.draw("thousand pairs"), []
    for number, (name, line) in enumerate(lines.items()):
        places = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in line)
        parts.append(f'<polyline class="curve s{number}" points="{places}"><title>{name}</title></polyline>')
        parts.append(place_name(axes.x(line[-1][0]), axes.y(line[-1][1]), name, taken))
    return standalone(svg("CPU seconds to read bitext by thousands of pairs", parts))


def write_page(results: dict[str, Any]) -> None:
    """Write the table and the machine into the page, and the chart beside it."""
    if sizes := results.get("data", {}).get("sizes"):
        (PAGE.parent / "images/reading_growth.svg").write_text(reading_chart(sizes), "utf-8")
    text = PAGE.read_text("utf-8")
    before, rest = text.split(START)
    block = f"{machines(results)}<!-- results: computed from performance.json -->\n\n{table(results)}"
    PAGE.write_text(f"{before}{START}\n{block}\n{END}{rest.split(END)[1]}", "utf-8")


def main() -> None:
    """Measure the parts, and write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Encoder: folder or Hub id.")
    parser.add_argument("--data", required=True, help="Pairs, such as train/{language}-en.tsv.xz.")
    parser.add_argument("--tatoeba", required=True, help="Folder of tatoeba.xxx-eng.* files.")
    parser.add_argument("--steps", type=int, default=8, help="Steps of training, of which 2 are not counted.")
    parser.add_argument("--sentences", type=int, default=50_000, help="Sentences per side to mine.")
    parser.add_argument("--only", nargs="+", metavar="PART", help="Measure these parts only.")
    parser.add_argument("--minutes", type=float, default=30, help="Start no part, and end the last, after this time.")
    parser.add_argument("--output", default=str(RESULTS), help="Only the default is written into the page.")
    options = parser.parse_args()
    output = Path(options.output)
    results: dict[str, Any] = json.loads(output.read_text("utf-8")) if output.is_file() else {}
    commands = parts(options)
    if unknown := {*(options.only or ())} - commands.keys():
        parser.error(f"--only: no part {', '.join(sorted(unknown))}; the parts are {', '.join(commands)}")
    until = time.monotonic() + 60 * options.minutes
    for part in options.only or [name for name in commands if name != "large_batch"]:
        seconds, started = until - time.monotonic(), time.monotonic()
        if seconds > 0:
            results[part] = measure(commands[part], seconds)
            results[part] |= {"seconds": round(time.monotonic() - started), "machine": machine()}
        else:
            results[part] = {"failed": f"no time left of {options.minutes:g} minutes"}
        print(f"{part}: {results[part].get('failed', 'measured')}", flush=True)
        output.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    if output == RESULTS:
        write_page(results)
    print(table(results))


if __name__ == "__main__":
    main()
