"""Load the tasks of a study: the evaluation tasks, retrieval on any bitext, and word alignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hf_xsent.comparison.settings import TaskSettings
from hf_xsent.comparison.word_alignment import WordAlignmentTask, load_gold_sets
from hf_xsent.data.benchmarks.tatoeba import TatoebaSet
from hf_xsent.data.bitext import load_bitext
from hf_xsent.errors import RecipeError, did_you_mean, shortened
from hf_xsent.evaluation.registry import TASKS, load_tasks, tatoeba_group
from hf_xsent.evaluation.retrieval import TatoebaTask
from hf_xsent.evaluation.task import EvaluationTask
from hf_xsent.settings.read import check_known, read_settings

ALL = "all"  # name of the group of all measured languages


@dataclass(frozen=True)
class RetrievalTask(TatoebaTask):
    """Retrieval accuracy on any bitext, computed as for Tatoeba."""

    name: ClassVar[str] = "retrieval"
    title: ClassVar[str] = "Retrieval"


TASK_CLASSES: dict[str, type[EvaluationTask]] = TASKS | {task.name: task for task in (RetrievalTask, WordAlignmentTask)}
_OPTIONS = dict.fromkeys(TASK_CLASSES, ("data", "languages")) | {
    "tatoeba": ("data", "languages", "group"),
    "retrieval": ("data", "languages", "max_pairs", "target_language"),
    "word_alignment": ("data", "languages", "choose"),
}


def check_tasks(tasks: Mapping[str, Any]) -> None:
    """Check the names of tasks, and the names and types of their options."""
    for name, options in tasks.items():
        _read_options(name, options)


def read_task(name: str, options: Mapping[str, Any], cache_dir: Path) -> EvaluationTask:
    """Load a task's test set."""
    settings = _read_options(name, options)
    source, languages = (settings.data or [""])[0], settings.languages
    if name == RetrievalTask.name:
        bitext = load_bitext(
            settings.data,
            target_language=settings.target_language or "en",
            cleaning=None,
            max_pairs=settings.max_pairs,
            cache_dir=cache_dir,
        )
        codes = languages or bitext.languages
        check_known(codes, bitext.languages, "tasks.retrieval.languages: ")
        return RetrievalTask([TatoebaSet(code, code, *bitext.pairs(code)) for code in codes])
    if name == WordAlignmentTask.name:
        return WordAlignmentTask(load_gold_sets(source, languages), settings.choose or "")
    if settings.group is not None:
        languages = tatoeba_group(settings.group)
    return load_tasks({name: source}, {name: languages} if languages else None)[0]


def _read_options(name: str, options: Any) -> TaskSettings:
    if name not in _OPTIONS:
        raise RecipeError(f"tasks: unknown task {name!r}: use {', '.join(_OPTIONS)}{did_you_mean(name, _OPTIONS)}")
    if not isinstance(options, Mapping):
        raise RecipeError(f"tasks.{name} takes options such as {{data: FOLDER}}, not {shortened(options)}")
    try:
        check_known(options, _OPTIONS[name], "")
        settings = read_settings(TaskSettings, options)
    except RecipeError as error:
        raise RecipeError(f"tasks.{name}: {error}") from error
    if settings.languages and settings.group is not None:
        raise RecipeError(f"tasks.{name}: give languages or group")
    if not settings.data:
        raise RecipeError(f"tasks.{name}.data is missing: add its files, or give --tasks.{name}.data")
    return settings
