"""Measure answer retrieval from a pool of several languages, as LAReQA does on XQuAD-R (arXiv:2004.05484)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np

from hf_xsent.data.benchmarks.answers import AnswerSet, load_answers
from hf_xsent.evaluation.task import Encode, EvaluationTask, Metrics, Scores, encoder_of
from hf_xsent.evaluation.translation_retrieval import ROUNDING, unit

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
        sentences = [test_set.sentences for test_set in self.sets]
        among: dict[str, Metrics] = {}
        rows: dict[str, np.ndarray] = {}
        for place, test_set in enumerate(self.sets):
            scores = unit(ask(test_set.questions)) @ np.concatenate(pools).T
            blocks = [scores[:, start:end] for start, end in zip(starts, starts[1:], strict=False)]
            within = [
                1 / (1 + wrong_before(block, answers[:, [number]], sentences[number])[:, 0])
                for number, block in enumerate(blocks)
            ]
            count = min(_NEAREST, int(starts[-1]))
            nearest = np.argpartition(-scores, count - 1, axis=1)[:, :count]
            own = ((nearest >= starts[place]) & (nearest < starts[place + 1])).mean(1)
            in_pool = answers + starts[:-1]
            of_answers = np.take_along_axis(scores, in_pool, axis=1)
            wrong = np.sort(wrong_before(scores, in_pool, [*chain(*sentences)]), axis=1)
            right = np.arange(1, 1 + len(self.sets))  # answers down to each answer
            rows[test_set.language] = np.stack(
                [
                    (right / (right + wrong)).mean(1),
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


def wrong_before(scores: np.ndarray, answers: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    """Return for each question and each of its answers how many wrong candidates are at least as near.

    A text that equals an answer is not wrong.

    >>> wrong_before(np.array([[0.9, 0.8, 0.7, 0.7]]), np.array([[2, 0]]), ["a", "b", "c", "d"]).tolist()
    [[2, 0]]
    """
    numbers = np.unique(texts, return_inverse=True)[1]
    of_answers = np.take_along_axis(scores, answers, axis=1) - ROUNDING
    wrong = ~(numbers[:, None] == numbers[answers][:, None]).any(2)
    return np.stack([((scores > score[:, None]) & wrong).sum(1) for score in of_answers.T], axis=1)
