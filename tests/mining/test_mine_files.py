from __future__ import annotations

import csv
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from forks import Fork, kill_before_replacing
from numbered_words import Words

from hf_xsent import Encoder, mine_files
from hf_xsent.data import sentences
from hf_xsent.data.readers.formats import read_pairs
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.data.sentences import load_sentences
from hf_xsent.errors import DataError, HfXsentError, RecipeError
from hf_xsent.mining import neighbours
from hf_xsent.mining.calibration import read_gold
from hf_xsent.mining.mine import COLUMNS
from hf_xsent.mining.parquet import TextFile
from hf_xsent.mining.vectors import VectorStore

pytestmark = pytest.mark.usefixtures("small_shards")


def _mine(folder: Path, model: Any = None, output: str = "out.tsv", **settings: Any) -> Any:
    settings.setdefault("work", folder / "work")
    return mine_files(folder / "a.txt", folder / "b.txt", folder / output, model or Words(), **settings)


def _mine_small_shards(folder: Path) -> None:
    sentences.ROWS_PER_BATCH = 16
    _mine(folder)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_translations_are_written_best_first_with_their_lines(folder: Path) -> None:
    mined = _mine(folder)
    rows = _rows(folder / "out.tsv")
    assert tuple(rows[0]) == COLUMNS
    assert str(mined) == f"{len(rows)} pairs, best first, are in {folder / 'out.tsv'}"
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert {row["source"][1:] for row in rows[:20]} == {str(i) for i in range(40, 60)}
    for row in rows[:20]:
        number = int(row["source"][1:])
        assert row["target"] == f"b{number}"
        assert (int(row["source_line"]), int(row["target_line"])) == (number + 1, 100 - number)
        assert (row["source_rank"], row["target_rank"]) == ("1", "1")


def test_mined_pairs_have_the_lines_of_the_files(folder: Path) -> None:
    (folder / "a.txt").write_text("\na3\na3\n" + (folder / "a.txt").read_text())  # lines that are not mined
    mined = _mine(folder).pairs
    lines = [[int(row[f"{side}_line"]) - 1 for row in _rows(folder / "out.tsv")] for side in ("source", "target")]
    assert [mined.source.tolist(), mined.target.tolist()] == lines


def test_parquet_has_the_same_columns_without_pairs(folder: Path) -> None:
    for output, threshold in (("all.parquet", None), ("none.parquet", 9.0)):
        _mine(folder, output=output, threshold=threshold)
    every, none = (pq.read_table(folder / f"{name}.parquet") for name in ("all", "none"))
    assert every.num_rows and not none.num_rows and none.schema == every.schema


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_other_formats_hold_the_same_pairs(folder: Path, name: str) -> None:
    _mine(folder)
    _mine(folder, output=name)
    read = [list(read_pairs(BitextSource("de", str(folder / output), "en"))) for output in ("out.tsv", name)]
    assert read[0] == read[1] and len(read[0]) > 20


def test_a_file_is_not_mined_against_itself(folder: Path) -> None:
    (folder / "link.txt").symlink_to(folder / "a.txt")
    for target in ("a.txt", "link.txt"):
        with pytest.raises(DataError, match=r"a\.txt is both source and target"):
            mine_files(folder / "a.txt", folder / target, folder / "out.tsv", Words())


@pytest.mark.parametrize("settings", [{"top": 7}, {"threshold": 1.3}])
def test_only_the_best_are_written(folder: Path, settings: dict[str, Any]) -> None:
    _mine(folder, **settings)
    rows = _rows(folder / "out.tsv")
    assert 0 < len(rows) < 40
    assert len(rows) == settings.get("top", len(rows))
    assert all(float(row["score"]) >= settings.get("threshold", 0) for row in rows)


def test_a_stopped_run_continues_and_encodes_nothing_twice(folder: Path) -> None:
    _mine(folder, work=folder / "whole", output="whole.tsv")
    with pytest.raises(KeyboardInterrupt):
        _mine(folder, Words(fail_after=40))
    assert not (folder / "out.tsv").exists()
    again = Words()
    _mine(folder, again)
    assert (folder / "out.tsv").read_bytes() == (folder / "whole.tsv").read_bytes()
    assert len(again.encoded) <= 120 - 32, "two shards were there already"
    third = Words()
    _mine(folder, third)
    assert not third.encoded


# One file of sentences a side, two records, four files of vectors a side, a record, sixteen of neighbours, the pairs.
@pytest.mark.slow
@pytest.mark.parametrize("file", [2, 8, 13, 29])
def test_a_run_that_is_killed_continues_to_the_same_end(file: int, folder: Path) -> None:
    """SIGKILL before a file is put in its place: no half is taken for whole, and no whole one is made again."""
    _mine(folder, work=folder / "whole", output="whole.tsv")
    fork = Fork(kill_before_replacing, file, _mine_small_shards, folder, log=folder / "log.txt")
    assert fork.wait() == -signal.SIGKILL, fork.output
    assert not (folder / "out.tsv").exists()

    def times() -> dict[Path, int]:
        return {path: os.stat(path).st_mtime_ns for path in (folder / "work").rglob("*.np[yz]")}

    before = times()
    _mine(folder)
    assert {path: time for path, time in times().items() if path in before} == before
    assert (folder / "out.tsv").read_bytes() == (folder / "whole.tsv").read_bytes()


def test_processes_share_the_work_and_the_first_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert _mine(folder) is None
    assert not (folder / "out.tsv").exists()
    monkeypatch.setenv("RANK", "0")
    first = Words()
    assert len(_mine(folder, first).pairs) == len(_rows(folder / "out.tsv"))
    assert not first.encoded, "the other process has encoded all"


def test_rows_of_several_files_are_read_as_of_one_array(folder: Path) -> None:
    side = load_sentences(folder / "a.txt", folder / "sentences")
    vectors = VectorStore(folder, side, Encoder(Words())).fill()
    expected = Words().encode(side[:60])
    assert vectors.shape == (60, 24)
    np.testing.assert_array_equal(vectors[5:50], expected[5:50])
    np.testing.assert_array_equal(vectors[np.array([59, 0, 17])], expected[[59, 0, 17]])


def test_vectors_of_another_model_or_precision_are_not_mixed_in(folder: Path) -> None:
    class Other(Words):
        def encode(self, texts: list[str]) -> np.ndarray:
            return super().encode(texts)[:, ::-1]

    side = load_sentences(folder / "a.txt", folder / "sentences")
    for model, dtype in ((Words(), "float32"), (Other(), "float32"), (Words(), "float16")):
        vectors = VectorStore(folder, side, Encoder(model), dtype).fill()
        np.testing.assert_array_equal(vectors[:], model.encode(side[:]).astype(dtype))


@pytest.mark.parametrize(
    ("value", "message"), [(1e6, "vector that is not finite in float16"), (1e-9, "zero vector, which has no cosine")]
)
def test_a_vector_that_is_not_finite_or_zero_raises_with_its_line(folder: Path, value: float, message: str) -> None:
    class Overflowing:
        def encode(self, sentences: list[str]) -> np.ndarray:
            return np.array([[value if text == "two" else 1.0] for text in sentences], dtype=np.float32)

    (folder / "c.txt").write_text("one\n\ntwo\n")
    store = VectorStore(folder, load_sentences(folder / "c.txt", folder), Encoder(Overflowing()), "float16")
    with np.errstate(over="ignore"), pytest.raises(DataError, match=rf"^sentence 3 \('two'\) has a {message}"):
        store.fill()


def test_lines_that_are_not_text_raise_or_are_skipped_with_their_numbers(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _mine(folder, output="whole.tsv", work=folder / "whole")
    with (folder / "a.txt").open("ab") as file:
        file.write(b"\xff\n")
    with pytest.raises(DataError, match=r"a.txt:62: not UTF-8"):
        _mine(folder)
    for _ in range(2):  # the second call resumes
        caplog.clear()
        with caplog.at_level("INFO", "hf_xsent"):
            _mine(folder, on_error="skip")
        assert caplog.text.count("a.txt:62: not UTF-8") == 1 and "a.txt: 62 lines, 1 bad, " in caplog.text
    assert (folder / "out.tsv").read_bytes() == (folder / "whole.tsv").read_bytes()


def test_fewer_sentences_than_neighbours_raise(folder: Path) -> None:
    (folder / "b.txt").write_text("b1\nb2\n")
    with pytest.raises(DataError, match="has 2 different sentences, fewer than k = 4"):
        _mine(folder)


@pytest.mark.parametrize("numbered", [False, True])
def test_gold_pairs_choose_the_threshold(folder: Path, numbered: bool) -> None:
    gold = [(f"{i + 1}\t{100 - i}" if numbered else f"A{i}\tb{i}") for i in range(40, 60)]
    (folder / "gold.tsv").write_text("\n".join([*gold, "", ""]))
    with (folder / "a.txt").open("ab") as file:
        file.write(b"\xff\n")
    _mine(folder, calibrate=folder / "gold.tsv", on_error="skip")
    assert {row["source"] for row in _rows(folder / "out.tsv")} == {f"a{i}" for i in range(40, 60)}


def test_a_few_gold_pairs_choose_the_threshold(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "gold.tsv").write_text("".join(f"a{i}\tb{i}\n" for i in range(40, 60, 4)))
    with caplog.at_level("INFO", "hf_xsent"):
        mined = _mine(folder, calibrate=folder / "gold.tsv")
    (message,) = (record.message for record in caplog.records if "threshold" in record.message)
    assert 15 <= len(mined.pairs) <= 20
    assert "precision 100.0, recall 100.0, F1 100.0 on the pairs" in message


def test_gold_pairs_may_have_a_header_such_as_that_of_mined_pairs(folder: Path) -> None:
    _mine(folder, output="mined.tsv")
    header, *rows = (folder / "mined.tsv").read_text().splitlines(keepends=True)
    gold = {"lines.tsv": "source_line\ttarget_line\n41\t60\n", "gold.tsv": header + "".join(rows[:20])}
    for name, text in gold.items():
        (folder / name).write_text(text)
    files = [TextFile(str(folder / name)) for name in ("a.txt", "b.txt")]
    sides = [file.sentences(folder / "sentences") for file in files]
    assert read_gold(folder / "lines.tsv", sides, files) == {(40, 59)}
    rows_of = {(int(row.split("\t")[4]) - 1, int(row.split("\t")[5]) - 1) for row in rows[:20]}
    assert read_gold(folder / "gold.tsv", sides, files) == rows_of


def test_numbered_gold_may_name_repeated_lines_but_no_omitted_ones(folder: Path) -> None:
    files = folder / "a.txt", folder / "b.txt"
    with files[0].open("a") as file:
        file.write("\n" + "a" * 1001 + "\n  A40 \n")  # lines 62 to 64
    sides = [load_sentences(path, folder / "sentences") for path in files]
    (folder / "gold.tsv").write_text("61\t1\n4\t1\n64\t60\n")
    inputs = [TextFile(str(path)) for path in files]
    gold = read_gold(folder / "gold.tsv", sides, inputs)
    assert gold == {(3, 0), (40, 59)}, "line 61 repeats line 4, line 64 line 41"
    for number in (62, 63, 65):  # an empty line, a long one, and none
        (folder / "gold.tsv").write_text(f"4\t1\n{number}\t1\n")
        with pytest.raises(DataError, match=f"gold.tsv:2: .* has no sentence in line {number} "):
            read_gold(folder / "gold.tsv", sides, inputs)


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ("a1\tb9999\n", "b.txt has no sentence 'b9999'"),
        ("a1 b2\n", "gold.tsv:1: fewer than 2 columns"),
        ("", "holds no"),
        ("\n\n", "holds no"),
        ("a1\tb90\na2\tb80\n", "no gold pair was mined, so no threshold can be chosen: check the gold pairs"),
    ],
)
def test_gold_that_does_not_fit_raises(folder: Path, gold: str, message: str) -> None:
    (folder / "gold.tsv").write_text(gold)
    with pytest.raises(DataError, match=message):
        _mine(folder, calibrate=folder / "gold.tsv")
    assert not (folder / "out.tsv").exists()


@pytest.mark.parametrize("name", ["mined.parquet", "gold.csv"])
def test_gold_in_another_format_is_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"PAR1\0a1,b1\n")
    with pytest.raises(DataError, match=f"{name} is not a TSV: give gold pairs as two texts or two line numbers"):
        _mine(folder, calibrate=folder / name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "k 0 is not at least 1"),
        ({"margin": "ration"}, "margin 'ration' is unknown: use ratio, distance, absolute"),
        ({"top": -5}, "top -5 is not at least 1"),
        ({"threshold": 1.06, "calibrate": "gold.tsv"}, "threshold"),
        ({"probes": 8}, "probes is for IVF indexes"),
        ({"probes": 8, "index": "HNSW32"}, "probes is for IVF indexes"),
    ],
)
def test_wrong_settings_raise_before_the_work(folder: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        _mine(folder, None, **settings)
    assert not (folder / "work").exists()


def test_the_faster_precision_is_chosen_and_the_pairs_are_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = []
    for gain, precision in ((0.25, "float32"), (4.0, "bfloat16")):
        monkeypatch.setattr(neighbours, "bfloat16_gain", lambda *_, gain=gain: gain)
        neighbours.search_precision.cache_clear()
        assert neighbours.search_precision() == precision
        _mine(folder, work=folder / precision)
        scores.append([round(float(row["score"]), 4) for row in _rows(folder / "out.tsv")])
    neighbours.search_precision.cache_clear()
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("output", "settings", "message"),
    [
        ("folder", {}, "folder cannot be written"),
        ("a.txt/out.tsv", {}, "a.txt is a file, not a folder"),
        *(
            ("x.tsv", {name: "a.txt/x"}, "a.txt is a file, not .*: choose another output, work")
            for name in ("work", "vectors")
        ),
        ("folder/../b.txt", {}, "b.txt would overwrite an input"),
        ("gold.tsv", {"calibrate": "gold.tsv"}, "gold.tsv would overwrite an input"),
        ("out.tsv", {"work": "b.txt"}, "b.txt is a file, not a folder"),
        ("out.tsv.xz", {}, "compressed file: name the output without .xz"),
        ("out.csv", {}, "as CSV: name the output .tsv, .jsonl or .parquet"),
        ("x" * 300 + ".tsv", {}, "too long: .*xxx"),
    ],
)
def test_an_unwritable_output_raises_before_the_work_and_inputs_stay(
    folder: Path, output: str, settings: dict[str, str], message: str
) -> None:
    (folder / "folder").mkdir()
    (folder / "gold.tsv").write_text("1\t1\n")
    before = {path: path.read_bytes() for path in folder.glob("*.t*")}
    model = Words()
    with pytest.raises((HfXsentError, OSError), match=message):
        _mine(folder, model, output, **{key: folder / name for key, name in settings.items()})
    assert not model.encoded
    assert {path: path.read_bytes() for path in folder.glob("*.t*")} == before
