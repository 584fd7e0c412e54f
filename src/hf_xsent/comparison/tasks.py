"""Load the tasks of a comparison: the evaluation tasks, retrieval on any bitext, and word alignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hf_xsent.comparison.word_alignment import WordAlignmentTask, load_gold_sets
from hf_xsent.data.benchmarks.tatoeba import TatoebaSet
from hf_xsent.data.bitext import load_bitext
from hf_xsent.errors import RecipeError, did_you_mean
from hf_xsent.evaluation.registry import TASKS, load_tasks, tatoeba_group
from hf_xsent.evaluation.retrieval import TatoebaTask
from hf_xsent.evaluation.task import EvaluationTask

ALL = "all"  # name of the group of all measured languages

_OPTIONS: dict[str, dict[str, Any]] = {name: {"data": str, "languages": list} for name in TASKS}
_OPTIONS["tatoeba"]["group"] = str | int
_OPTIONS["word_alignment"] = {"data": str, "languages": list, "layers": list, "choose": str}
_OPTIONS["retrieval"] = {"data": str | list | dict, "languages": list, "max_pairs": int}


@dataclass(frozen=True)
class RetrievalTask(TatoebaTask):
    """Retrieval accuracy on any bitext, computed as for Tatoeba."""

    name: ClassVar[str] = "retrieval"
    title: ClassVar[str] = "Retrieval"


def task_class(name: str) -> type[EvaluationTask]:
    """Return the class of a task."""
    own: dict[str, type[EvaluationTask]] = {one.name: one for one in (RetrievalTask, WordAlignmentTask)}
    return own[name] if name in own else TASKS[name]


def read_task(name: str, options: Mapping[str, Any], cache_dir: Path) -> EvaluationTask:
    """Load a task's test set; ``check_tasks`` has checked the options."""
    if name == "retrieval":
        return _own_pairs(cache_dir, **options)
    languages = options.get("languages")
    if name == "word_alignment":
        sets = load_gold_sets(options["data"], languages)
        return WordAlignmentTask(sets, options.get("choose", ""), options.get("layers"))
    if options.get("group") is not None:
        languages = tatoeba_group(str(options["group"]))
    return load_tasks({name: options["data"]}, {name: languages} if languages else None)[0]


def check_tasks(tasks: Mapping[str, Mapping[str, Any]]) -> None:
    """Check the names of tasks, and the names and types of their options."""
    for name, options in tasks.items():
        if name not in _OPTIONS:
            raise RecipeError(
                f"tasks: unknown task {name!r}: use {', '.join(_OPTIONS)}" + did_you_mean(str(name), _OPTIONS)
            )
        known = _OPTIONS[name]
        for option, value in options.items():
            if option not in known:
                raise RecipeError(f"tasks.{name}: unknown option {option!r}" + did_you_mean(str(option), known))
            if not isinstance(value, known[option]) or isinstance(value, bool):
                raise RecipeError(f"tasks.{name}.{option} has the wrong type: {value!r}")
            if option == "layers" and (wrong := [one for one in value if type(one) is not int]):
                raise RecipeError(f"tasks.{name}.layers takes layer numbers such as 8, not {wrong[0]!r}")
            if option == "languages" and (wrong := [one for one in value if not isinstance(one, str)]):
                raise RecipeError(
                    f"tasks.{name}.languages takes language codes (word_alignment: names of sets), not {wrong[0]!r}: "
                    'write them in quotes, as "no"'
                )
        if not options.get("data"):
            raise RecipeError(f"tasks.{name}.data is missing: add its files, or give --set tasks.{name}.data=…")


def _own_pairs(
    cache_dir: Path, data: Any, languages: list[str] | None = None, max_pairs: int | None = None
) -> RetrievalTask:
    """Load the pairs of the retrieval task, without cleaning."""
    bitext = load_bitext(data, cleaning=None, max_pairs=max_pairs, cache_dir=cache_dir)
    for code in languages or ():
        if code not in bitext.languages:
            raise RecipeError(f"tasks.retrieval: no pairs of language {code!r}{did_you_mean(code, bitext.languages)}")
    chosen = languages or bitext.languages
    return RetrievalTask([TatoebaSet(language, language, *bitext.pairs(language)) for language in chosen])
