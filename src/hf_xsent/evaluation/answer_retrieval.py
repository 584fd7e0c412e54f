"""Measure answer retrieval from a pool of several languages, as LAReQA does on XQuAD-R (arXiv:2004.05484)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hf_xsent.data.benchmarks.answers import AnswerSet, load_answers
from hf_xsent.evaluation.task import Encode, EvaluationTask, Metrics, Scores, encoder_of
from hf_xsent.evaluation.translation_retrieval import unit

_NEAREST = 10


@dataclass(frozen=True)
class AnswerRetrievalTask(EvaluationTask):
    """Answer retrieval: each question retrieves the sentence with its answer, in all languages at once."""

    sets: Sequence[AnswerSet]

    name: ClassVar[str] = "answer_retrieval"
    title: ClassVar[str] = "Answer retrieval"
    protocol: ClassVar[str] = (
        "by cosine. mAP: mean average precision in the pool of the sentences of all languages, in which each question "
        "has an answer per language; MRR within: mean reciprocal rank among the sentences of the question's language; "
        "own language: share of the question's language among the ten nearest; LPR: share of questions whose nearest "
        "answer is in their language"
    )
    headings: ClassVar[Mapping[str, str]] = {
        "pairs": "questions",
        "map": "mAP",
        "mrr": "MRR within",
        "own": "own language",
        "preference": "LPR",
    }
    main_metric: ClassVar[str] = "map"
    folders: ClassVar[tuple[str, ...]] = ("answer_retrieval", "xquad_r", "xquad-r")
    figures: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        "answers in the pool of all languages (mAP)": "map",
        "… within the question's language (MRR)": "mrr",
        "… own language among the 10 nearest (low)": "own",
    }
    charts: ClassVar[Sequence[str]] = ("map", "own")
    parallel: ClassVar[bool] = True
    read = staticmethod(load_answers)

    def inputs(self) -> Iterator[tuple[str, str]]:
        """Iterate over questions, which get the prompt of queries, and sentences, which get that of documents."""
        for test_set in self.sets:
            yield from (("query", text) for text in test_set.questions)
            yield from (("document", text) for text in test_set.sentences)

    def score(self, encode: Encode) -> Scores:
        """Measure the questions of each language; besides, mAP of each language among the sentences of each other."""
        ask, read = encoder_of(encode, "query"), encoder_of(encode, "document")
        pools = [unit(read(test_set.sentences)) for test_set in self.sets]
        starts = np.cumsum([0, *(len(pool) for pool in pools)])
        answers = np.stack([test_set.answers for test_set in self.sets], axis=1)  # questions × languages
        among: dict[str, Metrics] = {}
        rows: dict[str, np.ndarray] = {}
        for place, test_set in enumerate(self.sets):
            scores = unit(ask(test_set.questions)) @ np.concatenate(pools).T
            blocks = [scores[:, start:end] for start, end in zip(starts, starts[1:], strict=False)]
            within = [reciprocal_ranks(block, answers[:, number]) for number, block in enumerate(blocks)]
            count = min(_NEAREST, int(starts[-1]))
            nearest = np.argpartition(-scores, count - 1, axis=1)[:, :count]
            own = ((nearest >= starts[place]) & (nearest < starts[place + 1])).mean(1)
            of_answers = np.take_along_axis(scores, answers + starts[:-1], axis=1)
            rows[test_set.language] = np.stack(
                [
                    average_precisions(scores, of_answers),
                    within[place],
                    own,
                    of_answers.argmax(1) == place,
                ],
                axis=1,
            )
            among[test_set.language] = {
                f"among {other.language}": 100 * float(ranks.mean())
                for other, ranks in zip(self.sets, within, strict=True)
            }
        return self.scored(rows, among)

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Average the columns."""
        columns = np.moveaxis(100 * rows.mean(-2), -1, 0)
        return dict(zip(("map", "mrr", "own", "preference"), columns, strict=True))


def average_precisions(scores: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Return the average precision of each query, from its scores of all candidates and of the relevant ones.

    A relevant candidate comes before others with the same score.

    >>> average_precisions(np.array([[0.9, 0.8, 0.7, 0.1]]), np.array([[0.7, 0.9]])).tolist()  # (1/1 + 2/3) / 2
    [0.8333333333333333]
    """
    relevant = -np.sort(-relevant, axis=1)
    precisions = []
    for place in range(relevant.shape[1]):
        score = relevant[:, [place]]
        before = (scores > score).sum(1) - (relevant > score).sum(1)  # candidates that are not relevant
        precisions.append((place + 1) / (place + 1 + before))
    return np.mean(precisions, axis=0)


def reciprocal_ranks(scores: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return 1 / rank of each query's answer among all candidates."""
    return 1 / (1 + (scores > np.take_along_axis(scores, answers[:, None], axis=1)).sum(1))
