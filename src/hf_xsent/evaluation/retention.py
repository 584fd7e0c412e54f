"""Measure what an encoder could do before a training: similarity and retrieval within a language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hf_xsent.data.benchmarks.answers import AnswerSet, load_answers
from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.data.benchmarks.sts import load_sts17
from hf_xsent.data.readers.hub import select_names
from hf_xsent.errors import DataError
from hf_xsent.evaluation.answer_retrieval import wrong_before
from hf_xsent.evaluation.similarity import cosines, rank_correlation
from hf_xsent.evaluation.task import Encode, EvaluationTask, Metrics, Scores, Start, encoder_of
from hf_xsent.evaluation.translation_retrieval import unit

if TYPE_CHECKING:
    from typing_extensions import Self

_TRACKS = ("ar-ar", "es-es", "en-en")
_NEIGHBOURS = 10


@dataclass(frozen=True)
class RetentionTask(EvaluationTask):
    """Retention: monolingual tracks of STS 2017, and XQuAD-R within each language, beside the encoder at the start."""

    sets: Sequence[PairSet | AnswerSet]
    start: Start | None = None

    name: ClassVar[str] = "retention"
    title: ClassVar[str] = "Retention"
    protocol: ClassVar[str] = (
        "score: Spearman × 100 of the monolingual tracks of STS 2017, MRR × 100 of XQuAD-R within a language. Compared "
        "with the starting encoder: the mean cosine of its embedding of a text and the new one, and, for questions, "
        "the share of the ten nearest questions that are still among them"
    )
    headings: ClassVar[Mapping[str, str]] = {
        "pairs": "pairs",
        "score": "score",
        "cosine": "cosine with the start",
        "neighbours": "same neighbours",
    }
    main_metric: ClassVar[str] = "score"
    needs_start: ClassVar[bool] = True
    parallel: ClassVar[bool] = True  # question i of each language is the same
    figures: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        "within a language: retention": "score",
        "… cosine with the start": "cosine",
        "… neighbours as at the start": ("XQuAD-R", "neighbours"),
    }

    @classmethod
    def find(cls, folder: str | PathLike[str]) -> str | None:
        """Return the folder itself if it has the data of one part."""
        parts = [*Path(folder, "sts17").glob("STS.input.track[135].*"), Path(folder, "xquad_r")]
        return str(folder) if any(map(Path.exists, parts)) else None

    @classmethod
    def load(cls, source: str | PathLike[str], languages: Iterable[str] | None = None) -> Self:
        """Read the folders ``sts17`` and ``xquad_r`` in a folder."""
        sets: list[PairSet | AnswerSet] = []
        if Path(source, "sts17").is_dir():
            sets += [sts for sts in load_sts17(Path(source, "sts17")) if sts.language in _TRACKS]
        if Path(source, "xquad_r").is_dir():
            sets += load_answers(Path(source, "xquad_r"))
        if not sets:
            raise DataError(f"{source} has no folder sts17 or xquad_r, whose texts retention measures")
        wanted = select_names(source, dict.fromkeys(map(_language, sets)), languages)
        return cls([test_set for test_set in sets if _language(test_set) in wanted])

    @property
    def settings(self) -> dict[str, str]:
        """What identifies the start."""
        return {} if self.start is None else {"start": self.start.fingerprint}

    def beside(self, start: Start) -> Self:
        """Return this task, which compares with ``start``."""
        return replace(self, start=start)

    def inputs(self) -> Iterator[tuple[str, str]]:
        """Iterate over the sentences of STS, and over questions and sentences of XQuAD-R with their prompts."""
        for test_set in self.sets:
            if isinstance(test_set, PairSet):
                yield from (("", text) for text in (*test_set.sources, *test_set.targets))
            else:
                yield from (("query", text) for text in test_set.questions)
                yield from (("document", text) for text in test_set.sentences)

    def score(self, encode: Encode) -> Scores:
        """Measure each part; with a start, compare its embeddings with the new ones."""
        beside: dict[str, Metrics] = {}
        rows: dict[str, np.ndarray] = {}
        for test_set in self.sets:
            if isinstance(test_set, PairSet):
                name, texts, role = f"STS {_language(test_set)}", test_set.sources, ""
                similar = cosines(encode(test_set.sources), encode(test_set.targets))
                rows[name] = np.stack([similar, test_set.gold], axis=1)
            else:
                name, texts, role = f"XQuAD-R {test_set.language}", test_set.questions, "query"
                asked = unit(encoder_of(encode, "query")(test_set.questions))
                scores = asked @ unit(encoder_of(encode, "document")(test_set.sentences)).T
                answers = np.array(test_set.answers)[:, None]
                rows[name] = 1 / (1 + wrong_before(scores, answers, test_set.sentences))
            if self.start is not None:
                before, after = (unit(encoder_of(which, role)(texts)) for which in (self.start.encode, encode))
                comparable = before.shape == after.shape
                beside[name] = {"cosine": float((before * after).sum(1).mean())} if comparable else {}
                if role:  # the first sentences of STS are no collection in which to search
                    beside[name]["neighbours"] = 100 * same_neighbours(before, after)
        parts = {"STS": "STS ", "XQuAD-R": "XQuAD-R ", "all": ""}
        groups = {group: [name for name in rows if name.startswith(prefix)] for group, prefix in parts.items()}
        return self.scored(rows, beside, groups)

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Compute MRR of reciprocal ranks (one column), or Spearman's correlation of cosines and gold scores (two)."""
        if rows.shape[-1] == 1:
            return {"score": 100 * rows[..., 0].mean(-1)}
        return {"score": rank_correlation(rows[..., 0], rows[..., 1])}


def same_neighbours(before: np.ndarray, after: np.ndarray, k: int = _NEIGHBOURS) -> float:
    """Return the share of the ``k`` nearest neighbours of each vector that are among its nearest afterwards.

    >>> before = unit(np.array([[1, 0], [1, 0.1], [0, 1]])); after = unit(np.array([[1, 0], [0, 1], [1, 0.1]]))
    >>> same_neighbours(before, after, k=1)  # the second and the third have changed places
    0.0
    """
    nearest = []
    if len(before) == 1:
        return 1.0  # a single text has no neighbours to lose
    for vectors in (before, after):
        scores = vectors @ vectors.T
        np.fill_diagonal(scores, -np.inf)
        k = min(k, len(scores) - 1)
        nearest.append(np.argpartition(-scores, k - 1, axis=1)[:, :k])
    shared = [len(np.intersect1d(*pair)) for pair in zip(*nearest, strict=True)]
    return float(np.mean(shared)) / k


def _language(test_set: PairSet | AnswerSet) -> str:
    return test_set.language.partition("-")[0]
