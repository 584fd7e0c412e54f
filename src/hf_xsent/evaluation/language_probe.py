"""Measure how well a linear classifier finds the language of a sentence from its embedding.

An encoder whose embeddings depend on the meaning only would leave the classifier at chance. Most separate languages
nearly perfectly; how much the language counts in a search is what ``mixed_pool`` measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hf_xsent.evaluation.parallel import FOLDERS, ParallelTask
from hf_xsent.evaluation.task import Encode, Scores

FOLDS = 5


@dataclass(frozen=True)
class LanguageProbeTask(ParallelTask):
    """Language probe: the accuracy of a linear classifier of languages.

    The main score is 100 - accuracy, so that higher is better, as in all tasks.
    """

    name: ClassVar[str] = "language_probe"
    measures_any_data: ClassVar[bool] = True
    title: ClassVar[str] = "Language probe"
    protocol: ClassVar[str] = (
        f"accuracy of logistic regression on standardized embeddings, {FOLDS}-fold cross-validation by line: the "
        "translations of a sentence are in one fold. Chance is one of the languages"
    )
    headings: ClassVar[Mapping[str, str]] = {
        "pairs": "sentences",
        "accuracy": "accuracy",
        "chance": "chance",
        "hidden": "100 - accuracy",
    }
    main_metric: ClassVar[str] = "hidden"
    figures: ClassVar[Mapping[str, str]] = {"language found by a linear classifier (low)": "accuracy"}
    charts: ClassVar[Sequence[str]] = ("accuracy",)
    folders: ClassVar[tuple[str, ...]] = ("language_probe", *FOLDERS)

    def score(self, encode: Encode) -> Scores:
        """Measure the accuracy of the classifier on the sentences of each language."""
        predicted = predict_languages(np.stack([encode(test_set.sentences) for test_set in self.sets]))
        return self.scored(
            {
                test_set.language: np.stack([right, np.full(len(right), 1 / len(self.sets))], axis=1)
                for test_set, right in zip(self.sets, predicted == np.arange(len(self.sets))[:, None], strict=True)
            }
        )

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Average the accuracy of each item and that of chance."""
        accuracy, chance = np.moveaxis(100 * rows.mean(-2), -1, 0)
        return {"accuracy": accuracy, "chance": chance, "hidden": 100 - accuracy}


def predict_languages(vectors: np.ndarray) -> np.ndarray:
    """Predict the language (its place) of every sentence from embeddings of all languages (languages × lines × width).

    Line i of all languages is the same sentence, and is predicted by a classifier that is trained without it.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    count, lines, width = vectors.shape
    predicted = np.empty((count, lines), dtype=np.int64)
    fold = np.arange(lines) % FOLDS
    for number in np.unique(fold):
        train, test = vectors[:, fold != number], vectors[:, fold == number]
        labels = np.repeat(np.arange(count), train.shape[1])
        classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        classifier.fit(train.reshape(-1, width), labels)
        predicted[:, fold == number] = classifier.predict(test.reshape(-1, width)).reshape(count, -1)
    return predicted
