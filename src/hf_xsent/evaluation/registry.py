"""Look up evaluation tasks by name, and load their records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from hf_xsent.data.benchmarks.tatoeba import tatoeba_groups
from hf_xsent.errors import RecipeError, did_you_mean, shortened
from hf_xsent.evaluation.mining_f1 import BuccTask
from hf_xsent.evaluation.retrieval import TatoebaTask
from hf_xsent.evaluation.similarity import Sts17Task, Sts22Task
from hf_xsent.evaluation.task import EvaluationTask

TASKS: dict[str, type[EvaluationTask]] = {task.name: task for task in (TatoebaTask, BuccTask, Sts17Task, Sts22Task)}

Languages = Mapping[str, Iterable[str]]  # by task


def load_tasks(sources: Mapping[str, str | PathLike[str]], languages: Languages | None = None) -> list[EvaluationTask]:
    """Load each task from a folder or the Hub; ``languages`` restricts a task to some languages or pairs."""
    if not isinstance(languages or {}, Mapping):
        raise RecipeError(
            "languages must be a dict from task to language codes, such as {'tatoeba': ['de']}, not "
            f"{shortened(languages)}"
        )
    for name in sources:
        if name not in TASKS:
            raise RecipeError(f"unknown task {name!r}: use some of {', '.join(TASKS)}{did_you_mean(name, TASKS)}")
    for name in languages or {}:
        if name not in sources:
            tasks = f"{', '.join(sources)}{did_you_mean(name, sources)}"
            raise RecipeError(f"languages are given for {name!r}, which is not among the tasks {tasks}")
    return [TASKS[name].load(source, (languages or {}).get(name)) for name, source in sources.items()]


def read_tasks(tasks: Any, languages: Any = None, group: str | None = None) -> list[EvaluationTask]:
    """Load the tasks that settings name: a mapping, words such as ``tatoeba=FOLDER``, or tasks that are loaded.

    A word without a name is a folder with a folder per task. ``languages`` are a mapping, or words such as
    ``tatoeba=de,fr`` or, for a single task, ``de``.
    """
    if isinstance(tasks, Sequence) and all(isinstance(task, EvaluationTask) for task in tasks):
        if languages or group:
            raise RecipeError("languages restrict tasks given by name: give them to load_tasks instead")
        check_distinct(tasks)
        return list(tasks)
    sources = dict(tasks) if isinstance(tasks, Mapping) else _sources(tasks)
    selected = languages if isinstance(languages, Mapping) else _languages(languages or (), list(sources))
    if group is not None:
        if "tatoeba" in selected:
            raise RecipeError("languages and group both select languages of tatoeba: give languages or group")
        selected = {**selected, "tatoeba": tatoeba_group(group)}
    return load_tasks(sources, selected)


def tatoeba_group(name: str) -> list[str]:
    """Return the languages of a group of Tatoeba; raise a `RecipeError` for an unknown one."""
    groups = {name: codes for name, codes in tatoeba_groups().items() if codes}
    if name not in groups:
        raise RecipeError(f"unknown group {name!r}: use one of {', '.join(groups)}{did_you_mean(name, groups)}")
    return groups[name]


def check_distinct(tasks: Sequence[EvaluationTask]) -> None:
    """Raise an error if two tasks have the same name, which identifies their reports."""
    names = [task.name for task in tasks]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise RecipeError(f"the task {repeated[0]} is given twice: evaluate its sets in separate calls")


def _sources(words: Iterable[str | PathLike[str]]) -> dict[str, str]:
    """Return the folder or Hub id of each task."""
    sources: dict[str, str] = {}
    for word in (os.fspath(word) for word in words):
        name, equals, source = word.partition("=")
        added = (
            {name: source} if equals else {name: str(Path(word, name)) for name in TASKS if Path(word, name).is_dir()}
        )
        if not added:
            raise RecipeError(
                f"{word} is not a folder that contains {', '.join(TASKS)}: write TASK=FOLDER, such as tatoeba={word}"
            )
        if repeated := [name for name in added if name in sources]:
            raise RecipeError(f"the task {repeated[0]} is given twice: {sources[repeated[0]]} and {added[repeated[0]]}")
        sources |= added
    return sources


def _languages(words: Iterable[str], tasks: Sequence[str]) -> dict[str, list[str]]:
    """Return the languages of each task."""
    languages: dict[str, list[str]] = {}
    for word in words:
        task, equals, codes = word.rpartition("=")
        if not equals and len(tasks) > 1:
            raise RecipeError(f"--languages {word} names no task: write {tasks[0]}={word}")
        names = [code for code in codes.split(",") if code]
        if not names:
            raise RecipeError(
                f"--languages {word!r} has no language codes: give some, or omit the flag for all languages"
            )
        languages.setdefault(task or tasks[0], []).extend(names)
    return {task: list(dict.fromkeys(codes)) for task, codes in languages.items()}
