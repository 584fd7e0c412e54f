from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent.data.bucc import load_bucc
from hf_xsent.errors import DataError
from hf_xsent.evaluation.mining_f1 import evaluate_bucc
from hf_xsent.mining.calibration import at_threshold, best_threshold
from hf_xsent.mining.margin import MinedPairs


def _mined(scores: list[float]) -> MinedPairs:
    ordered = np.array(sorted(scores, reverse=True), dtype=np.float32)
    numbers = np.arange(len(scores))
    return MinedPairs(numbers, numbers, ordered, ordered, numbers, numbers)


def test_the_threshold_stands_between_the_last_kept_and_the_next() -> None:
    mined = _mined([1.5, 1.4, 1.2, 1.0])
    best = best_threshold(mined, {(0, 0), (1, 1)})
    assert best.threshold == pytest.approx(1.3)
    assert (best.precision, best.recall, best.f1, best.found) == (100, 100, 100, 2)


def test_gold_that_was_not_mined_lowers_recall() -> None:
    best = best_threshold(_mined([1.5, 1.4, 1.2]), {(0, 0), (7, 7)})
    assert (best.precision, best.recall, best.found) == (100, 50, 1)
    assert best.f1 == pytest.approx(100 * 2 / 3)


@given(
    scores=st.lists(st.integers(0, 8), min_size=1, max_size=12),
    right=st.sets(st.integers(0, 11), min_size=1),
)
def test_no_other_threshold_is_better(scores: list[int], right: set[int]) -> None:
    mined = _mined([float(score) for score in scores])
    gold = {(number, number) for number in right}
    best = best_threshold(mined, gold)
    for threshold in np.arange(-1, 10, 0.5):
        assert at_threshold(mined, gold, float(threshold)).f1 <= best.f1 + 1e-9


def _write(folder: Path, gold: str = "z1\te2\n") -> None:
    (folder / "zh-en.dev.zh").write_text("z1\t你好\nz2\t猫\n", encoding="utf-8")
    (folder / "zh-en.dev.en").write_text("e1\tdog\ne2\thello\n", encoding="utf-8")
    (folder / "zh-en.dev.gold").write_text(gold, encoding="utf-8")


def test_bucc_files_become_numbers(tmp_path: Path) -> None:
    _write(tmp_path)
    bucc = load_bucc(tmp_path, "zh-en", "dev")
    assert (bucc.sources, bucc.targets, bucc.gold) == (["你好", "猫"], ["dog", "hello"], {(0, 1)})
    (tmp_path / "zh-en.dev.gold").unlink()
    assert load_bucc(tmp_path, "zh-en", "dev").gold == frozenset()


@pytest.mark.parametrize(
    ("pair", "gold", "told"),
    [
        ("zh-en", "z1\te9\n", "gold:1: no sentence has the id 'e9'"),
        ("zh-en", "z1 e2\n", "gold:1: no id, tab and text"),
        ("fr-en", "", "no such file"),
        ("zhen", "", "BUCC pairs are named like de-en, not 'zhen'"),
    ],
)
def test_bad_bucc_files_are_told(tmp_path: Path, pair: str, gold: str, told: str) -> None:
    _write(tmp_path, gold)
    with pytest.raises(DataError) as error:
        load_bucc(tmp_path, pair, "dev")
    assert told in str(error.value)


def test_translations_are_mined_from_vectors(tmp_path: Path) -> None:
    """Twenty sentences a side, five of them translations: a model that knows them finds them."""
    generator = np.random.default_rng(0)
    sides = {"zh": [f"z{i}" for i in range(20)], "en": [f"e{i}" for i in range(20)]}
    for language, texts in sides.items():
        lines = "".join(f"{text}\t{text}\n" for text in texts)
        (tmp_path / f"zh-en.dev.{language}").write_text(lines)
    (tmp_path / "zh-en.dev.gold").write_text("".join(f"z{i}\te{i + 3}\n" for i in range(5)))
    vectors = {text: generator.standard_normal(16) for texts in sides.values() for text in texts}
    vectors |= {f"e{i + 3}": vectors[f"z{i}"] + 0.1 * generator.standard_normal(16) for i in range(5)}

    class Model:
        def encode(self, sentences: list[str]) -> np.ndarray:
            return np.array([vectors[sentence] for sentence in sentences], dtype=np.float32)

    bucc = load_bucc(tmp_path, "zh-en", "dev")
    best, transferred = (one.measured for one in evaluate_bucc(Model(), bucc, bucc))
    assert best.f1 == 100
    assert best.found == 5
    assert transferred == best
