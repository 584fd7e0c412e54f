from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hf_xsent import SentenceEmbedder
from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.data.benchmarks.sts import STS22_PAIRS
from hf_xsent.errors import DataError
from hf_xsent.evaluation.similarity import Sts17Task, Sts22Task, cosines, rank_correlation


def test_order_counts_and_distance_does_not() -> None:
    assert rank_correlation(np.array([0.1, 0.2, 0.9]), np.array([1, 2, 3])) == pytest.approx(100)
    assert rank_correlation(np.array([0.9, 0.2, 0.1]), np.array([1, 2, 3])) == pytest.approx(-100)
    # ranks 1 2 3 4 against 1 2 4 3: 1 - 6 · (0 + 0 + 1 + 1) / (4 · 15)
    assert rank_correlation(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0, 1, 5, 4])) == pytest.approx(80)


def test_equal_scores_for_all_are_worth_nothing() -> None:
    assert rank_correlation(np.array([0.5, 0.5, 0.5]), np.array([1, 2, 3])) == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_without_a_rank_is_refused(value: float) -> None:
    for scores, gold in (([1, value, 2], [1, 2, 3]), ([1, 2, 3], [1, value, 2])):
        with pytest.raises(DataError, match="NaN or infinite"):
            rank_correlation(np.array(scores), np.array(gold))


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=30))
def test_it_is_scipys(pairs: list[tuple[int, int]]) -> None:
    scores, gold = zip(*pairs, strict=True)
    if len(set(scores)) > 1 and len(set(gold)) > 1:
        assert rank_correlation(np.array(scores), np.array(gold)) == pytest.approx(
            100 * stats.spearmanr(scores, gold).statistic
        )


def test_a_cosine_is_of_partners_whatever_their_length() -> None:
    first, second = np.array([[1, 0], [3, 4], [0, 0]]), np.array([[5, 0], [4, 3], [1, 0]])
    assert cosines(first, second).tolist() == pytest.approx([1, 24 / 25, 0])


def _sts(pair: str, gold: list[float]) -> PairSet:
    """Sentences are angles: the second stands off from the first by what its text says."""
    return PairSet(pair, ["0"] * len(gold), ["40", "20", "10"][: len(gold)], gold)


def _angles(sentences: list[str]) -> np.ndarray:
    angles = np.deg2rad([float(one) for one in sentences])
    return np.stack([np.cos(angles), np.sin(angles)], 1)


def test_a_pair_of_languages_has_its_own_figure_and_part_in_the_means() -> None:
    scores = Sts17Task([_sts("ar-ar", [0, 1, 5]), _sts("es-es", [5, 1, 0]), _sts("en-en", [0, 5, 1])]).score(_angles)
    figures = {pair: round(one["spearman"], 6) for pair, one in scores.languages.items()}
    assert figures == {"ar-ar": 100, "es-es": -100, "en-en": 50}
    assert scores.groups["3 monolingual tracks"] == scores.groups["all"]
    assert scores.groups["all"]["pairs"] == 9
    assert scores.groups["all"]["spearman"] == pytest.approx(50 / 3)
    assert "7 tracks" not in scores.groups


def test_sts22_is_averaged_with_and_without_fr_pl() -> None:
    sets = [_sts(pair, [5, 1, 0] if pair == "fr-pl" else [0, 1, 5]) for pair in STS22_PAIRS]
    groups = Sts22Task(sets).score(_angles).groups
    assert groups["18 pairs"]["spearman"] == pytest.approx(100 * (17 - 1) / 18)
    assert groups["17 pairs, without fr-pl"]["spearman"] == pytest.approx(100)


def test_other_gold_scores_give_another_fingerprint() -> None:
    assert Sts17Task([_sts("ar-ar", [0, 1])]).fingerprint != Sts17Task([_sts("ar-ar", [0, 2])]).fingerprint


def test_no_pair_is_refused() -> None:
    with pytest.raises(DataError, match="of STS 2017 was chosen"):
        Sts17Task([])


def test_the_real_tracks(assets: Path) -> None:
    task = Sts17Task.load(assets / "data" / "sts17")
    assert [len(one.gold) for one in task.sets] == [250] * 7
    assert all(len(one.sources) == len(one.targets) == 250 for one in task.sets)

    def word_counts(sentences: list[str]) -> np.ndarray:
        """A bag of hashed words, which knows a little about the monolingual tracks."""
        table = np.zeros((len(sentences), 512))
        for row, sentence in enumerate(sentences):
            for word in sentence.lower().split():
                table[row, sum(map(ord, word)) % 512] += 1
        return table

    scores = task.score(word_counts)
    assert scores.languages["en-en"]["spearman"] > 50
    six = "6 tracks, without es-en-wmt"
    assert set(scores.groups) == {"7 tracks", six, "4 cross-lingual tracks", "3 monolingual tracks", "all"}


@pytest.mark.slow
def test_the_untouched_encoder_orders_english_pairs(assets: Path) -> None:
    """A known figure, through tokenizer, packed encoder, mean and Spearman."""
    with tempfile.TemporaryDirectory() as folder:
        unpack = [sys.executable, str(assets / "models" / "unpack.py"), f"{folder}/encoder"]
        subprocess.run(unpack, check=True, stdout=subprocess.DEVNULL)  # an error stands in the report
        embedder = SentenceEmbedder.from_pretrained(f"{folder}/encoder", device="cpu")
        scores = Sts17Task.load(assets / "data" / "sts17", ["en-en"]).score(embedder.encode)
    assert scores.languages["en-en"]["spearman"] == pytest.approx(87.25, abs=0.1)
