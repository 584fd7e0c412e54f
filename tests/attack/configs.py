"""Attack every reader of settings with recipes, studies, flags and result files, whole, odd and damaged."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from random import Random
from typing import Any

import yaml

from hf_xsent.comparison.compare import compare
from hf_xsent.data.cleaning.filtering import FilterRules
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.evaluation.report import read_reports
from hf_xsent.objectives.registry import OBJECTIVES
from hf_xsent.settings.read import read_mapping
from hf_xsent.training.recipe import read_recipe, recipe_keys

from .inputs import Trial, damaged, run_trials, text

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**63, 1.5, -0.0, float("inf"), float("nan"), [], [None], [[1]], ["a", 1], {},
    {"a": 1}, {1: 2}, {None: None}, "", " ", "no", "1e-3", "1e999", "x" * 5000, "de=x.tsv", "../x", "~", "\n", "```",
)  # fmt: skip
ODD_YAML = (
    "2020-99-99", "0x_", "0b_", "!!bool x", "!!int x", "!!float x", "!!timestamp x", "!!binary x", "!!set {a, b}",
    "!!omap [a: 1]", "!!pairs [a: 1]", "!!python/object/apply:os.system [id]", "!!null x", "=", "<<", "1:2:3", "1_000",
    '"\\ud800"', '"\\0"', '"\\UFFFFFFFF"', "&a [*a]", "&a {x: *a}", "*a", "0o17", "017", ".nan", "-.inf",
    "0001-01-01 00:00:00+23:59", "9" * 5000, "1" + ":59" * 3000, "[" * 20_000, "{" * 2000, "- " * 5000, "? " * 5000,
    "|\n  a\n b", ">-\n   x", "'", '"', "@", "`", "%", "\t", "a: b: c", "{a: 1, a: 2}", "? [a]\n: 1", "!" * 500,
)  # fmt: skip
WHOLE_RECIPE = {"model": "m", "data": {"de": "x.tsv"}, "output_dir": "out", "max_steps": 5, "learning_rate": 5e-5}
WHOLE_STUDY = {
    "model": "m",
    "data": {"de": "x.tsv"},
    "budget": {"steps": 10},
    "methods": {"dap": {"method": "dap"}, "none": {"train": False}},
    "tasks": {"tatoeba": {"data": "t"}},
}
# Settings of libraries that start processes, or ask devices or the network, when a value is read.
NOT_ATTACKED = (
    "ddp_",
    "deepspeed",
    "fsdp",
    "tpu_",
    "local_rank",
    "torch_compile",
    "parallelism",
    "push_to_hub",
    "hub_",
)
SCORES = {"forward": 50.0, "backward": 60.0, "mean": 55.0}
RESULTS = {"runs": [{"task": "tatoeba", "protocol": "p", "settings": {"model": "m", "k": 1}, "sentences": {"de": 3},
                     "languages": {"de": SCORES}, "groups": {"all": SCORES}, "versions": {}}]}  # fmt: skip


def attack(seed: int, count: int) -> dict[str, int]:
    """Attack the readers with ``count`` inputs; return the answers, or raise an AssertionError with the input."""
    return run_trials(TARGETS, seed, count)


def _odd(rng: Random, value: Any, share: float = 0.1) -> Any:
    """Replace some values of nested settings by odd ones, and drop or rename some keys."""
    if rng.random() < share:
        return rng.choice((*ODD_VALUES, text(rng)))
    if isinstance(value, dict):
        keys = [key for key in value if rng.random() > share / 3]
        return {rng.choice(ODD_KEYS) if rng.random() < share / 3 else key: _odd(rng, value[key], share) for key in keys}
    return [_odd(rng, one, share) for one in value] if isinstance(value, list) else value


ODD_KEYS = ("", "x", "learning_rat", "modle", "a.b", "\n", "é", "<b>", "objectives", "__class__", "self", "k" * 3000)


def _written(rng: Random, content: Any) -> bytes:
    """Write settings as YAML or JSON; then add odd YAML or damage."""
    if rng.random() < 0.2:
        data = json.dumps(content, default=str).encode()
    else:
        flow = rng.choice((None, True, False))
        data = yaml.safe_dump(
            content, default_flow_style=flow, allow_unicode=rng.random() < 0.5, sort_keys=False
        ).encode()
    for _ in range(rng.choice((0, 0, 1, 2))):
        place = rng.choice((data.find(b": ") + 2, data.rfind(b": ") + 2, len(data)))
        key = rng.choice((b"", b"\nseed: ", b"\nlearning_rate: ", b"\nobjectives: ", b"\ntitle: ", b"\ndata: "))
        data = data[:place] + key + rng.choice(ODD_YAML).encode("utf-8", "surrogatepass") + b"\n" + data[place:]
    if rng.random() < 0.05:
        data += _alias_bomb(rng)
    return damaged(rng, data) if rng.random() < 0.3 else data


def _alias_bomb(rng: Random) -> bytes:
    kind = rng.choice(("[{}]", "{{<<: [{}]}}", "{{a: [{}]}}"))
    lines = ["b0: &b0 {x: y}"]
    lines += [f"b{n}: &b{n} " + kind.format(", ".join([f"*b{n - 1}"] * 9)) for n in range(1, 20)]
    return ("\n" + "\n".join(lines) + "\n").encode()


def _flags(rng: Random, keys: tuple[str, ...]) -> list[str]:
    words: list[str] = []
    for _ in range(rng.choice((0, 0, 1, 3))):
        key = rng.choice(
            (*keys, *ODD_KEYS, f"objectives.{rng.choice([*OBJECTIVES])}.{rng.choice(('weight', 'x', ''))}")
        )
        values = [str(rng.choice((*ODD_VALUES, *ODD_YAML))) for _ in range(rng.choice((0, 1, 1, 2)))]
        words += [f"--{key}", *values] if rng.random() < 0.5 or not values else [f"--{key}={values[0]}"]
    return [word.replace("\0", "") for word in words]


def _attacked_keys() -> tuple[str, ...]:
    return tuple(key for key in recipe_keys() if not key.startswith(NOT_ATTACKED))


def recipe(trial: Trial) -> str:
    """A recipe file with flags."""
    rng, keys = trial.rng, _attacked_keys()
    content: dict[str, Any] = dict(WHOLE_RECIPE)
    content |= {key: rng.choice(ODD_VALUES) for key in rng.sample(keys, rng.choice((0, 1, 1, 3)))}
    if rng.random() < 0.3:
        names = rng.sample([*OBJECTIVES], 2)
        content["objectives"] = {name: rng.choice((1.0, {"weight": 0.5}, {"temperature": 0.1}, {})) for name in names}
    content = _odd(rng, content, 0.03) if rng.random() < 0.5 else content
    path = trial.write("recipe.yaml", _written(rng, content))
    return trial.answer(lambda: read_recipe([str(path), *_flags(rng, keys)]))


def study(trial: Trial) -> str:
    """A study file with changes."""
    rng = trial.rng
    path = trial.write("study.yaml", _written(rng, _odd(rng, WHOLE_STUDY, rng.choice((0.0, 0.05, 0.2)))))
    trial.write("recipe.yaml", _written(rng, WHOLE_RECIPE))
    names = ("budget.steps", "seeds", "methods.dap.recipe", "x", ".", "title", "objectives.a.b")
    flags = [f"--{rng.choice(names)}={rng.choice(ODD_YAML)}" for _ in range(rng.choice((0, 0, 1, 2)))]
    return trial.answer(lambda: compare.parse([str(path), *flags]))


def rules(trial: Trial) -> str:
    """Cleaning and filter rules of the command line."""
    rng = trial.rng
    names = ("max_characters", "copied_share", "identical", "tokenizer", "min_score", "x", "", "min_pieces")
    stated = [f"{rng.choice(names)}{rng.choice(('=', '=', ''))}{rng.choice((*ODD_YAML, *map(str, ODD_VALUES)))}"
              for _ in range(rng.randint(1, 3))]  # fmt: skip
    kind = rng.choice((CleaningRules, FilterRules))
    return trial.answer(lambda: kind.parse(stated))


def special_file(trial: Trial) -> str:
    """A recipe that is a folder, a pipe, a device, a circle of links, too large or not there."""
    rng = trial.rng
    kind = rng.choice(("folder", "pipe", "/dev/zero", "/dev/null", "loop", "missing", "large", "name", "binary"))
    path = trial.folder / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "large":
        path.write_bytes(b"a: 1\n" * 1_000_000)
    elif kind == "name":
        path = trial.folder / ("x" * 300)
    elif kind == "binary":
        path.write_bytes(rng.randbytes(1000))
    name = kind if kind.startswith("/dev") else str(path)
    read = rng.choice((read_mapping, lambda path: compare.read({}, {}, path), lambda path: read_recipe([str(path)])))
    outcome = trial.answer(lambda: read(name))  # type: ignore[operator]
    trial.require(outcome != "read", f"a recipe was read from {kind}")
    return outcome


def results(trial: Trial) -> str:
    """Files of results."""
    rng = trial.rng
    data = json.dumps(_odd(rng, RESULTS, rng.choice((0.0, 0.05))), default=str).encode()
    path = trial.write("results.json", damaged(rng, data) if rng.random() < 0.6 else data)
    return trial.answer(lambda: read_reports(path))


TARGETS: dict[str, tuple[float, Callable[[Trial], str]]] = {
    "recipe": (40, recipe),
    "study": (30, study),
    "rules": (10, rules),
    "special file": (4, special_file),
    "results": (16, results),
}
