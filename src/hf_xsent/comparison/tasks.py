"""Load the tasks of a study: the evaluation tasks, retrieval on any bitext, and word alignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hf_xsent.comparison.settings import RetrievalSettings, TaskSettings, TatoebaSettings, WordAlignmentSettings
from hf_xsent.comparison.word_alignment import WordAlignmentTask, load_gold_sets
from hf_xsent.data.benchmarks.tatoeba import TatoebaSet
from hf_xsent.data.bitext import load_bitext
from hf_xsent.errors import RecipeError, did_you_mean, shortened
from hf_xsent.evaluation.registry import TASKS, load_tasks, tatoeba_group
from hf_xsent.evaluation.retrieval import TatoebaTask
from hf_xsent.evaluation.task import EvaluationTask
from hf_xsent.settings.read import read_settings

ALL = "all"  # name of the group of all measured languages


@dataclass(frozen=True)
class RetrievalTask(TatoebaTask):
    """Retrieval accuracy on any bitext, computed as for Tatoeba."""

    name: ClassVar[str] = "retrieval"
    title: ClassVar[str] = "Retrieval"


TASK_CLASSES: dict[str, type[EvaluationTask]] = TASKS | {task.name: task for task in (RetrievalTask, WordAlignmentTask)}
_SETTINGS: dict[str, type[TaskSettings]] = dict.fromkeys(TASKS, TaskSettings) | {
    "tatoeba": TatoebaSettings,
    "retrieval": RetrievalSettings,
    "word_alignment": WordAlignmentSettings,
}


def check_tasks(tasks: Mapping[str, Any]) -> None:
    """Check the names of tasks, and the names and types of their options."""
    for name, options in tasks.items():
        _read_options(name, options)


def read_task(name: str, options: Mapping[str, Any], cache_dir: Path) -> EvaluationTask:
    """Load a task's test set."""
    settings = _read_options(name, options)
    languages = settings.languages
    if isinstance(settings, RetrievalSettings):
        return _own_pairs(settings, cache_dir)
    if isinstance(settings, WordAlignmentSettings):
        return WordAlignmentTask(load_gold_sets(str(settings.data), languages), settings.choose or "")
    if isinstance(settings, TatoebaSettings) and settings.group is not None:
        languages = tatoeba_group(settings.group)
    return load_tasks({name: str(settings.data)}, {name: languages} if languages else None)[0]


def _read_options(name: str, options: Any) -> TaskSettings:
    if name not in _SETTINGS:
        known = f"use {', '.join(_SETTINGS)}{did_you_mean(name, _SETTINGS)}"
        raise RecipeError(f"tasks: unknown task {name!r}: {known}")
    if not isinstance(options, Mapping):
        raise RecipeError(f"tasks.{name} takes options such as {{data: FOLDER}}, not {shortened(options)}")
    try:
        settings = read_settings(_SETTINGS[name], options)
    except RecipeError as error:
        raise RecipeError(f"tasks.{name}: {error}") from error
    if not settings.data:
        raise RecipeError(f"tasks.{name}.data is missing: add its files, or give --tasks.{name}.data")
    return settings


def _own_pairs(settings: RetrievalSettings, cache_dir: Path) -> RetrievalTask:
    """Load the pairs of the retrieval task, without cleaning."""
    bitext = load_bitext(settings.data, cleaning=None, max_pairs=settings.max_pairs, cache_dir=cache_dir)
    for code in settings.languages or ():
        if code not in bitext.languages:
            raise RecipeError(f"tasks.retrieval: no pairs of language {code!r}{did_you_mean(code, bitext.languages)}")
    languages = settings.languages or bitext.languages
    return RetrievalTask([TatoebaSet(language, language, *bitext.pairs(language)) for language in languages])
