"""The two walks of docs/architecture.md: a setting from its recipe to the loss, and a checkpoint to its folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from training_run import Run
from transformers import AutoTokenizer

from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.models import METHODS
from hf_xsent.models.config import SentenceEncoderConfig
from hf_xsent.training.pretrain import pretrain

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text("utf-8")
TEMPERATURE = 0.012345
# Files that look at each value or word, or store the settings object, on its way.
PASSED = {"settings/secrets.py", "settings/yaml12.py", "objectives/base.py", "objectives/settings.py"}


def walk(title: str) -> list[str]:
    section = PAGE.partition(f"## The walk of a {title}")[2].partition("\n## ")[0]
    return re.findall(r"^\| \d \| `([\w/]+\.py)`", section, re.MULTILINE)


@contextmanager
def files_called(handles: Callable[[Mapping[str, Any]], bool]) -> Iterator[set[str]]:
    """Collect the files of our package in which a function is called with arguments that ``handles`` accepts."""
    files: set[str] = set()

    def record(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or "/hf_xsent/" not in code.co_filename:
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if handles({name: frame.f_locals.get(name) for name in names}):
            files.add(code.co_filename.rpartition("/hf_xsent/")[2])

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        yield files
    finally:
        sys.setprofile(before)


def _holds_temperature(arguments: Mapping[str, Any]) -> bool:
    return any(
        value in (TEMPERATURE, str(TEMPERATURE))
        for argument in arguments.values()
        for value in [argument, *_parts(argument)]
        if isinstance(value, float | str)
    )


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [*value.values()]
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name, None) for field in fields(value)]
    return []


@pytest.mark.parametrize("form", ["yaml", "flag", "python"])
def test_a_setting_walks_through_five_files_to_the_loss(form: str, run: Run, pairs: list[tuple[str, str]]) -> None:
    objectives = {"translation_ranking": {"temperature": TEMPERATURE}}
    run.write({"objectives": objectives} if form == "yaml" else {})
    with files_called(_holds_temperature) as files:
        if form == "python":
            recipe = pretrain.read({"objectives": objectives}, recipe=run.folder / "recipe.yaml")
        else:
            flags = [] if form == "yaml" else ["--temperature", str(TEMPERATURE)]
            recipe = pretrain.parse([str(run.folder / "recipe.yaml"), *flags])
        encoder = str(recipe.start.model)
        model = METHODS[recipe.start.method][1].from_backbone(encoder, config=recipe.config)
        batch = PairCollator(AutoTokenizer.from_pretrained(encoder), 24)(
            [{"source": source, "target": target, "language": "de"} for source, target in pairs[:4]]
        )
        model(**{name: value for name, value in batch.items() if isinstance(value, torch.Tensor)})
    steps = walk("setting")
    assert len(steps) == 5 and files - PASSED <= {*steps}
    assert {"objectives/translation_ranking.py", "settings/convert.py", "settings/declare.py"} <= files


def test_a_run_builds_its_config_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[type] = []
    built = SentenceEncoderConfig.__post_init__

    def count(self: Any, **kwargs: Any) -> None:
        builds.append(type(self))
        built(self, **kwargs)

    monkeypatch.setattr(SentenceEncoderConfig, "__post_init__", count)
    run.start(max_steps=1, save_strategy="no", eval_strategy="no", load_best_model_at_end=False)
    assert len(builds) == 1


def test_a_checkpoint_walks_through_at_most_six_files(run: Run) -> None:
    steps = walk("checkpoint")
    assert 2 < len(steps) <= 6
    trainer = run.start(max_steps=1, save_steps=1, eval_steps=1)
    folder = str(run.folder / "saved")
    with files_called(lambda arguments: any(folder in str(value) for value in arguments.values())) as files:
        trainer.model.save_pretrained(folder)
    assert files - {"files.py"} <= {*steps}
