"""Measure the multilingual similarity error rates xsim and xsim++ of LASER on parallel text.

xsim (Artetxe and Schwenk, 2019; arXiv:1812.10464) is the share of sentences for which another sentence of the target
language scores higher by margin than the translation. xsim++ (Chen et al., 2023; arXiv:2306.12907) adds perturbed
sentences of the target side (`perturb`), which are nearly equal and mean something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hf_xsent.data.benchmarks.parallel import load_parallel, parallel_languages
from hf_xsent.data.benchmarks.sets import select_languages
from hf_xsent.data.languages import STRICT_CODE, find_language, matching_tags
from hf_xsent.data.perturbing import RULES, Perturbation, perturb
from hf_xsent.errors import DataError
from hf_xsent.evaluation.parallel import FOLDERS
from hf_xsent.evaluation.task import Encode, EvaluationTask, Scores
from hf_xsent.mining.margin import best_by_margin

if TYPE_CHECKING:
    from typing_extensions import Self

LINES = 500
_TARGET = "en"


@dataclass(frozen=True)
class XsimSet:
    """Sentences of two languages, ``targets[i]`` the translation of ``sources[i]``, and perturbed targets."""

    source: str
    target: str
    sources: list[str]
    targets: list[str]
    perturbed: list[Perturbation]


@dataclass(frozen=True)
class XsimTask(EvaluationTask):
    """xsim and xsim++: the share of sentences that do not find their translation by margin.

    The main score is 100 - xsim++, so that higher is better, as in all tasks.
    """

    sets: Sequence[XsimSet]

    name: ClassVar[str] = "xsim"
    unit: ClassVar[str] = "language pair"
    measures_any_data: ClassVar[bool] = True
    title: ClassVar[str] = "xsim"
    protocol: ClassVar[str] = (
        "xsim: percent of sentences whose best target sentence is not their translation, by ratio margin with k = 4 "
        "among the 4 nearest by cosine; equal sentences are the same. xsim++: with the perturbed target sentences as "
        "further candidates; by rule: percent of sentences whose best target is a perturbed one of this rule"
    )
    headings: ClassVar[Mapping[str, str]] = {
        "pairs": "sentences",
        "xsim": "xsim",
        "xsim_pp": "xsim++",
        "correct": "100 - xsim++",
        **{rule: rule for rule in RULES},
    }
    main_metric: ClassVar[str] = "correct"
    figures: ClassVar[Mapping[str, str]] = {
        "xsim: errors by margin (low)": "xsim",
        "xsim++: right beside perturbed sentences": "correct",
    }
    folders: ClassVar[tuple[str, ...]] = ("xsim", *FOLDERS)
    parallel: ClassVar[bool] = True

    @classmethod
    def load(
        cls,
        source: str | PathLike[str],
        languages: Iterable[str] | None = None,
        max_pairs: int | None = None,
    ) -> Self:
        """Read parallel text: the first 500 lines (``max_pairs``) of each language and of English.

        ``languages`` are codes of languages that English translates, or pairs of any two such as ``de-fr``. The default
        is all languages. Without English, the first language takes its place.
        """
        names = parallel_languages(source)
        codes_of_all = [find_language(name).code for name in names]
        code = _TARGET if _TARGET in codes_of_all else codes_of_all[0]
        target, *others = matching_tags(names, code)
        target = target if others else code
        if languages is None:
            languages = [name for name in select_languages(source, names, None) if find_language(name).code != code]
        pairs = [_pair(code, target, names) for code in languages]
        codes = [code for pair in pairs for code in pair]
        name_of = {code: select_languages(source, names, [code])[0] for code in codes}
        if same := [first for first, second in pairs if name_of[first] == name_of[second]]:
            raise DataError(f"xsim needs two languages: give a pair such as {same[0]}-fr")
        pairs = [*{(name_of[first], name_of[second]): (first, second) for first, second in pairs}.values()]
        texts = load_parallel(source, name_of.values(), max_pairs or LINES) if codes else []
        by_name = {text.language: text.sentences for text in texts}
        sentences = {code: by_name[name] for code, name in name_of.items()}
        perturbed = {code: perturb(sentences[code], code) for code in {second for _, second in pairs}}
        return cls(
            [XsimSet(first, second, sentences[first], sentences[second], perturbed[second]) for first, second in pairs]
        )

    def inputs(self) -> Iterator[tuple[str, str]]:
        """Iterate over the sentences of both sides, and over the perturbed ones."""
        yield from super().inputs()
        yield from (("", perturbed.text) for test_set in self.sets for perturbed in test_set.perturbed)

    def score(self, encode: Encode) -> Scores:
        """Measure both error rates of each pair of languages."""
        return self.scored({f"{test_set.source}-{test_set.target}": _rows(test_set, encode) for test_set in self.sets})

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Average the columns: errors with and without perturbed sentences, and those by rule."""
        right, right_beside, *by_rule = np.moveaxis(100 * rows.mean(-2, dtype=np.float64), -1, 0)
        errors = {"xsim": 100 - right, "xsim_pp": 100 - right_beside, "correct": right_beside}
        return errors | dict(zip(RULES, by_rule, strict=True))


def _pair(code: str, target: str, names: Sequence[str]) -> tuple[str, str]:
    """Return the two languages of a pair such as de-fr, or a language such as fr-CA and the target."""
    is_language = code in names or re.fullmatch(STRICT_CODE, code)
    pair = None if is_language else re.fullmatch(rf"({STRICT_CODE}|[^-]+)-(.+)", code)
    return (code, target) if pair is None else (pair[1], pair[2])


def _rows(test_set: XsimSet, encode: Encode) -> np.ndarray:
    """Return for each sentence: correct among targets, correct beside perturbed ones, and a 1 for the rule chosen."""
    source, target = encode(test_set.sources), encode(test_set.targets)
    rows = np.zeros((len(source), 2 + len(RULES)), dtype=np.int8)
    texts = np.array([*test_set.targets, *(perturbed.text for perturbed in test_set.perturbed)], dtype=object)
    rules = [perturbed.rule for perturbed in test_set.perturbed]
    rows[:, 0] = texts[best_by_margin(source, target)] == texts[: len(source)]
    if rules:
        target = np.concatenate([target, encode(texts[len(target) :].tolist())])
    best = best_by_margin(source, target)
    rows[:, 1] = texts[best] == texts[: len(source)]
    for line in np.flatnonzero((rows[:, 1] == 0) & (best >= len(source))):
        rows[line, 2 + RULES.index(rules[best[line] - len(source)])] = 1
    return rows
