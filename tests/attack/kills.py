"""Kill every command that writes at random moments, run it again, and compare its output with an uninterrupted run's.

A killed command must leave no half-written file under a final name. The same command (training: with --resume) must
then end with the same output. Studies are killed in tests/comparison.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from .forking import Ended, Kill, preload, run
from .world import World

# Keys of JSON with one of these words differ from run to run.
VOLATILE = ("train_loss", "resume", "second", "runtime", "peak_mib", "versions", "total_flos", "cost", "time", "pace")
NOT_COMPARED = {".bin", ".pt", ".pth", ".html", ".log"}  # pickles; pages with seconds
NAMES_NOT_COMPARED = {"log.txt", "report.md", "README.md"}  # with seconds or paths
NAMED_BY_TIMES = "negatives.work/"  # its texts are new files in each run, and their times name other files
LEFT = (".part", ".lock")  # by a killed process
UNFINISHED = (*LEFT, "_unfinished", "lock")
MOST_KILLS = 3  # in a row, before the command may end


def commands(world: World) -> dict[str, list[str]]:
    """Return each command that writes into the folder in which it runs."""
    model, source, target, pairs = (world / name for name in ("export", "source.txt", "target.txt", "de.tsv"))
    return {
        "pretrain": ["pretrain", world / "pretrain.yaml"],
        "pretrain contrast": ["pretrain", world / "contrast.yaml"],
        "pretrain dual-pivot": ["pretrain", world / "pivot.yaml"],
        "finetune": world.finetune(),
        "mine": ["mine", source, target, "--model", model, "-o", "mined.tsv"],
        "mine-negatives": ["mine-negatives", f"de={pairs}", "--model", model, "-o", "negatives"],
        "score": ["score", pairs, "--model", model, "-o", "scored.tsv"],
        "align-words": ["align-words", pairs, "--model", world / "encoder", "-o", "links.jsonl"],
        "align-documents": ["align-documents", world / "source", world / "target", "--model", model,
                            "-o", "aligned.tsv", "--languages", "de", "en"],
        "export": ["export", world / "trained", "--output", "export", "--overwrite"],
        "evaluate": ["evaluate", model, "--tasks", f"tatoeba={world / 'tatoeba'}", "--output", "results.json"],
        "trim-vocab": ["trim-vocab", world / "encoder", "--output", "trimmed", "--data", f"de={pairs}",
                       "--cache_dir", "cache", "--overwrite"],
    }  # fmt: skip


def attack(seed: int, kills: int) -> dict[str, int]:
    """Kill commands until there were this many kills; return counts, or raise an AssertionError with all findings."""
    preload()
    findings: list[str] = []
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="hf-xsent-attack-") as name:
        root = Path(name).resolve()
        world = World(root / "world")
        world.write()
        for arguments in world.preparation():
            ended = run(arguments, root / "building")
            assert ended.code == 0, ended.output
        known = commands(world)
        references: dict[str, _Reference] = {}
        rng = random.Random(seed)
        names: list[str] = []
        while counts["kills"] < kills:
            names = names or rng.sample(sorted(known), len(known))
            command = names.pop()
            if command not in references:
                references[command] = _Reference.of(command, known[command], root / "trial")
            trial = _Trial(references[command], root / "trial", rng)
            findings += trial.findings()
            counts += {"trials": 1, "kills": len(trial.kills)}
    if findings:
        raise AssertionError("\n".join([f"{len(findings)} findings of {dict(counts)}", *findings]))
    return dict(counts)


@dataclass(frozen=True)
class _Reference:
    """The output of an uninterrupted run of a command, and its number of changes of files."""

    command: str
    arguments: list[str]
    output: Mapping[str, str]
    changes: int

    @classmethod
    def of(cls, command: str, arguments: list[str], folder: Path) -> _Reference:
        outputs = []
        for _ in range(2):  # what differs between two uninterrupted runs is not compared
            shutil.rmtree(folder, ignore_errors=True)
            ended = run(arguments, folder)
            assert ended.code == 0, f"{command}: {ended.output}"
            outputs.append(_output(folder))
        assert outputs[0].keys() == outputs[1].keys(), (command, outputs[0].keys() ^ outputs[1].keys())
        same = {name: value if value == outputs[1][name] else "" for name, value in outputs[0].items()}
        return cls(command, arguments, same, ended.changes)


class _Trial:
    """One to three kills of a command, then a run to the end."""

    def __init__(self, reference: _Reference, folder: Path, rng: random.Random) -> None:
        self.reference, self.folder, self.rng = reference, folder, rng
        self.kills: list[Kill] = []
        self.problems: list[str] = []

    def findings(self) -> list[str]:
        """Run the trial and return what is wrong."""
        shutil.rmtree(self.folder, ignore_errors=True)
        arguments = self.reference.arguments
        resumed = [*arguments, "--resume"] if arguments[0] in ("pretrain", "finetune") else arguments
        for _ in range(self.rng.randint(1, MOST_KILLS)):
            number = self.rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
            self.kills.append(Kill(number, self.rng.randint(1, max(1, self.reference.changes))))
            ended = run(arguments, self.folder, self.kills[-1])
            self._check_end(ended, killed=True)
            self._check_files()
            if self.problems or ended.code == 0:
                break
            arguments = resumed
        if not self.problems:
            self._check_end(run(resumed, self.folder), killed=False)
        if not self.problems:
            self._check_same()
        about = f"{self.reference.command}, {', '.join(map(str, self.kills))}"
        return [f"{about}: {problem}" for problem in self.problems]

    def _check_end(self, ended: Ended, killed: bool) -> None:
        if "Traceback (most recent call last)" in ended.output:
            self.problems.append(f"a traceback: {ended.output[-1500:]}")
        elif ended.code != 0 and not (killed and ended.killed):
            self.problems.append(f"exit code {ended.code}: {ended.output[-1500:]}")

    def _check_files(self) -> None:
        """Check that each file with a final name is complete."""
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if path.is_file() and not any(part in name for part in UNFINISHED) and (problem := _broken(path)):
                self.problems.append(f"{name} is not complete: {problem}")

    def _check_same(self) -> None:
        output, expected = _output(self.folder), self.reference.output
        for name in sorted(output.keys() | expected.keys()):
            if name not in expected:
                self.problems.append(f"{name} is left over")
            elif name not in output:
                self.problems.append(f"{name} is missing")
            elif expected[name] and output[name] != expected[name]:
                self.problems.append(f"{name} has {_first_difference(output[name], expected[name])}")


def _output(folder: Path) -> dict[str, str]:
    """Return each file's content, JSON without figures that differ from run to run; of pickles and pages, nothing."""
    contents = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or name.startswith(NAMED_BY_TIMES) or any(part in name for part in LEFT):
            continue
        if path.suffix in NOT_COMPARED or path.name in NAMES_NOT_COMPARED:
            contents[name] = ""
        elif path.suffix in (".json", ".jsonl"):
            lines = [path.read_bytes()] if path.suffix == ".json" else path.read_bytes().splitlines()
            values = [json.loads(line) for line in lines if b'"train_runtime"' not in line]  # each start ends with one
            contents[name] = "\n".join(json.dumps(_constant(value), indent=1) for value in values)
        else:
            contents[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return contents


def _first_difference(text: str, expected: str) -> str:
    for line, wanted in zip_longest(text.splitlines(), expected.splitlines(), fillvalue="nothing"):
        if line != wanted:
            return f"{line.strip()[:200]!r}, not {wanted.strip()[:200]!r}"
    return ""


def _constant(value: Any) -> Any:
    """Return JSON without its volatile values."""
    if isinstance(value, dict):
        return {key: _constant(inner) for key, inner in value.items() if not any(word in key for word in VOLATILE)}
    return [_constant(inner) for inner in value] if isinstance(value, list) else value


def _broken(path: Path) -> str:
    """Return why a file is not complete; empty if it is."""
    try:
        if path.suffix == ".json":
            json.loads(path.read_bytes())
        elif path.suffix == ".safetensors":
            with safe_open(path, "np") as tensors:
                _ = [tensors.get_tensor(key) for key in tensors.keys()]  # noqa: SIM118 - not a mapping
        elif path.suffix in (".npy", ".npz"):
            np.load(path)
        elif path.suffix in (".jsonl", ".tsv", ".md", ".yaml", ".links"):
            content = path.read_bytes()
            return "its last line does not end" if content and not content.endswith(b"\n") else ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
