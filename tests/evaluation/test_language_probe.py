"""The language probe: what it finds, and that no sentence is on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from hf_xsent.evaluation.language_probe import FOLDS, LanguageProbeTask, predict_languages

LINES = 30


def _vectors(strength: float, seed: int = 0, languages: int = 3) -> np.ndarray:
    """Embeddings of a meaning, equal in all languages, and a direction for each language."""
    generator = np.random.default_rng(seed)
    meanings = generator.standard_normal((1, LINES, 8))
    noise = 0.3 * generator.standard_normal((languages, LINES, 8))
    return (meanings + noise + strength * generator.standard_normal((languages, 1, 8))).astype(np.float32)


def test_languages_are_found_as_far_as_embeddings_show_them():
    languages = np.arange(3)[:, None]
    accuracy = [(predict_languages(_vectors(strength)) == languages).mean() for strength in (0, 0.3, 5)]
    assert accuracy[0] < 0.55 < accuracy[1] < accuracy[2] == 1.0


def test_equal_embeddings_are_at_chance():
    vectors = np.repeat(_vectors(0)[:1], 4, axis=0)
    assert (predict_languages(vectors) == np.arange(4)[:, None]).mean() == 0.25


def test_predictions_are_those_of_a_slow_recomputation():
    vectors = _vectors(0.4, seed=1).astype(np.float64)
    expected = np.empty((3, LINES), dtype=int)
    for fold in range(FOLDS):
        inside = [line for line in range(LINES) if line % FOLDS != fold]
        examples = np.array([vectors[language, line] for language in range(3) for line in inside])
        labels = [language for language in range(3) for _ in inside]
        mean, deviation = examples.mean(0), examples.std(0)
        classifier = LogisticRegression(max_iter=1000).fit((examples - mean) / deviation, labels)
        for line in set(range(LINES)) - set(inside):
            for language in range(3):
                expected[language, line] = classifier.predict([(vectors[language, line] - mean) / deviation])[0]
    assert np.array_equal(predict_languages(vectors), expected)


def test_the_task_reports_the_accuracy_of_each_language(tmp_path: Path):
    table = "\n".join("\t".join(f"{language} {line}" for language in ("de", "en", "sw")) for line in range(LINES))
    (tmp_path / "text.tsv").write_text(f"de\ten\tsw\n{table}\n", "utf-8")
    vectors = _vectors(0.3)

    def encode(sentences: Sequence[str]) -> np.ndarray:
        languages, lines = zip(*(sentence.split() for sentence in sentences), strict=True)
        return vectors[[["de", "en", "sw"].index(name) for name in languages], [int(line) for line in lines]]

    task = LanguageProbeTask.load(tmp_path / "text.tsv")
    scores = task.score(encode)
    accuracies = 100 * (predict_languages(vectors) == np.arange(3)[:, None]).mean(1)
    assert [metrics["accuracy"] for metrics in scores.languages.values()] == pytest.approx(accuracies.tolist())
    assert scores.groups["all"]["hidden"] == pytest.approx(100 - accuracies.mean())
    assert scores.groups["all"]["chance"] == pytest.approx(100 / 3)
    assert float(task.metrics(scores.outcomes.rows["sw"])["hidden"]) == pytest.approx(scores.languages["sw"]["hidden"])
