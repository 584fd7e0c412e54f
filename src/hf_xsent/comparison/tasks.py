"""What methods are compared on: a task's name and options come to scores by language and figures over them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from hf_xsent.data.benchmarks import load_tatoeba, tatoeba_groups
from hf_xsent.data.bitext import load_bitext
from hf_xsent.errors import RecipeError, nearest
from hf_xsent.evaluation.retrieval import PROTOCOL, RetrievalAccuracy, retrieval_by_language
from hf_xsent.models.embedder import SentenceEmbedder


@dataclass(frozen=True)
class Scores:
    """Of one model on one task. The first figure is the one that methods are ranked by; higher is better."""

    measure: str  # what the numbers are
    languages: dict[str, float]
    figures: dict[str, float]  # over languages: means, groups, directions


@dataclass(frozen=True)
class Task:
    """A test set that is read, and how to measure a model on it."""

    identity: str  # hash of all that the scores depend on beside the model
    measure: Callable[[SentenceEmbedder], Scores]


Pairs = dict[str, tuple[list[str], list[str]]]


def read_task(name: str, options: Mapping[str, Any], cache_dir: Path) -> Task:
    """Load the test set of a task whose options were checked."""
    return _TASKS[name][0](cache_dir, **options)


def check_tasks(tasks: Mapping[str, Mapping[str, Any]]) -> None:
    """Known names, known options and none missing."""
    for name, options in tasks.items():
        if name not in _TASKS:
            raise RecipeError(f"tasks: unknown task {name!r}: use {', '.join(_TASKS)}" + nearest(str(name), _TASKS))
        known = _TASKS[name][1]
        for option, value in options.items():
            if option not in known:
                raise RecipeError(f"tasks.{name}: unknown option {option!r}" + nearest(str(option), known))
            if not isinstance(value, known[option]) or isinstance(value, bool):
                raise RecipeError(f"tasks.{name}.{option} does not take {value!r}")
        if not options.get("data"):
            raise RecipeError(
                f"tasks.{name}.data is missing: name its files, or give them by --set tasks.{name}.data=…"
            )


def _tatoeba(_: Path, data: str, group: str | int | None = None, languages: list[str] | None = None) -> Task:
    """The languages of a group of papers, those named, or all."""
    groups = {name: codes for name, codes in tatoeba_groups().items() if codes}
    if group is not None:
        if str(group) not in groups:
            raise RecipeError(f"tasks.tatoeba: unknown group {group!r}: use {', '.join(groups)}")
        languages = groups[str(group)]
    pairs = {one.language: (one.sources, one.targets) for one in load_tatoeba(data, languages)}
    return _retrieval_task(pairs, groups)


def _retrieval(cache_dir: Path, data: Any, languages: list[str] | None = None, max_pairs: int | None = None) -> Task:
    """Pairs of one's own, as bitext is named; every one counts, none is cleaned away."""
    bitext = load_bitext(data, cleaning=None, max_pairs=max_pairs, cache_dir=cache_dir)
    for language in languages or ():
        if language not in bitext.languages:
            raise RecipeError(
                f"tasks.retrieval: no pairs of language {language!r}" + nearest(language, bitext.languages)
            )
    return _retrieval_task({language: bitext.pairs(language) for language in languages or bitext.languages}, {})


def _retrieval_task(pairs: Pairs, groups: Mapping[str, list[str]]) -> Task:
    digest = hashlib.sha256(PROTOCOL.encode())
    for language, sides in pairs.items():
        for sentence in (language, *sides[0], *sides[1]):
            digest.update(sentence.encode() + b"\n")

    def measure(embedder: SentenceEmbedder) -> Scores:
        accuracy = retrieval_by_language(embedder, pairs)
        return Scores(
            "accuracy@1 (%)", {code: one.mean for code, one in accuracy.items()}, _retrieval_figures(accuracy, groups)
        )

    return Task(digest.hexdigest()[:16], measure)


def _retrieval_figures(accuracy: Mapping[str, RetrievalAccuracy], groups: Mapping[str, list[str]]) -> dict[str, float]:
    """The mean of all, each direction's, and those of the papers' groups that lie within."""
    within = {name: codes for name, codes in groups.items() if {*codes} <= {*accuracy}}
    whole = next((f"{name} languages" for name, codes in within.items() if {*codes} == {*accuracy}), "all languages")
    some = list(accuracy.values())
    figures = {
        whole: mean(one.mean for one in some),
        f"{whole}, xx→en": mean(one.forward for one in some),
        f"{whole}, en→xx": mean(one.backward for one in some),
    }
    for name, codes in within.items():
        figures.setdefault(f"{name} languages", mean(accuracy[code].mean for code in codes))
    return figures


_TASKS: dict[str, tuple[Callable[..., Task], dict[str, Any]]] = {
    "tatoeba": (_tatoeba, {"data": str, "group": str | int, "languages": list}),
    "retrieval": (_retrieval, {"data": str | list | dict, "languages": list, "max_pairs": int}),
}
