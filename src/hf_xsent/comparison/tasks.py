"""What methods are compared on: a task's name and options come to figures by language and by group of languages."""

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
from hf_xsent.evaluation.retrieval import PROTOCOL, retrieval_by_language
from hf_xsent.models.embedder import SentenceEmbedder

Figures = dict[str, float]
MEASURED = "measured"  # the group of all languages that were


@dataclass(frozen=True)
class Scores:
    """Of one model: figures by language, and their means over groups of languages."""

    languages: dict[str, Figures]
    groups: dict[str, Figures]


@dataclass(frozen=True)
class Task:
    """A test set that is read, and how to measure a model on it; higher figures are better."""

    protocol: str
    headings: dict[str, str]  # of the figures
    main: str  # the figure by which methods are ranked
    fingerprint: str  # of all that the figures depend on beside the model
    score: Callable[[SentenceEmbedder], Scores]


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

    def score(embedder: SentenceEmbedder) -> Scores:
        languages = {
            code: {"mean": one.mean, "forward": one.forward, "backward": one.backward}
            for code, one in retrieval_by_language(embedder, pairs).items()
        }
        within = {name: codes for name, codes in groups.items() if {*codes} <= {*languages}} | {MEASURED: [*languages]}
        means = {
            name: {figure: mean(languages[code][figure] for code in codes) for figure in _RETRIEVAL_HEADINGS}
            for name, codes in within.items()
        }
        return Scores(languages, means)

    return Task(PROTOCOL, _RETRIEVAL_HEADINGS, "mean", digest.hexdigest()[:16], score)


_RETRIEVAL_HEADINGS = {"mean": "mean", "forward": "xx→en", "backward": "en→xx"}
_TASKS: dict[str, tuple[Callable[..., Task], dict[str, Any]]] = {
    "tatoeba": (_tatoeba, {"data": str, "group": str | int, "languages": list}),
    "retrieval": (_retrieval, {"data": str | list | dict, "languages": list, "max_pairs": int}),
}
