"""Look up evaluation tasks by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike

from hf_xsent.data.benchmarks.tatoeba import tatoeba_groups
from hf_xsent.errors import RecipeError, did_you_mean, shortened
from hf_xsent.evaluation.mining_f1 import BuccTask
from hf_xsent.evaluation.retrieval import TatoebaTask
from hf_xsent.evaluation.similarity import Sts17Task, Sts22Task
from hf_xsent.evaluation.task import EvaluationTask

TASKS: dict[str, type[EvaluationTask]] = {task.name: task for task in (TatoebaTask, BuccTask, Sts17Task, Sts22Task)}


def check_task(name: str) -> None:
    """Raise a `RecipeError` for an unknown task."""
    if name not in TASKS:
        raise RecipeError(f"unknown task {name!r}: use some of {', '.join(TASKS)}{did_you_mean(name, TASKS)}")


def load_tasks(
    sources: Mapping[str, str | PathLike[str]], languages: Mapping[str, Iterable[str]] | None = None
) -> list[EvaluationTask]:
    """Load each task from a folder or the Hub; ``languages`` restricts a task to some languages or pairs."""
    if not isinstance(languages or {}, Mapping):
        raise RecipeError(
            "languages must be a dict from task to language codes, such as {'tatoeba': ['de']}, not "
            f"{shortened(languages)}"
        )
    for name in sources:
        check_task(name)
    for name in languages or {}:
        if name not in sources:
            tasks = f"{', '.join(sources)}{did_you_mean(name, sources)}"
            raise RecipeError(f"languages are given for {name!r}, which is not among the tasks {tasks}")
    return [TASKS[name].load(source, (languages or {}).get(name)) for name, source in sources.items()]


def tatoeba_group(name: str) -> list[str]:
    """Return the languages of a group of Tatoeba; raise a `RecipeError` for an unknown one."""
    groups = {name: codes for name, codes in tatoeba_groups().items() if codes}
    if name not in groups:
        raise RecipeError(f"unknown group {name!r}: use one of {', '.join(groups)}{did_you_mean(name, groups)}")
    return groups[name]
