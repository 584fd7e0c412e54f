from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent.data.benchmarks.bucc import BuccSet, find_bucc, load_bucc
from hf_xsent.errors import DataError
from hf_xsent.evaluation.mining_f1 import BuccTask
from hf_xsent.mining.calibration import best_threshold, f1_at_threshold
from hf_xsent.mining.margin import MinedPairs


def _mined(scores: list[float]) -> MinedPairs:
    ordered = np.array(sorted(scores, reverse=True), dtype=np.float32)
    numbers = np.arange(len(scores))
    return MinedPairs(numbers, numbers, ordered, ordered, numbers, numbers)


def test_the_threshold_stands_between_the_last_selected_and_the_next() -> None:
    mined = _mined([1.5, 1.4, 1.2, 1.0])
    best = best_threshold(mined, {(0, 0), (1, 1)})
    assert best.threshold == pytest.approx(1.3)
    assert (best.precision, best.recall, best.f1) == (100, 100, 100)


@given(
    scores=st.lists(st.integers(0, 8), min_size=1, max_size=12),
    right=st.sets(st.integers(0, 11), min_size=1),
)
def test_no_other_threshold_is_better(scores: list[int], right: set[int]) -> None:
    mined = _mined([float(score) for score in scores])
    gold = {(number, number) for number in right}
    best = best_threshold(mined, gold)
    for threshold in np.arange(-1, 10, 0.5):
        assert f1_at_threshold(mined, gold, float(threshold)).f1 <= best.f1 + 1e-9


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_a_part_of_the_gold_pairs_measures_the_precision_of_all(share: float) -> None:
    rng = np.random.default_rng(0)
    numbers = np.arange(1500)
    targets = numbers.copy()
    targets[:48] = np.roll(targets[:48], 1)  # 3.2% wrong pairs
    order = rng.permutation(1500)
    scores = np.linspace(1.4, 1.0, 1500)
    mined = MinedPairs(numbers[order], targets[order], scores, scores, numbers, numbers)
    gold = {(int(one), int(one)) for one in rng.choice(1500, int(share * 1500), replace=False)}
    measured = f1_at_threshold(mined, gold, 1.0, complete=False)
    assert measured.precision == pytest.approx(96.8, abs=1.5)
    assert measured.recall == pytest.approx(96.8, abs=2.5)
    best = best_threshold(mined, gold, complete=False)
    assert best.precision > 95 and best.f1 >= measured.f1


def _write(folder: Path, gold: str = "z1\te2\n") -> None:
    (folder / "zh-en.dev.zh").write_text("z1\t你好\nz2\t猫\n", encoding="utf-8")
    (folder / "zh-en.dev.en").write_text("e1\tdog\ne2\thello\n", encoding="utf-8")
    (folder / "zh-en.dev.gold").write_text(gold, encoding="utf-8")


def test_bucc_files_become_numbers(tmp_path: Path) -> None:
    _write(tmp_path)
    bucc = load_bucc(tmp_path, "zh-en", "dev")
    assert (bucc.sources, bucc.targets, bucc.gold) == (["你好", "猫"], ["dog", "hello"], {(0, 1)})
    for path in [*tmp_path.iterdir()]:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        assert find_bucc(tmp_path) == [bucc]  # also if only some are compressed
    (tmp_path / "zh-en.dev.gold.gz").unlink()
    _write(tmp_path)
    (tmp_path / "zh-en.dev.gold").unlink()
    assert load_bucc(tmp_path, "zh-en", "dev").gold == frozenset()


@pytest.mark.parametrize(
    ("pair", "gold", "message"),
    [
        ("zh-en", "z1\te9\n", "gold:1: no sentence has the id 'e9'"),
        ("zh-en", "z1 e2\n", "gold:1: lines must be id<TAB>id"),
        ("fr-en", "", "no such file"),
    ],
)
def test_bad_bucc_files_raise(tmp_path: Path, pair: str, gold: str, message: str) -> None:
    _write(tmp_path, gold)
    with pytest.raises(DataError) as error:
        load_bucc(tmp_path, pair, "dev")
    assert message in str(error.value)


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
    scores = BuccTask([bucc]).score(Model().encode)
    figures = scores.languages["zh-en dev"]
    assert (figures["f1"], figures["found"], figures["gold"]) == (100, 5, 5)
    assert scores.groups == {"all": figures}


# Thresholds of other sets. Sentences are directions in the plane, translations five degrees apart.


def _bucc(pair: str, split: str, count: int, wrong: int = 0) -> BuccSet:
    """So many translations; of the first few the gold file does not know."""
    sources, targets = ([f"{pair} {split} {side} {number}" for number in range(count)] for side in "st")
    gold = frozenset((number, number) for number in range(wrong, count))
    return BuccSet(pair, split, sources, targets, gold)


def _directions(sentences: list[str]) -> np.ndarray:
    places = [(one.split()[2], int(one.split()[3])) for one in sentences]
    angles = np.deg2rad([30 * number + (number + 1) * (side == "t") for side, number in places])
    return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def test_a_threshold_is_chosen_on_the_training_split_and_used_for_the_others() -> None:
    """Pair i is i + 1 degrees apart, so its margin falls with i: a threshold that keeps n pairs keeps the n first."""
    task = BuccTask([_bucc("de-en", "training", 6), _bucc("de-en", "test", 6, wrong=3), _bucc("fr-en", "training", 6)])
    scores = task.score(_directions)
    assert list(scores.languages) == [
        "de-en training",
        "de-en test (training)",
        "fr-en training",
        "de-en training (fr-en)",
        "de-en test (fr-en)",
        "fr-en training (de-en)",
    ]
    training, test = scores.languages["de-en training"], scores.languages["de-en test (training)"]
    assert (training["f1"], training["found"]) == (100, 6)
    assert test["threshold"] == training["threshold"]
    assert (test["found"], test["gold"], test["precision"], test["recall"]) == (6, 3, 50, 100)
    assert scores.groups["others, training (de-en)"] == scores.languages["fr-en training (de-en)"]


@pytest.mark.parametrize("training", ["training", "train"])
def test_an_earlier_split_chooses_only_where_there_is_no_training_set(training: str) -> None:
    dev, test = _bucc("de-en", "dev", 6, wrong=2), _bucc("de-en", "test", 6)
    scores = BuccTask([dev, _bucc("de-en", training, 5), test]).score(_directions)
    assert list(scores.languages) == [f"de-en dev ({training})", f"de-en {training}", f"de-en test ({training})"]
    assert len({figures["threshold"] for figures in scores.languages.values()}) == 1
    assert list(BuccTask([dev, test]).score(_directions).languages) == ["de-en dev", "de-en test (dev)"]


def test_the_mean_of_what_was_measured_is_of_the_last_split_at_own_thresholds() -> None:
    sets = [_bucc("de-en", "training", 6), _bucc("de-en", "test", 6, wrong=3), _bucc("fr-en", "test", 6)]
    scores = BuccTask(sets).score(_directions)
    both = [scores.languages[name]["f1"] for name in ("de-en test (training)", "fr-en test")]
    assert scores.groups["all"]["f1"] == pytest.approx(sum(both) / 2)
    assert both[0] < 100 == both[1]


def test_means_are_given_of_all_four_pairs() -> None:
    pairs = ("de-en", "fr-en", "ru-en", "zh-en")
    scores = BuccTask([_bucc(pair, "training", 5) for pair in pairs]).score(_directions)
    assert scores.groups["4 pairs, training"]["f1"] == 100
    assert "others, training (zh-en)" in scores.groups
    for others in (pairs[1:], (*pairs[1:], "es-en")):
        few = BuccTask([_bucc(pair, "training", 5) for pair in others]).score(_directions)
        assert "4 pairs, training" not in few.groups


def test_sets_that_cannot_be_measured_raise_first() -> None:
    with pytest.raises(DataError, match="de-en, test: there are no gold pairs"):
        BuccTask([_bucc("de-en", "test", 5, wrong=5)])
    with pytest.raises(DataError, match="at least 4 sentences per side"):
        BuccTask([_bucc("de-en", "test", 1)])
    with pytest.raises(DataError, match="of BUCC 2018 was chosen"):
        BuccTask([])


def test_every_split_with_gold_is_found_in_order(tmp_path: Path) -> None:
    for pair, split in (("zh-en", "test"), ("zh-en", "training"), ("de-en", "dev")):
        for language in (*pair.split("-"), "gold"):
            (tmp_path / f"{pair}.{split}.{language}").write_text("1\t1\n")
    (tmp_path / "ru-en.test.ru").write_text("1\t1\n")  # without gold
    assert [(one.pair, one.split) for one in find_bucc(tmp_path)] == [
        ("de-en", "dev"),
        ("zh-en", "training"),
        ("zh-en", "test"),
    ]
    assert [one.pair for one in find_bucc(tmp_path, ["de-en"])] == ["de-en"]
    with pytest.raises(DataError, match="has no 'zh-em', only de-en, zh-en; did you mean 'zh-en'"):
        find_bucc(tmp_path, ["zh-em"])
    with pytest.raises(DataError, match="no such file or folder: nowhere"):
        find_bucc("nowhere")


def test_the_hub_gives_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    _write(tmp_path)
    rows = {"sentence1": [["你好 ", "猫"]], "sentence2": [["dog", "hello"]], "gold": [[[1, 2]]]}
    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda repo: ["zh-en"])
    monkeypatch.setattr(datasets, "load_dataset", lambda repo, config, split, **_: rows)
    (hub,), (local,) = find_bucc("owner/bucc"), find_bucc(tmp_path)
    assert (hub.pair, hub.sources, hub.targets, hub.gold) == (local.pair, local.sources, local.targets, local.gold)
    rows["gold"] = [[[0, 2]]]
    with pytest.raises(DataError, match="gold of zh-en .*counted from 1"):
        find_bucc("owner/bucc")
