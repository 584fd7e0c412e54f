"""Run short trainings under launchers (torchrun, DeepSpeed ZeRO-2) and the tests that need CUDA."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from setting import ROOT, Setting, Skipped, sentences

FLAGS = {"torchrun": "", "ZeRO-2": f"--deepspeed {ROOT}/trainer_scripts/deepspeed/zero2.json"}


def launch(setting: Setting, kind: str) -> None:
    """Train a few steps in one process under a launcher; report pairs per second and peak memory."""
    if kind != "torchrun":
        setting.need_cuda(kind)
    if kind == "ZeRO-2" and importlib.util.find_spec("deepspeed") is None:
        raise Skipped("DeepSpeed is not installed")
    folder, steps = Path(setting.folder), 3 if setting.quick else 10
    name = kind.replace(" ", "-").lower()
    texts = sentences(setting, 2 * setting.batch * (steps + 1))
    lines = (f"{source}\t{target}\n" for source, target in zip(texts[::2], texts[1::2], strict=True))
    (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    flags = {
        "model": setting.encoder,
        "data": f"de={folder}/{name}.tsv",
        "output_dir": f"{folder}/run-{name}",
        "cache_dir": f"{folder}/cache",
        "clean": "false",
        "dev_pairs": 0,
        "method": "dap",
        "max_length": 32,
        "per_device_train_batch_size": setting.batch,
        "max_steps": steps,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "bf16": "true",
    }
    if setting.device == "cpu":
        flags |= {"use_cpu": "true", "ddp_backend": "gloo"}
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "1"),
        str(ROOT / "trainer_scripts/run_pretrain.py"),
        *(f"--{flag}={value}" for flag, value in flags.items()),
        *FLAGS[kind].split(),
    ]
    _run(command, setting)
    metrics = Path(flags["output_dir"]) / "metrics.jsonl"  # type: ignore[arg-type]
    records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    rates = [record["pairs_per_second"] for record in records if "pairs_per_second" in record][1:]
    peaks = [record[key] for record in records for key in record if "peak" in key]
    setting.report(
        pairs_per_second=round(sum(rates) / len(rates), 1), peak_mib=max(peaks, default=None), steps=len(rates)
    )


def cuda_tests(setting: Setting) -> None:
    """Run every test that needs a CUDA device."""
    setting.need_cuda("this part")
    if importlib.util.find_spec("pytest") is None:
        raise Skipped("pytest is not installed")
    output = _run([sys.executable, "-m", "pytest", "-m", "gpu", "-q", "--no-header", str(ROOT / "tests")], setting)
    setting.report(note=output.strip().splitlines()[-1])


def _run(command: list[str], setting: Setting) -> str:
    """Run a command and return its output; raise an error with the reason at the end of its output."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=setting.left)
    if done.returncode:
        sys.stderr.write(done.stdout[-20_000:] + done.stderr[-20_000:])
        raise RuntimeError(reason_of(done.stdout + done.stderr))
    return done.stdout


def reason_of(output: str) -> str:
    """Return the line of an output that says why a program failed, or its last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|FAILED)\b|\d+ failed", line)]
    return (errors or lines or ["no output"])[-1][:300]
