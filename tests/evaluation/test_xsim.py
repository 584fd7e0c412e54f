"""xsim and xsim++ against a slow recomputation, and the pairs of languages they read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hf_xsent.data.perturbing import RULES, perturb
from hf_xsent.errors import DataError
from hf_xsent.evaluation.registry import load_tasks
from hf_xsent.evaluation.xsim import XsimTask
from hf_xsent.mining.margin import best_by_margin
from hf_xsent.sentence_transformers.evaluation import TaskEvaluator

ENGLISH = [f"Anna did not see {number} dogs in Rome before May, as they said to Tom." for number in range(3, 23)]
GERMAN = [f"Anna sah {number} Hunde nicht in Rom vor dem Mai, wie sie zu Tom sagten." for number in range(3, 23)]
FRENCH = [f"Anna n’a pas vu {number} chiens à Rome avant mai, comme ils ont dit à Tom." for number in range(3, 23)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for language, sentences in {"en": ENGLISH, "de": GERMAN, "fr": FRENCH}.items():
        (tmp_path / f"{language}.txt").write_text("\n".join(sentences) + "\n", "utf-8")
    return tmp_path


@cache
def _vector(part: str) -> np.ndarray:
    return np.random.default_rng(list(part.encode())).standard_normal(24)


def _encode(sentences: Sequence[str]) -> np.ndarray:
    """Embed pairs of characters at random: similar sentences have similar embeddings."""
    parts = ([sentence[start : start + 2] for start in range(len(sentence))] for sentence in sentences)
    return np.array(
        [np.sum([_vector(part) for part in of_sentence], axis=0) for of_sentence in parts], dtype=np.float32
    )


def _slow_choices(sources: list[str], candidates: list[str], margin: str, k: int = 4) -> list[str]:
    """Choose a target for each source as LASER's xsim.py does: k nearest by cosine, then the best margin."""
    x, y = (_encode(side) / np.linalg.norm(_encode(side), axis=1, keepdims=True) for side in (sources, candidates))
    cosines = x.astype(np.float64) @ y.T.astype(np.float64)
    mean_x = np.sort(cosines, axis=1)[:, -k:].mean(1)
    mean_y = np.sort(cosines, axis=0)[-k:].mean(0)
    chosen = []
    for row in range(len(sources)):
        scored = []
        for column in np.argsort(-cosines[row], kind="stable")[:k]:
            cosine, mean = cosines[row, column], (mean_x[row] + mean_y[column]) / 2
            scored.append(({"ratio": cosine / mean, "distance": cosine - mean, "absolute": cosine}[margin], column))
        chosen.append(candidates[max(scored)[1]])
    return chosen


@pytest.mark.parametrize("margin", ["ratio", "distance", "absolute"])
def test_the_best_target_by_margin_is_that_of_a_slow_recomputation(margin: str):
    candidates = [*ENGLISH, *(one.text for one in perturb(ENGLISH, "en"))]
    best = best_by_margin(_encode(GERMAN), _encode(candidates), margin=margin)
    assert [candidates[place] for place in best] == _slow_choices(GERMAN, candidates, margin)


@pytest.mark.parametrize(("pair", "sources", "targets"), [("de-en", GERMAN, ENGLISH), ("fr-de", FRENCH, GERMAN)])
def test_error_rates_are_those_of_a_slow_recomputation(folder: Path, pair: str, sources: list[str], targets: list[str]):
    task = XsimTask.load(folder, [pair])
    scores = task.score(_encode)
    perturbed = perturb(targets, pair[-2:])
    beside = _slow_choices(sources, [*targets, *(one.text for one in perturbed)], "ratio")
    wrong = [chosen != target for chosen, target in zip(beside, targets, strict=True)]
    alone = _slow_choices(sources, targets, "ratio")
    metrics = scores.languages[pair]
    assert metrics["xsim_pp"] == pytest.approx(100 * np.mean(wrong)) == pytest.approx(100 - metrics["correct"])
    assert metrics["xsim"] == pytest.approx(100 * np.mean([a != b for a, b in zip(alone, targets, strict=True)]))
    for rule in RULES:
        texts = {one.text for one in perturbed if one.rule == rule}
        assert metrics[rule] == pytest.approx(100 * np.mean([chosen in texts for chosen in beside]))
    assert metrics["correct"] == pytest.approx(float(task.metrics(scores.outcomes.rows[pair])["correct"]))
    assert metrics["xsim_pp"] > 0


def test_equal_sentences_are_the_same_translation(tmp_path: Path):
    (tmp_path / "pairs.tsv").write_text("de\ten\n" + "Ja, gut.\tYes.\nJawohl.\tYes.\nNein.\tNo.\n", "utf-8")
    task = XsimTask.load(tmp_path / "pairs.tsv")
    assert [(one.source, one.target) for one in task.sets] == [("de", "en")]
    known = {"Ja, gut.": [1, 0], "Jawohl.": [1, 0], "Yes.": [1, 0], "Nein.": [0, 1], "No.": [0, 1]}
    scores = task.score(lambda sentences: np.array([known[text] for text in sentences], dtype=np.float32))
    assert scores.groups["all"] | {"pairs": 3, "xsim": 0, "xsim_pp": 0} == scores.groups["all"]


def test_pairs_of_languages(folder: Path):
    def pairs(*languages: str) -> list[tuple[str, str]]:
        return [(one.source, one.target) for one in XsimTask.load(folder, languages or None).sets]

    assert pairs() == [("de", "en"), ("fr", "en")]
    assert pairs("de", "fr-de") == [("de", "en"), ("fr", "de")]
    with pytest.raises(DataError, match="xsim needs two languages: give a pair such as en-fr"):
        pairs("en")
    with pytest.raises(DataError, match="has no 'it'"):
        pairs("it")
    (folder / "fra-CA.txt").write_text((folder / "fr.txt").read_text())
    assert pairs() == [("de", "en"), ("fr", "en")]  # a language without a region replaces those with one
    assert pairs("fr-CA", "de-fr-CA", "fr-CA-de") == [("fr-CA", "en"), ("de", "fr-CA"), ("fr-CA", "de")]
    assert pairs("de", "deu-fr") == [("de", "en"), ("deu", "fr")]
    assert pairs("de", "fr", "deu", "de-eng") == [("de", "eng"), ("fr", "en")]  # each once, whatever its codes
    with pytest.raises(DataError, match="xsim needs two languages: give a pair such as deu-fr"):
        pairs("deu-de")
    (folder / "en.txt").unlink()
    assert pairs() == pairs("fr") == [("fr", "de")]  # without English, with the first
    (folder / "sw.txt").write_text("Moja.\n")
    assert pairs("fr-de") == [("fr", "de")]  # other languages may have other lines


def test_of_several_regions_of_the_target_the_first_is_taken(folder: Path) -> None:
    (folder / "en.txt").rename(folder / "en_US.txt")
    (folder / "en_GB.txt").write_text((folder / "en_US.txt").read_text("utf-8"), "utf-8")
    for languages, sources in ((None, ["de", "fr"]), (["de"], ["de"]), (["en_US"], ["en_US"])):
        sets = XsimTask.load(folder, languages).sets
        assert [(one.source, one.target) for one in sets] == [(source, "en_GB") for source in sources]


def test_the_same_task_in_sentence_transformers(folder: Path):
    (task,) = load_tasks({"xsim": folder}, {"xsim": ["de", "fr"]})

    class Model:
        model_card_data = None

        def encode(self, sentences: Sequence[str], show_progress_bar: bool = False) -> np.ndarray:
            return _encode(sentences)

    evaluator = TaskEvaluator(task)
    evaluator.store_metrics_in_model_card_data = lambda *_: None  # type: ignore[method-assign]
    scores = task.score(_encode)
    figures = evaluator(Model())
    assert figures["xsim_mean"] == pytest.approx(scores.groups["all"]["correct"])
    assert figures["xsim_de-en"] == pytest.approx(scores.languages["de-en"]["correct"])
