from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hf_xsent.mining.pipeline import COLUMNS, MiningSettings, mine_files
from hf_xsent.mining.shards import ProcessRunner
from numbered_words import Words

from hf_xsent.data.sentences import load_sentences
from hf_xsent.errors import DataError, OutputError
from hf_xsent.mining import neighbours, pipeline, vectors
from hf_xsent.mining.calibration import read_gold

IDENTITY = {"model": "words"}
pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Lines 0–59 and 40–99: twenty translations; one line twice."""
    (tmp_path / "a.txt").write_text("".join(f"a{i}\n" for i in range(60)) + "a3\n")
    (tmp_path / "b.txt").write_text("".join(f"b{i}\n" for i in range(99, 39, -1)))
    return tmp_path / "a.txt", tmp_path / "b.txt"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_translations_are_written_best_first_with_their_lines(files: tuple[Path, Path], tmp_path: Path) -> None:
    mined = mine_files(*files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work")
    rows = _rows(tmp_path / "out.tsv")
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == len(mined)
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert {row["source"][1:] for row in rows[:20]} == {str(i) for i in range(40, 60)}
    for row in rows[:20]:
        number = int(row["source"][1:])
        assert row["target"] == f"b{number}"
        assert (int(row["source_line"]), int(row["target_line"])) == (number + 1, 100 - number)
        assert (row["source_rank"], row["target_rank"]) == ("1", "1")


def test_a_file_is_not_mined_against_itself(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(files[0])
    for target in (files[0], tmp_path / "link.txt"):
        with pytest.raises(DataError, match=r"a\.txt is both source and target"):
            mine_files(files[0], target, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work")


@pytest.mark.parametrize("settings", [{"top": 7}, {"threshold": 1.3}])
def test_only_the_best_are_kept(files: tuple[Path, Path], tmp_path: Path, settings: dict[str, Any]) -> None:
    mine_files(*files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work", MiningSettings(**settings))
    rows = _rows(tmp_path / "out.tsv")
    assert 0 < len(rows) < 40
    if "top" in settings:
        assert len(rows) == 7
    else:
        assert all(float(row["score"]) >= 1.3 for row in rows)


def test_a_stopped_run_continues_and_encodes_nothing_twice(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline, "_SAMPLE", 1)  # what the estimate encodes is not the matter here
    mine_files(*files, tmp_path / "whole.tsv", Words(), IDENTITY, tmp_path / "whole")
    stopped = Words(fail_after=40)
    with pytest.raises(KeyboardInterrupt):
        mine_files(*files, tmp_path / "out.tsv", stopped, IDENTITY, tmp_path / "work")
    assert not (tmp_path / "out.tsv").exists()
    again = Words()
    mine_files(*files, tmp_path / "out.tsv", again, IDENTITY, tmp_path / "work")
    assert (tmp_path / "out.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()
    assert len(again.encoded) <= 2 + 120 - 32, "two shards were there already"
    third = Words()
    caplog.clear()
    with caplog.at_level("INFO"):
        mine_files(*files, tmp_path / "out.tsv", third, IDENTITY, tmp_path / "work")
    assert len(third.encoded) == 2, "the estimate alone"
    estimate = "encoding: about 0.0 min, mining: about 0.0 min, memory without the model: 512 MiB, disk: 0 MiB"
    assert caplog.text.count(estimate) == 1


def damages(path: Path) -> Iterator[None]:
    """Damage a file of a work folder in several ways."""
    content = path.read_bytes()
    for damaged in (b"", content[: len(content) // 2], bytes(len(content)), b"\x93NUMPY\x01", b"x" * 50):
        path.unlink()  # it may be memory-mapped
        path.write_bytes(damaged)
        yield
        assert path.read_bytes() == content


def test_damaged_vectors_and_neighbours_are_computed_again(
    files: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def mined() -> bytes:
        mine_files(*files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work")
        return (tmp_path / "out.tsv").read_bytes()

    whole = mined()
    arrays = [next((tmp_path / "work").rglob(name)) for name in ("*.npy", "*.npz")]
    for path in arrays:
        for _ in damages(path):
            caplog.clear()
            assert mined() == whole
            assert f"{path} is damaged: it is computed again" in caplog.text
    other = np.load(arrays[0])[:-1]  # vectors of fewer sentences
    np.save(arrays[0], other)
    assert mined() == whole


def test_a_damaged_stamp_is_one_sentence(files: tuple[Path, Path], tmp_path: Path) -> None:
    arguments = *files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work"
    mine_files(*arguments)
    next((tmp_path / "work").rglob("made-from.json")).write_text("{")
    with pytest.raises(OutputError, match="made-from.json.* is damaged: give another --work folder, or delete it"):
        mine_files(*arguments)


def test_a_process_waits_until_the_damaged_shards_of_the_others_are_whole(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = vectors.VectorStore.open(tmp_path, load_sentences(files[0], tmp_path / "sentences"), IDENTITY)
    whole = store.encode(Words())[:]
    store.paths[1].unlink()
    store.paths[1].write_bytes(b"damaged")
    monkeypatch.setattr("time.sleep", lambda _: vectors.EncodeShard(store, 1).run(Words()))  # the other process
    np.testing.assert_array_equal(store.encode(Words(), ProcessRunner(rank=0, count=2))[:], whole)


def test_processes_share_the_work(files: tuple[Path, Path], tmp_path: Path) -> None:
    side = load_sentences(files[0], tmp_path / "sentences")
    store = vectors.VectorStore.open(tmp_path, side, IDENTITY)
    other = Words()
    for number in (1, 3):  # those of the other process
        vectors.EncodeShard(store, number).run(other)
    assert store.missing == 60 - 16 - 12
    model = Words()
    whole = store.encode(model, ProcessRunner(rank=0, count=2))
    assert model.encoded == side.batch(0) + side.batch(2)
    assert whole.shape == (60, 24)
    everything = Words().encode([side[row][0] for row in range(60)])
    np.testing.assert_array_equal(whole[5:50], everything[5:50])
    np.testing.assert_array_equal(whole[np.array([59, 0, 17])], everything[[59, 0, 17]])


def test_vectors_of_another_model_are_not_mixed_in(files: tuple[Path, Path], tmp_path: Path) -> None:
    mine_files(*files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work")
    before = (tmp_path / "out.tsv").read_bytes()
    with pytest.raises(OutputError, match="holds results of another model"):
        mine_files(*files, tmp_path / "out.tsv", Words(), {"model": "other"}, tmp_path / "work")
    assert (tmp_path / "out.tsv").read_bytes() == before


def test_a_full_disk_raises_before_the_work(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(OutputError, match=r"has 1\.0 kB free but the vectors need \d"):
        mine_files(*files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work")
    assert not list((tmp_path / "work").rglob("*.npy"))


def test_a_disk_too_full_for_the_sentences_raises_before_they_are_copied(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(OutputError, match="has 100 bytes free but copies of the sentences need"):
        mine_files(*files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work")
    assert not list((tmp_path / "work").rglob("*.arrow"))


@pytest.mark.parametrize("index", [None, "IVF4,Flat", "IVF4,PQ4x4", "HNSW8"])
def test_the_memory_a_run_takes_is_estimated(files: tuple[Path, Path], tmp_path: Path, index: str | None) -> None:
    if index is not None:
        pytest.importorskip("faiss")
    stores = [
        vectors.VectorStore.open(tmp_path, load_sentences(path, tmp_path / "sentences"), IDENTITY) for path in files
    ]
    settings = MiningSettings(memory_mib=1, k=5, index=index)
    estimate = pipeline.estimate_run(Words(), stores, tmp_path, settings)
    of_index = {
        None: 0,
        "IVF4,Flat": 60 * (4 * 24 + 8) + 60 * 4 * 24,
        "IVF4,PQ4x4": 60 * (2 + 8) + 60 * 4 * 24,
        "HNSW8": 60 * (4 * 24 + 8),
    }
    assert estimate.width == 24
    assert estimate.memory_bytes == 2**20 + 120 * (36 * 5 + 150) + of_index[index]


def test_fewer_sentences_than_neighbours_raise(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("b1\nb2\n")
    with pytest.raises(DataError, match="has 2 different sentences, fewer than k = 4"):
        mine_files(*files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work")


@pytest.mark.parametrize("numbered", [False, True])
def test_gold_pairs_choose_the_threshold(files: tuple[Path, Path], tmp_path: Path, numbered: bool) -> None:
    gold = [(f"{i + 1}\t{100 - i}" if numbered else f"A{i}\tb{i}") for i in range(40, 60)]
    (tmp_path / "gold.tsv").write_text("\n".join(gold))
    settings = MiningSettings(calibrate=str(tmp_path / "gold.tsv"))
    mine_files(*files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work", settings)
    assert {row["source"] for row in _rows(tmp_path / "out.tsv")} == {f"a{i}" for i in range(40, 60)}


def test_some_gold_pairs_choose_the_threshold_and_the_log_states_what_is_assumed(
    files: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "gold.tsv").write_text("".join(f"a{i}\tb{i}\n" for i in range(40, 60, 4)))
    settings = MiningSettings(calibrate=str(tmp_path / "gold.tsv"))
    with caplog.at_level("INFO", "hf_xsent"):
        mined = mine_files(*files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work", settings)
    (message,) = (one.message for one in caplog.records if "threshold" in one.message)
    assert mined is not None and 15 <= len(mined) <= 20
    assert "precision 100.0, recall 100.0, F1 100.0, from 5 of the" in message and "assumes" in message


def test_numbered_gold_may_name_lines_that_were_omitted(
    files: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with files[0].open("a") as file:
        file.write("\n" + "a" * 1001 + "\n  A40 \n")  # lines 62 to 64
    sides = [load_sentences(path, tmp_path / "sentences") for path in files]
    (tmp_path / "gold.tsv").write_text("61\t1\n4\t1\n64\t60\n63\t2\n63\t3\n")
    gold = read_gold(tmp_path / "gold.tsv", *sides, files)
    assert gold == {(3, 0), (40, 59), (-63, 1), (-63, 2)}, "line 61 repeats line 4, line 64 line 41"
    assert [one.message for one in caplog.records] == [
        "2 of 4 gold pairs have a line over the length limit and count as not found: shorten these lines"
    ]
    for number in (62, 65):  # an empty line, and none
        (tmp_path / "gold.tsv").write_text(f"4\t1\n{number}\t1\n")
        with pytest.raises(DataError, match=f"gold.tsv:2: .* has no sentence in line {number}: "):
            read_gold(tmp_path / "gold.tsv", *sides, files)


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ("a1\tb9999\n", "b.txt has no sentence 'b9999'"),
        ("a1 b2\n", "gold.tsv:1: fewer than two columns"),
        ("", "holds no"),
    ],
)
def test_gold_that_does_not_fit_raises(files: tuple[Path, Path], tmp_path: Path, gold: str, message: str) -> None:
    (tmp_path / "gold.tsv").write_text(gold)
    settings = MiningSettings(calibrate=str(tmp_path / "gold.tsv"))
    with pytest.raises(DataError) as error:
        mine_files(*files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work", settings)
    assert message in str(error.value)
    assert not (tmp_path / "out.tsv").exists()


def test_the_scores_are_drawn_with_the_threshold(files: tuple[Path, Path], tmp_path: Path) -> None:
    settings = MiningSettings(plot=str(tmp_path / "scores.svg"), threshold=1.5)
    mine_files(*files, tmp_path / "out.tsv", Words(), IDENTITY, tmp_path / "work", settings)
    picture = ElementTree.parse(tmp_path / "scores.svg").getroot()
    svg = "{http://www.w3.org/2000/svg}"
    drawn = [int(one.text.rsplit(" ", 1)[1]) for one in picture.iter(f"{svg}title")]
    mined = mine_files(*files, tmp_path / "all.tsv", Words(), IDENTITY, tmp_path / "work")
    assert 0 < sum(drawn) <= len(mined)
    assert any(one.text == "1.500" for one in picture.iter(f"{svg}text"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"index": "IVFF"}, "'IVFF' is not a faiss index"), ({"index": "IVF99,Flat"}, "99 cells, but only 60 vectors")],
)
def test_a_wrong_index_raises_before_the_work(
    files: tuple[Path, Path], tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    pytest.importorskip("faiss")
    with pytest.raises(DataError, match=message):
        mine_files(*files, tmp_path / "o.tsv", Words(), IDENTITY, tmp_path / "work", MiningSettings(**settings))
    assert not list((tmp_path / "work").rglob("*.npy"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "k is 0"),
        ({"margin": "ration"}, "unknown margin"),
        ({"top": 0}, "top is 0: keep at least 1"),
        ({"top": -5}, "top is -5"),
        ({"threshold": 1.06, "calibrate": "gold.tsv"}, "threshold is 1.06, but calibrate"),
    ],
)
def test_wrong_settings_raise_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        MiningSettings(**settings)


def test_the_faster_precision_is_chosen_and_the_pairs_are_the_same(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, gain, precision in (("a", 0.25, "float32"), ("b", 4.0, "bfloat16")):
        monkeypatch.setattr(neighbours, "bfloat16_gain", lambda *_, gain=gain: gain)
        assert MiningSettings().search.precision == precision
        mine_files(*files, tmp_path / f"{name}.tsv", Words(), IDENTITY, tmp_path / name)
    scores = [[round(float(row["score"]), 4) for row in _rows(tmp_path / name)] for name in ("a.tsv", "b.tsv")]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("output", "settings", "message"),
    [
        ("folder", {}, "folder cannot be written"),
        ("a.txt/out.tsv", {}, "cannot be written"),
        ("a.txt", {}, "a.txt would overwrite an input"),
        ("folder/../b.txt", {}, "b.txt would overwrite an input"),
        ("gold.tsv", {"calibrate": "gold.tsv"}, "gold.tsv would overwrite an input"),
        ("out.tsv", {"plot": "a.txt/scores.svg"}, "scores.svg cannot be written"),
        ("out.tsv", {"plot": "out.tsv"}, "out.tsv would overwrite an input"),
        ("out.tsv", {"work": "b.txt"}, "b.txt/sentences/lock cannot be written"),
        ("out.tsv", {"plot": "/proc/scores.svg"}, "/proc/scores.svg cannot be written"),
        ("x" * 300 + ".tsv", {}, "cannot be written .*too long"),
    ],
)
def test_an_unwritable_output_raises_before_the_work_and_inputs_stay(
    files: tuple[Path, Path], tmp_path: Path, output: str, settings: dict[str, str], message: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "gold.tsv").write_text("1\t1\n")
    before = {path: path.read_bytes() for path in tmp_path.glob("*.t*")}
    named = {key: str(tmp_path / name) for key, name in settings.items()}
    work = named.pop("work", str(tmp_path / "work"))
    model = Words()
    with pytest.raises(OutputError, match=message):
        mine_files(*files, tmp_path / output, model, IDENTITY, work, MiningSettings(**named))
    assert not model.encoded
    assert {path: path.read_bytes() for path in tmp_path.glob("*.t*")} == before
