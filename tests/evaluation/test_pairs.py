"""Retrieval on own pairs, against a slow recomputation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, DatasetDict

from hf_xsent import evaluate, load_bitext, load_tasks
from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.errors import DataError
from hf_xsent.evaluation import pairs as pairs_module
from hf_xsent.evaluation.pairs import PairsTask, retrieval_by_language
from hf_xsent.evaluation.report import Measurement, compare_with_first, comparison_table

WIDTH = 6


def _vector(text: str, noise: float) -> np.ndarray:
    """Embed ``Hund 3`` near ``dog 3``."""
    language, number = text.split()
    meaning = np.random.default_rng(int(number)).standard_normal(WIDTH)
    return meaning + noise * np.random.default_rng([len(language), *text.encode()]).standard_normal(WIDTH)


def _encode(sentences: Sequence[str], noise: float = 0.5, language: float = 0.3) -> np.ndarray:
    """Embed texts by meaning, noise and language."""
    meanings = np.array([_vector(text, noise) for text in sentences])
    meanings /= np.linalg.norm(meanings, axis=1, keepdims=True)
    languages = [[language * (text.split()[0] == word) for word in ("Hund", "dog")] for text in sentences]
    return np.hstack([meanings, languages]).astype(np.float32)


@pytest.fixture
def task(tmp_path: Path) -> PairsTask:
    lines = [f"Hund {number}\tdog {number}" for number in range(40)] + ["Hund 40\tdog 3", "Hund 5\tdog 41"]
    (tmp_path / "test.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return PairsTask.load([f"de={tmp_path / 'test.tsv'}"], cache_dir=tmp_path / "cache")


def test_accuracies_are_those_of_a_slow_recomputation(task: PairsTask):
    (pairs,) = task.sets
    sides = pairs.sources, pairs.targets
    scores = task.score(_encode)
    metrics, items = scores.languages["de"], [*task.items(scores.outcomes)]
    for direction, (queries, answers) in {"forward": sides, "backward": sides[::-1]}.items():
        of_direction = [item for item in items if item["item"].endswith("→" if direction == "forward" else "←")]
        first, five, margin, beside = [], [], [], []
        candidates, rivals = list(dict.fromkeys(answers)), list(dict.fromkeys(queries))
        x, y, z = (_encode(side).astype(np.float64) for side in (queries, candidates, rivals))
        x, y, z = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y, z))
        cosines, own = x @ y.T, x @ x.T
        for row, answer in enumerate(answers):
            order = np.argsort(-cosines[row], kind="stable")
            first.append(candidates[order[0]] == answer)
            five.append(answer in [candidates[column] for column in order[:5]])
            mean = np.sort(cosines[row])[-4:].mean()
            score = {c: cosines[row, c] / ((mean + np.sort(z @ y[c])[-4:].mean()) / 2) for c in order[:4]}
            margin.append(candidates[max(score, key=score.__getitem__)] == answer)
            others = [n for n in range(len(queries)) if queries[n] != queries[row] and answers[n] != answer]
            beside.append(first[-1] and cosines[row].max() > own[row, others].max())
            found, is_own = candidates[order[0]], own[row, others].max() > cosines[row].max()
            if is_own:
                found = queries[max(others, key=lambda n, row=row: own[row, n])]
            item = {"language": "de", "text": queries[row], "right": answer, "found": found, "correct": beside[-1]}
            assert {**of_direction[row], "item": ""} == {**item, "item": "", "own_language": is_own}
        assert metrics[direction] == pytest.approx(100 * np.mean(first))
        assert metrics[f"{direction}_5"] == pytest.approx(100 * np.mean(five))
        assert metrics[f"{direction}_margin"] == pytest.approx(100 * np.mean(margin))
        assert metrics[f"{direction}_beside"] == pytest.approx(100 * np.mean(beside))
        assert 0 < np.mean(beside) < np.mean(first)
    assert metrics["mean"] == pytest.approx((metrics["forward"] + metrics["backward"]) / 2)
    assert float(task.metrics(scores.outcomes.rows["de"])["beside"]) == pytest.approx(metrics["beside"])
    assert 0 < metrics["mean"] < metrics["mean_5"] < 100


def test_of_a_data_set_the_split_test_is_measured(tmp_path: Path) -> None:
    splits = {split: Dataset.from_dict({"de": [f"{split} a", "b"], "en": ["c", "d"]}) for split in ("train", "test")}
    task = PairsTask.load({"de": DatasetDict(splits)}, cache_dir=tmp_path)
    assert task.sets[0].sources == ["test a", "b"]
    task = PairsTask.load({"de": DatasetDict(held_out=splits["test"])}, cache_dir=tmp_path)  # its only split
    assert task.sets[0].sources == ["test a", "b"]
    task = PairsTask.load({"de": DatasetDict(train=splits["train"], dev=splits["test"])}, cache_dir=tmp_path)
    assert task.sets[0].sources == ["test a", "b"]
    with pytest.raises(DataError, match="no split 'test', only train, other"):
        PairsTask.load({"de": DatasetDict(train=splits["train"], other=splits["test"])}, cache_dir=tmp_path)
    (tmp_path / "folder").mkdir()
    splits["test"].to_parquet(tmp_path / "folder" / "part-0.parquet")
    assert PairsTask.load({"de": tmp_path / "folder"}, cache_dir=tmp_path).sets[0].sources == ["test a", "b"]


def test_copies_of_pairs_and_sentences_change_no_figure_of_the_others(tmp_path: Path) -> None:
    lines = [(f"Hund {number}", f"dog {number}") for number in range(40)]
    copied = [*lines, *lines[:7] * 6]
    once, often = (PairsTask.load({"de": data}, cache_dir=tmp_path).score(_encode) for data in (lines, copied))
    assert often == once and 0 < once.languages["de"]["margin"] < once.languages["de"]["mean_5"] < 100


def test_pairs_in_both_directions_are_measured_as_in_one(tmp_path: Path) -> None:
    lines = [(f"Hund {number}", f"dog {number}") for number in range(40)]
    both = [*lines, *((target, source) for source, target in lines)]
    one, two = (PairsTask.load({"de": data}, cache_dir=tmp_path).score(_encode) for data in (lines, both))
    assert two == one and one.languages["de"]["beside"] > 0


def test_dev_pairs_are_measured_as_own_pairs_are(tmp_path: Path) -> None:
    lines = [
        *((f"Hund {n}", f"dog {n}") for n in range(40)),
        ("Hund 3", "dog 3"),
        ("Hund 7", "dog 8"),
        ("Hund 9", "dog 4"),
    ]
    expected = PairsTask.load({"de": lines}, cache_dir=tmp_path).score(_encode).languages
    sides: Any = tuple(zip(*lines, strict=True))
    assert retrieval_by_language(_Model(), {"de": sides}) == expected and expected["de"]["pairs"] == 42
    in_language = SimpleNamespace(encode=lambda texts, language: _encode(texts) * (1 if language == "en" else 2))
    assert retrieval_by_language(in_language, {"de": sides}, target_language="en") == expected


def test_equal_sentences_are_the_same(tmp_path: Path):
    (tmp_path / "test.tsv").write_text("Hund 1\tdog 1\nHund 2\tdog 1\nHund 1\tdog 1\n", "utf-8")
    task = PairsTask.load({"de": tmp_path / "test.tsv"}, cache_dir=tmp_path / "cache")
    same = task.score(lambda sentences: np.ones((len(sentences), 2), dtype=np.float32))
    assert same.languages["de"]["forward"] == same.languages["de"]["mean_5"] == 100


@pytest.mark.parametrize("copies", [1, 5, 6, 20])
def test_a_nearer_sentence_of_the_same_side_counts_however_often_a_sentence_occurs(copies: int) -> None:
    degrees = {"Ja.": 0, "Yes.": 20, "Jawohl.": 2, "Far.": 120}

    def encode(sentences: Sequence[str]) -> np.ndarray:
        angles = np.deg2rad([degrees[text] for text in sentences])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    sides = zip(*[("Ja.", "Yes.")] * copies, ("Jawohl.", "Far."), strict=True)
    scores = PairsTask([PairSet("de", *map(list, sides))]).score(encode)
    assert scores.languages["de"]["forward_beside"] == 0


def test_a_translation_is_one_candidate_though_it_occurs_on_the_side_of_the_query_too() -> None:
    words = {"Zustand": [1, 0, 0, 0], "Status": [1, 1, 0, 0], "state": [0, 1, 1, 0], "Haus": [0, 0, 0, 1]}
    words["house"] = words["Haus"]
    task = PairsTask([PairSet("de", ["Zustand", "Status", "Haus"], ["Status", "state", "house"])])
    scores = task.score(lambda texts: np.array([words[text] for text in texts], dtype=np.float32))
    found = {item["item"]: (item["text"], item["found"], item["correct"]) for item in task.items(scores.outcomes)}
    assert found["1 →"] == ("Zustand", "Status", True) and found["2 →"] == ("Status", "Status", False)
    assert found["2 ←"] == ("state", "Status", True)


def test_languages_and_max_pairs(tmp_path: Path):
    for language in ("de", "sw"):
        (tmp_path / f"{language}.tsv").write_text("".join(f"{language} {n}\tdog {n}\n" for n in range(9)), "utf-8")
    source = [f"{language}={tmp_path / language}.tsv" for language in ("de", "sw")]
    task = PairsTask.load(source, ["sw"], max_pairs=4, cache_dir=tmp_path / "cache")
    assert [(one.language, len(one.sources)) for one in task.sets] == [("sw", 4)]


class _Model:
    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        return _encode(sentences)


def test_evaluate_measures_pairs_by_name(tmp_path: Path):
    lines = [(f"Hund {number}", f"dog {number}") for number in range(9)]
    (tmp_path / "test.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in lines), "utf-8")
    wanted = None
    data = Dataset.from_list([{"de": source, "en": target} for source, target in lines])
    files = [f"de={tmp_path / 'test.tsv'}"]
    for pairs in (files, files[0], {"de": str(tmp_path / "test.tsv")}, data, {"de": lines}, data.to_pandas()):
        (report,) = evaluate(_Model(), pairs=pairs).reports
        assert report.task == "pairs" and report.languages["de"]["pairs"] == 9
        assert wanted in (None, report.languages)
        wanted = report.languages
    table = [{"abstract": a, "summary": b, "title": "T", "year": "1999"} for a, b in lines]
    columns = ["abstract", "summary"]
    (tmp_path / "wide.csv").write_text(
        f"year,{','.join(columns)}\n" + "".join(f"1,{a},{b}\n" for a, b in lines), "utf-8"
    )
    by_task = {"pairs": {"data": f"de={tmp_path}/wide.csv", "columns": columns}}
    for options in (
        {"pairs": {"de": table}, "columns": columns},
        {"pairs": f"de={tmp_path}/wide.csv", "columns": columns},
        {"tasks": by_task},
        {"tasks": {"pairs": {"de": table}}, "columns": columns},
    ):
        assert evaluate(_Model(), **options).reports[0].languages == wanted


def test_the_verdict_is_about_a_pool_with_the_sentences_of_the_language_of_the_query(task: PairsTask):
    """P@1 among the other language alone shows no difference between these models."""
    measured = []
    for name, language in {"start": 9.0, "trained": 0.0}.items():
        scores = task.score(partial(_encode, noise=0.0, language=language))
        measured.append(Measurement.of(task, {"model": name}, scores))
    start, trained = (one.report.groups["all"] for one in measured)
    assert start["mean"] == trained["mean"] > 95 and start["beside"] < 5 and trained["beside"] > 95
    compared = compare_with_first(task, "start", *measured).report
    table = comparison_table(task, {"start": measured[0].report, "trained": compared})
    assert table.startswith("Pairs, beside own language") and "trained scores higher than start" in table


def test_a_single_task_and_language_may_be_one_word(tmp_path: Path) -> None:
    (tmp_path / "de.tsv").write_text("Ein Hund.\tA dog.\nEine Katze.\tA cat.\n", encoding="utf-8")
    for tasks in (f"pairs={tmp_path}/de.tsv", [f"pairs={tmp_path}/de.tsv"]):
        (task,) = load_tasks(tasks, "de")
        assert [test_set.language for test_set in task.sets] == ["de"]


def test_a_bitext_keeps_its_target_language(tmp_path: Path) -> None:
    french = load_bitext({"de": [("Ein Hund.", "Un chien.")]}, target_language="fr", cleaning=None, cache_dir=tmp_path)
    for data in (french, {"de": french}):
        (task,) = load_tasks({"pairs": data})
        assert [*task.sets] == [PairSet("de", ["Ein Hund."], ["Un chien."])]


def test_pairs_in_memory_stand_in_place_of_tasks():
    """As the data of the evaluators of sentence-transformers."""
    lines = [(f"Hund {number}", f"dog {number}") for number in range(9)]
    data = Dataset.from_list([{"de": source, "en": target} for source, target in lines])
    for pairs, code in ((data, "de"), (lines, "und"), ({"pairs": data}, "de")):
        (report,) = evaluate(_Model(), pairs).reports
        assert report.task == "pairs" and report.languages[code]["pairs"] == 9


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_data_frame_takes_the_place_of_tasks(library: str, pairs: list[tuple[str, str]]) -> None:
    frame = pytest.importorskip(library).DataFrame(dict(zip(("de", "en"), zip(*pairs, strict=True), strict=True)))
    model = SimpleNamespace(encode=lambda texts: np.array([[len(text), 1.0] for text in texts]))
    for own in (frame, {"de": frame}):
        for tasks in ({"pairs": own}, {"pairs": {"data": own, "max_pairs": 3}}):
            (report,) = evaluate(model, tasks).reports
            assert report.languages["de"]["pairs"] == (3 if "data" in tasks["pairs"] else len(pairs))
    (report,) = evaluate(model, frame).reports
    assert report.languages["de"]["pairs"] == len(pairs) and report.data == ""
    rows = dict(zip(("de", "en"), zip(*pairs, strict=True), strict=True))
    splits = DatasetDict(train=Dataset.from_dict(rows), test=Dataset.from_dict(rows).select([0, 1]))
    assert evaluate(model, {"pairs": splits}).reports[0].languages["de"]["pairs"] == 2


@pytest.mark.parametrize("most", [100, 4])
def test_one_pool_has_the_sentences_of_all_files_but_those_paired_with_the_two(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(pairs_module, "_MOST_NEIGHBOURS", most)
    rng = np.random.default_rng(0)
    english = {number: rng.standard_normal(6) for number in range(40)}
    pairs = {
        code: [(f"{code}{n}", f"en{n}") for n in range(start, start + 25)] for code, start in (("de", 0), ("tr", 15))
    }
    pairs["tr"].append(("tr99", "en20"))  # a second translation
    vectors: dict[str, np.ndarray] = {f"en{n}": vector for n, vector in english.items()}
    for source, target in (pair for of_language in pairs.values() for pair in of_language):
        vectors[source] = vectors[target] + 0.7 * rng.standard_normal(6)
    vectors = {text: vector / np.linalg.norm(vector) for text, vector in vectors.items()}

    def encode(texts: Sequence[str]) -> np.ndarray:
        return np.array([vectors[text] for text in texts], dtype=np.float32)

    scores = PairsTask.load({code: [*of_language] for code, of_language in pairs.items()}).score(encode)
    every = [pair for of_language in pairs.values() for pair in of_language]
    for code, of_language in pairs.items():
        hits = []
        for pair in of_language:
            paired = {text for other in every if {*pair} & {*other} for text in other}
            for query, answer in (pair, pair[::-1]):
                found = vectors[query] @ vectors[answer]
                hits.append(
                    all(found > vectors[query] @ vector for text, vector in vectors.items() if text not in paired)
                )
        figures = scores.languages[code]
        assert figures["pool"] == pytest.approx(100 * np.mean(hits)) and 0 < figures["pool"] < figures["beside"]
    (alone,) = PairsTask.load({"de": pairs["de"]}).score(encode).languages.values()
    assert "pool" not in alone


def test_what_is_found_is_stored_with_the_results_and_a_pair_without_a_vector_finds_nothing(
    task: PairsTask, tmp_path: Path
) -> None:
    scores = task.score(lambda texts: _encode(texts) * np.array([[text != "Hund 7"] for text in texts]))
    measurement = Measurement.of(task, {"model": "m"}, scores)
    measurement.write(tmp_path / "measurement.npz")
    items = [*task.items(Measurement.read(tmp_path / "measurement.npz").outcomes)]
    assert items == [*task.items(scores.outcomes)] and len(items) == 2 * len(task.sets[0].sources)
    (item,) = (item for item in items if item["text"] == "Hund 7")
    assert item["found"] is None and not item["correct"]


def test_a_zero_vector_counts_as_wrong_beside_other_languages_too() -> None:
    sets = [PairSet(code, [f"Hund {n}" for n in lines], [f"dog {n}" for n in lines]) for code, lines in _LINES.items()]

    def encode(texts: Sequence[str]) -> np.ndarray:
        return _encode(texts) * np.array([[text != "Hund 7"] for text in texts])

    rows = PairsTask(sets).score(encode).outcomes.rows
    without = [
        PairSet(one.language, *([t for t in side if t.split()[1] != "7"] for side in (one.sources, one.targets)))
        for one in sets
    ]
    expected = PairsTask(without).score(_encode).outcomes.rows
    assert not rows["de"][7, 8:].any() and rows["de"].shape == (20, 10)
    assert (np.delete(rows["de"], 7, 0)[:, 8:] == expected["de"][:, 8:]).mean() > 0.9  # "dog 7" is one more candidate
    assert expected["de"][:, 8:].any()


_LINES = {"de": range(20), "fr": range(20, 40)}
