"""Kill every command that writes at random moments, run it again, and compare its output with an uninterrupted run's.

A killed command must leave no half-written file under a final name. The same command (training: with --resume) must
then end with the same output.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import signal
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors import safe_open

from .forking import Ended, Kill, command, empty, preload, run
from .world import World

VOLATILE = (
    "train_loss",
    "resume",
    "second",
    "runtime",
    "peak_mib",
    "versions",
    "total_flos",
    "cost",
    "time",
    "pace",
)  # in keys of JSON
NOT_COMPARED = {".bin", ".pt", ".pth", ".html", ".log"}  # pickles; pages with seconds
NAMES_NOT_COMPARED = {"log.txt", "report.md", "README.md"}  # with seconds or paths
NAMED_BY_TIMES = "negatives.work/"  # its texts are new files in each run, and their times name other files
LEFT = (".part", ".lock")  # by a killed process
UNFINISHED = (*LEFT, "_unfinished")
GROWING = ("metrics.jsonl", "log.txt")
MOST_KILLS = 3  # in a row, before the command may end


@dataclass(frozen=True)
class Command:
    """A command that writes into the folder in which it runs."""

    name: str
    first: Sequence[str]
    again: Sequence[str] = ()  # flags of the further runs

    def prepared(self, folder: Path, world: World) -> None:
        """Copy what the command changes in place."""
        if self.name == "card":
            for file in Path(world / "export").rglob("*"):
                if file.is_file():
                    copy = folder / "export" / file.relative_to(world / "export")
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.write_bytes(file.read_bytes())


def commands(world: World) -> list[Command]:
    """Return each command that writes, with its arguments."""
    model, source, target = world / "export", world / "source.txt", world / "target.txt"
    card = ["--run", world / "trained", "--results", world / "results.json", "--license", "mit", "--base_model", "a/b"]
    trim = ["--data", f"de={world / 'de.tsv'}", "--cache_dir", "cache"]
    return [
        Command("pretrain", ["pretrain", world / "pretrain.yaml"], ["--resume"]),
        Command("pretrain averages", ["pretrain", world / "averages.yaml"], ["--resume"]),
        Command("pretrain dual-pivot", ["pretrain", world / "pivot.yaml"], ["--resume"]),
        Command("finetune", world.finetune(), ["--resume"]),
        Command("mine", ["mine", source, target, "--model", model, "-o", "mined.tsv", "--plot", "scores.svg"]),
        Command("mine-negatives", ["mine-negatives", f"de={world / 'de.tsv'}", "--model", model, "-o", "negatives"]),
        Command("score", ["score", world / "de.tsv", "--model", model, "-o", "scored.tsv", "--source_pool", source,
                          "--target_pool", target]),
        Command("align-words", ["align-words", world / "de.tsv", "--model", world / "encoder", "-o", "links.jsonl"]),
        Command("align-documents", ["align-documents", world / "source", world / "target", "--model", model,
                                    "-o", "aligned.tsv", "--languages", "de", "en"]),
        Command("export", ["export", world / "trained", "--output", "export", "--overwrite"]),
        Command("card", ["publish", "export", "org/mine", "--dry_run", *card]),
        Command("evaluate", ["evaluate", model, "--tasks", f"tatoeba={world / 'tatoeba'}", "--output", "results.json"]),
        Command("analyse", ["analyse", model, "--tatoeba", world / "tatoeba", "--languages", "de", "--output", "out"]),
        Command("trim-vocab", ["trim-vocab", world / "encoder", "--output", "trimmed", *trim, "--overwrite"]),
        Command("compare", ["compare", world / "study.yaml", "--output", "out"]),
    ]  # fmt: skip


def attack(seed: int, count: int, seconds: float = 3600) -> dict[str, int]:
    """Kill commands ``count`` times; return the counts, or raise an AssertionError with all findings."""
    preload()
    findings: list[str] = []
    counts: Counter[str] = Counter()
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="hf-xsent-attack-") as name:
        root = Path(name).resolve()
        world = World(root / "world")
        built = run(lambda: world.build(), root / "building")
        assert built.code == 0, built.said
        known = {one.name: one for one in commands(world)}
        references: dict[str, _Reference] = {}
        rng = random.Random(seed)
        names: list[str] = []
        while counts["kills"] < count and time.monotonic() < until:
            names = names or rng.sample(sorted(known), len(known))
            chosen = names.pop()
            if chosen not in references:
                references[chosen] = _Reference.of(known[chosen], root / "trial", world)
            trial = _Trial(references[chosen], root / "trial", world, rng)
            findings += trial.findings()
            counts += trial.counts
            counts["trials"] += 1
    counts["findings of the kill loop"] = len(findings)
    if findings:
        raise AssertionError("\n".join([f"{len(findings)} findings of {dict(counts)}", *findings]))
    return dict(counts)


@dataclass(frozen=True)
class _Reference:
    """An uninterrupted run of a command: its output, time and number of changes of files."""

    command: Command
    output: Mapping[str, str]
    seconds: float
    changes: int

    @classmethod
    def of(cls, one: Command, folder: Path, world: World) -> _Reference:
        outputs = []
        for _ in range(2):  # what differs between two uninterrupted runs is not compared
            empty(folder)
            one.prepared(folder, world)
            ended = run(command(*one.first), folder)
            assert ended.code == 0, f"{one.name}: {ended.said}"
            outputs.append(_output(folder))
        assert outputs[0].keys() == outputs[1].keys(), (one.name, outputs[0].keys() ^ outputs[1].keys())
        same = {name: value if value == outputs[1][name] else "" for name, value in outputs[0].items()}
        return cls(one, same, ended.seconds, ended.changes)


class _Trial:
    """One to three kills of a command, then a run to the end."""

    def __init__(self, reference: _Reference, folder: Path, world: World, rng: random.Random) -> None:
        self.reference, self.folder, self.world, self.rng = reference, folder, world, rng
        self.counts: Counter[str] = Counter()
        self.told: list[str] = []
        self.history: list[str] = []

    def findings(self) -> list[str]:
        """Run the trial and return what is wrong."""
        one = self.reference.command
        empty(self.folder)
        one.prepared(self.folder, self.world)
        arguments = list(one.first)
        for _ in range(self.rng.randint(1, MOST_KILLS)):
            kill = self._kill()
            ended = run(command(*arguments), self.folder, kill)
            self.history.append(str(kill))
            self.counts["kills"] += 1
            self.counts[kill.number.name] += 1
            self._check_end(ended, killed=True)
            self._check_files()
            if self.told or ended.code == 0:
                break
            arguments = [*one.first, *one.again]
        if not self.told:
            ended = run(command(*one.first, *one.again), self.folder)
            self._check_end(ended, killed=False)
            if not self.told:
                self._check_same()
        return self.told

    def _kill(self) -> Kill:
        number = self.rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
        if self.rng.random() < 0.5:
            return Kill(number, change=self.rng.randint(1, max(1, self.reference.changes)))
        return Kill(number, seconds=self.rng.uniform(0, 1.05 * self.reference.seconds))

    def _tell(self, what: str) -> None:
        self.told.append(f"{self.reference.command.name}, {', '.join(self.history) or 'not killed'}: {what}")

    def _check_end(self, ended: Ended, killed: bool) -> None:
        if "Traceback (most recent call last)" in ended.said:
            self._tell(f"a traceback: {ended.said[-1500:]}")
        elif ended.code != 0 and not (killed and ended.killed):
            self._tell(f"exit code {ended.code}: {ended.said[-1500:]}")

    def _check_files(self) -> None:
        """Check that each file with a final name is whole."""
        for path in sorted(self.folder.rglob("*")):
            name = str(path.relative_to(self.folder))
            if path.is_file() and not any(part in name for part in (*UNFINISHED, "lock")):
                problem = _broken(path)
                if problem:
                    self._tell(f"{name} is not whole: {problem}")

    def _check_same(self) -> None:
        found, expected = _output(self.folder), self.reference.output
        for name in sorted(found.keys() | expected.keys()):
            if name not in expected:
                self._tell(f"{name} is left over")
            elif name not in found:
                self._tell(f"{name} is missing")
            elif expected[name] and found[name] != expected[name]:
                self._tell(f"{name} has {_first_difference(found[name], expected[name])}")


def _output(folder: Path) -> dict[str, str]:
    """Return each file's content, JSON without figures that differ from run to run; of pickles and pages, nothing."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith(NAMED_BY_TIMES) or any(part in name for part in LEFT):
            continue
        if path.is_dir():
            if not any(path.iterdir()):
                found[f"{name}/"] = ""
        elif path.suffix in NOT_COMPARED or path.name in NAMES_NOT_COMPARED:
            found[name] = ""
        elif path.suffix in (".json", ".jsonl"):
            lines = [path.read_bytes()] if path.suffix == ".json" else path.read_bytes().splitlines()
            values = [json.loads(line) for line in lines if b'"train_runtime"' not in line]  # each start ends with one
            found[name] = "\n".join(json.dumps(_constant(value), indent=1) for value in values)
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def _first_difference(found: str, expected: str) -> str:
    lines = zip_longest(found.splitlines(), expected.splitlines(), fillvalue="nothing")
    return next((f"{one.strip()[:200]!r}, not {other.strip()[:200]!r}" for one, other in lines if one != other), "")


def _constant(value: Any) -> Any:
    """Return JSON without its volatile values."""
    if isinstance(value, dict):
        kept = {key: one for key, one in value.items() if not any(word in key for word in VOLATILE)}
        return {key: _constant(one) for key, one in kept.items()}
    return [_constant(one) for one in value] if isinstance(value, list) else value


def _broken(path: Path) -> str:
    """Return why a file is not whole; empty if it is."""
    try:
        content = path.read_bytes()
        if path.suffix == ".json":
            json.loads(content)
        elif path.suffix == ".jsonl":
            lines = content.decode().split("\n")
            if lines.pop():
                return "its last line does not end"
            _ = [json.loads(line) for line in lines]
        elif path.suffix == ".yaml":
            if not yaml.safe_load(content):
                return "no settings"
        elif path.suffix == ".safetensors":
            with safe_open(path, "np") as tensors:
                _ = [tensors.get_tensor(key) for key in tensors.keys()]  # noqa: SIM118 - not a mapping
        elif path.suffix in (".npy", ".npz"):
            np.load(io.BytesIO(content))
        elif path.suffix in (".pt", ".pth", ".bin"):
            return "" if zipfile.ZipFile(path).testzip() is None else "a bad entry"
        elif path.suffix in (".svg", ".html") and not content.rstrip().endswith((b"</svg>", b"</html>")):
            return "it does not end"
        elif path.suffix in (".tsv", ".md", ".links") and not content.endswith(b"\n") and content:
            return "its last line does not end"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
