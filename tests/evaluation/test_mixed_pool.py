"""Mixed pools against a slow count over the whole ranking of each query."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hf_xsent.data.benchmarks.parallel import ParallelSet, load_parallel
from hf_xsent.errors import DataError
from hf_xsent.evaluation.mixed_pool import MixedPoolTask, mixed_pool
from hf_xsent.evaluation.significance import paired_differences
from hf_xsent.evaluation.task import Outcomes
from hf_xsent.evaluation.translation_retrieval import unit

LANGUAGES, LINES = 4, 9


@pytest.fixture
def vectors() -> np.ndarray:
    """Lines with noise, and a direction for each language that pulls its sentences together."""
    generator = np.random.default_rng(0)
    lines, languages = generator.standard_normal((LINES, 6)), 0.8 * generator.standard_normal((LANGUAGES, 1, 6))
    return unit(lines + languages + 0.6 * generator.standard_normal((LANGUAGES, LINES, 6)))


def _slow(vectors: np.ndarray, language: int, line: int) -> list[float]:
    query = vectors[language, line]
    scores = {
        (other, place): float(query @ vectors[other, place])
        for other in range(LANGUAGES)
        for place in range(LINES)
        if (other, place) != (language, line)
    }
    others = [other for other in range(LANGUAGES) if other != language]
    alone = [all(scores[o, line] > scores[o, place] for place in range(LINES) if place != line) for o in others]
    beside = [
        hit and all(scores[o, line] > scores[language, place] for place in range(LINES) if place != line)
        for o, hit in zip(others, alone, strict=True)
    ]
    ranking = sorted(scores, key=lambda place: -scores[place])
    nearest = ranking[: len(others)]
    return [
        np.mean(alone),
        np.mean(beside),
        np.mean([place == line for _, place in nearest]),
        np.mean([other == language for other, _ in nearest]),
        1 + max(ranking.index((other, line)) for other in others),
    ]


def test_each_sentence_has_the_figures_of_its_whole_ranking(vectors: np.ndarray) -> None:
    for language in range(LANGUAGES):
        expected = [_slow(vectors, language, line) for line in range(LINES)]
        np.testing.assert_allclose(mixed_pool(vectors, language), expected)


def test_blocks_of_queries_give_the_same(vectors: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = mixed_pool(vectors, 1)
    monkeypatch.setattr("hf_xsent.evaluation.mixed_pool._NUMBERS_AT_ONCE", 3 * LANGUAGES * LINES)
    np.testing.assert_array_equal(mixed_pool(vectors, 1), expected)


def test_rounding_decides_no_ties() -> None:
    german, english = [[1, 0], [0.8, 0.6]], [[0.8, 0.6], [0.8 - 1e-7, 0.6]]  # the English lines are one sentence
    alone, beside, *_, last = mixed_pool(unit(np.array([*german, *english])).reshape(2, 2, 2), 0)[0]
    assert (alone, beside, last) == (0, 0, 3)  # as near is not nearer


def _task(vectors: np.ndarray) -> tuple[MixedPoolTask, dict[str, np.ndarray]]:
    known = {f"{language} {line}": vectors[language, line] for language in range(LANGUAGES) for line in range(LINES)}
    names = [list(known)[language * LINES : (language + 1) * LINES] for language in range(LANGUAGES)]
    return MixedPoolTask([ParallelSet(f"l{place}", texts) for place, texts in enumerate(names)]), known


def test_the_task_reports_percentages_by_language(vectors: np.ndarray) -> None:
    task, known = _task(vectors)
    scores = task.score(lambda texts: np.stack([known[text] for text in texts]))
    assert list(scores.languages) == ["l0", "l1", "l2", "l3"] and {*scores.languages["l0"]} == {*task.headings}
    for name, rows in scores.outcomes.rows.items():
        figures = scores.languages[name]
        assert (
            figures["beside"]
            == pytest.approx(float(task.metrics(rows)["beside"]))
            == pytest.approx(100 * rows[:, 1].mean())
        )
        assert figures["alone"] >= figures["beside"] and figures["max_rank"] >= LANGUAGES - 1
    assert scores.groups["all"]["own"] == pytest.approx(np.mean([one["own"] for one in scores.languages.values()]))


def test_the_interval_of_the_mean_resamples_the_same_lines_in_all_languages() -> None:
    """With equal rows in all languages, the mean has the interval of each."""
    generator = np.random.default_rng(0)
    sides = []
    for _ in range(2):
        rows = generator.random((200, 5))
        sides.append(Outcomes({"a": rows, "b": rows}, {"all": ["a", "b"]}, parallel=True))
    found = paired_differences(MixedPoolTask.metrics, [sides[0]], [sides[1]])
    assert found["all"] == found["a"] == found["b"]


# Parallel text


def _write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


GERMAN, ENGLISH, FRENCH = "Ja.\n\nNein.\nGut.\n", "Yes.\nEmpty.\nNo.\nGood.\n", "Oui.\nVide.\nNon.\nBon.\n"


@pytest.mark.parametrize(
    ("inner", "names"),
    [
        ("", ("de.txt", "en.txt", "fr.txt")),
        ("", ("newstest2019-ref.de.txt", "newstest2019-src.en.txt", "newstest2019-ref.fr.txt")),
        ("devtest", ("deu_Latn.devtest", "eng_Latn.devtest", "fra_Latn.devtest")),
    ],
)
def test_folders_of_ntrex_and_flores_are_read(tmp_path: Path, inner: str, names: tuple[str, ...]) -> None:
    _write(tmp_path / inner, dict(zip(names, (GERMAN, ENGLISH, FRENCH), strict=True)))
    sets = load_parallel(tmp_path, ["en", "de"])
    assert [one.sentences for one in sets] == [["Yes.", "No.", "Good."], ["Ja.", "Nein.", "Gut."]]
    assert load_parallel(tmp_path)[0].sentences == ["Ja.", "Nein.", "Gut."]
    assert [one.sentences for one in load_parallel(tmp_path, ["en", "fr"], 2)] == [
        ["Yes.", "Empty."],
        ["Oui.", "Vide."],
    ]


def test_a_line_that_repeats_in_all_languages_counts_once(tmp_path: Path) -> None:
    _write(tmp_path, {"de.txt": GERMAN * 2, "en.txt": ENGLISH * 2})
    assert [len(one.sentences) for one in load_parallel(tmp_path)] == [3, 3]


def _languages(source: Path, *codes: str) -> list[str]:
    return [one.language for one in load_parallel(source, codes or None)]


def test_a_code_chooses_the_language_without_region_and_never_one_of_several(tmp_path: Path) -> None:
    names = ("src.eng", "ref.eng-GB", "ref.eng-US", "ref.deu", "ref.zho-CN", "ref.zho-TW", "ref.srp-Latn")
    _write(tmp_path, {f"newstest2019-{name}.txt": f"{name} 1\n{name} 2\n" for name in names})
    assert _languages(tmp_path) == ["deu", "srp-Latn", "zho-CN", "zho-TW", "eng"]
    assert load_parallel(tmp_path, ["en", "de"])[0].sentences == ["src.eng 1", "src.eng 2"]
    assert _languages(tmp_path, "en-GB", "sr", "zh-TW") == ["eng-GB", "srp-Latn", "zho-TW"]
    with pytest.raises(DataError, match="has zho-CN and zho-TW: name one of them instead of zh"):
        load_parallel(tmp_path, ["en", "zh"])


def test_only_files_named_by_a_code_are_languages(tmp_path: Path) -> None:
    _write(tmp_path, {"de.txt": GERMAN, "en.txt": ENGLISH, "README.txt": "Sentences\nof\ntwo\nlanguages\n"})
    assert _languages(tmp_path) == ["de", "en"]
    _write(tmp_path, {"xx.txt": GERMAN})
    with pytest.raises(DataError, match="unknown language code 'xx'"):
        load_parallel(tmp_path)


def test_a_column_of_numbers_is_no_language(tmp_path: Path) -> None:
    (tmp_path / "pool.tsv").write_text("id\tde\ten\n1\tJa.\tYes.\n2\tNein.\tNo.\n", "utf-8")
    with pytest.raises(DataError, match=r"pool.tsv: id has no letters: name the other languages, or drop it"):
        load_parallel(tmp_path / "pool.tsv")
    assert _languages(tmp_path / "pool.tsv", "de", "en") == ["de", "en"]


def test_a_table_of_pairs_is_no_parallel_text(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("Ein langer Satz über das Wetter.\tA long sentence.\nJa.\tYes.\n", "utf-8")
    reason = "pairs.tsv:1: the first line must name a language per column, not 'Ein langer Satz über das Wette'"
    with pytest.raises(DataError, match=f"{reason}: add it, or measure pairs by pairs$"):
        load_parallel(tmp_path / "pairs.tsv")


def test_two_files_of_one_language_are_refused(tmp_path: Path) -> None:
    _write(tmp_path, {"deu_Latn.dev": GERMAN, "deu_Latn.devtest": GERMAN, "eng_Latn.devtest": ENGLISH})
    with pytest.raises(DataError, match=r"deu_Latn\.dev and deu_Latn\.devtest are the same set: keep one of them"):
        load_parallel(tmp_path)


def test_a_table_has_a_column_for_each_language(tmp_path: Path) -> None:
    rows = zip(GERMAN.splitlines(), ENGLISH.splitlines(), strict=True)
    (tmp_path / "pool.tsv").write_text("de\ten\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    assert [one.sentences[1] for one in load_parallel(tmp_path / "pool.tsv")] == ["Nein.", "No."]
    assert [one.language for one in load_parallel(tmp_path / "pool.tsv", ["deu", "en", "de"])] == ["de", "en"]
    with (tmp_path / "pool.tsv").open("a", encoding="utf-8") as file:
        file.write("\n")
    assert _languages(tmp_path / "pool.tsv") == ["de", "en"]
    with (tmp_path / "pool.tsv").open("a", encoding="utf-8") as file:
        file.write("Ende.\n")
    with pytest.raises(DataError, match=r"pool.tsv:7: 1 columns instead of 2, one per language"):
        load_parallel(tmp_path / "pool.tsv")
    (tmp_path / "pool.tsv").write_text("de\ten\tde\n", encoding="utf-8")
    with pytest.raises(DataError, match="pool.tsv:1: two columns are named de"):
        load_parallel(tmp_path / "pool.tsv")


@pytest.mark.parametrize(
    ("files", "languages", "message"),
    [
        ({"de.txt": GERMAN, "en.txt": "Yes.\n"}, None, "has 4 lines in de but 1 in en"),
        ({"de.txt": GERMAN}, None, "needs two or more languages, not de"),
        ({"de.txt": GERMAN, "en.txt": ENGLISH}, ["de", "fr"], "has no 'fr', only de, en"),
        ({"de.txt": "Ja.\n\n", "en.txt": "\nNo.\n"}, None, "fewer than two lines with text in all of de, en"),
        ({"notes": ""}, None, "no files such as de.txt or deu_Latn.devtest"),
    ],
)
def test_text_that_is_not_parallel_is_refused(
    tmp_path: Path, files: dict[str, str], languages: list[str] | None, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        load_parallel(_write(tmp_path, files), languages)
    with pytest.raises(DataError, match="no such file or folder"):
        load_parallel(tmp_path / "nothing")
