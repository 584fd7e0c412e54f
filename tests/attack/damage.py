"""Damage a file of a run, an export or a work folder, and check that each command ends well or with one sentence.

A command that mines or aligns must write the same output as before.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from .forking import Ended, command, empty, preload, run
from .world import World

KINDS = ("truncated", "empty", "bits flipped", "deleted", "a folder", "of another kind", "random bytes")


def attack(seed: int, count: int) -> dict[str, int]:
    """Damage ``count`` files; return how the commands ended, or raise an AssertionError with all findings."""
    preload()
    findings: list[str] = []
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="hf-xsent-attack-") as name:
        root = Path(name).resolve()
        world, whole, trial = World(root / "world"), root / "whole", root / "trial"
        built = run(lambda: world.build(), root / "building")
        assert built.code == 0, built.said
        works = _works(world)
        made_by = [("pretrain", world / "pretrain.yaml"), ("export", "out", "-o", "export"), *works.values()]
        made_by.append(tuple(world.finetune("tuned")))
        for arguments in made_by:
            made = run(command(*arguments), whole)
            assert made.code == 0, made.said
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            empty(trial)
            shutil.copytree(whole, trial)
            finished = rng.random() < 0.5
            if not finished:  # killed between the last checkpoint and the final model
                for folder in ("out", "tuned"):
                    (trial / folder / "model.safetensors").unlink()
            done = _damage(rng, trial)
            arguments = _command(rng, world, done)
            ended = run(command(*arguments), trial)
            counts[f"exit code {ended.code}"] += 1
            problem = _problem(ended)
            for output, writes in works.items():
                if (
                    writes == arguments
                    and ended.code == 0
                    and (whole / output).read_bytes() != (trial / output).read_bytes()
                ):
                    problem = f"{output} differs"
            if problem:
                state = "finished" if finished else "unfinished"
                findings.append(f"seed {seed}, {state}: {done}; {' '.join(arguments)}: {problem}")
    counts["damaged files"] = count
    counts["findings in damaged folders"] = len(findings)
    if findings:
        raise AssertionError("\n".join([str(dict(counts)), *findings]))
    return dict(counts)


def _works(world: World) -> dict[str, list[str]]:
    """Return commands with a work folder by their output; the folder is the output's with .work."""
    model, source, target = world / "export", world / "source.txt", world / "target.txt"
    documents = ["align-documents", world / "source", world / "target", "--model", model, "--languages", "de", "en"]
    return {
        "mined.tsv": ["mine", source, target, "--model", model, "-o", "mined.tsv"],
        "aligned.tsv": [*documents, "-o", "aligned.tsv"],
        "links.jsonl": ["align-words", world / "de.tsv", "--model", world / "encoder", "-o", "links.jsonl"],
    }


def _damage(rng: random.Random, folder: Path) -> str:
    """Damage a file at random, and say which and how."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "lock" not in path.name]
    part = rng.choice(sorted({path.relative_to(folder).parts[0] for path in files}))
    path = rng.choice([path for path in files if path.relative_to(folder).parts[0] == part])
    kind = rng.choice(KINDS)
    content = path.read_bytes()
    path.unlink()
    if kind == "truncated":
        path.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "bits flipped":
        flipped = bytearray(content)
        for _ in range(rng.choice((1, 4, 64)) if flipped else 0):
            flipped[rng.randrange(min(len(flipped), 4096))] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "of another kind":
        others = [one for one in files if one.is_file() and one.suffix != path.suffix]
        path.write_bytes(rng.choice(others).read_bytes())
    elif kind == "random bytes":
        path.write_bytes(rng.randbytes(rng.choice((1, 100, len(content) + 1))))
    return f"{path.relative_to(folder)} {kind}"


def _command(rng: random.Random, world: World, done: str) -> list[str]:
    """Choose a command that reads the damaged file."""
    resume = ["pretrain", world / "pretrain.yaml", "--resume"]
    for output, writes in _works(world).items():
        if done.startswith(output):
            return writes
    if done.startswith("tuned/"):
        return [*world.finetune("tuned"), "--resume"]
    if done.startswith("export/"):
        card = [
            "publish",
            "export",
            "org/mine",
            "--dry_run",
            "--run",
            world / "trained",
            "--license",
            "mit",
            "--base_model",
            "a/b",
        ]
        score = ["score", world / "de.tsv", "--model", "export", "-o", "scored.tsv"]
        return rng.choice([["evaluate", "export", "--tasks", f"tatoeba={world / 'tatoeba'}"], card, score])
    if done.startswith(("cache/", "out/checkpoint")):
        return resume
    further = ["pretrain", world / "pretrain.yaml", "--model", "out", "--output_dir", "further"]
    evaluate = ["evaluate", "out", "--tasks", f"tatoeba={world / 'tatoeba'}"]
    return rng.choice([resume, resume, further, evaluate, ["export", "out", "-o", "new"]])


def _problem(ended: Ended) -> str:
    """Return what is wrong with how a command ended; empty if nothing is."""
    if "Traceback (most recent call last)" in ended.said:
        return f"a traceback: {ended.said[-700:]}"
    if ended.code not in (0, 2):
        return f"exit code {ended.code}: {ended.said[-700:]}"
    if ended.code == 2 and "hf-xsent: " not in ended.said:
        return f"no error is told: {ended.said[-700:]}"
    return ""
