from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from hf_xsent.data.benchmarks.sts import load_sts17, load_sts22
from hf_xsent.errors import DataError


@pytest.fixture
def tracks(tmp_path: Path) -> Path:
    for track, gold in (("1.ar-ar", "0\n2.5\n"), ("6.tr-en", "5\n1\n")):
        (tmp_path / f"STS.input.track{track}.txt").write_text("eins\tone \nzwei\ttwo\n", encoding="utf-8")
        (tmp_path / f"STS.gs.track{track}.txt").write_text(gold)
    return tmp_path


def test_tracks_are_found_by_their_languages(tracks: Path) -> None:
    first, second = load_sts17(tracks)
    assert (first.language, first.sources, first.targets, first.gold) == (
        "ar-ar",
        ["eins", "zwei"],
        ["one", "two"],
        [0, 2.5],
    )
    assert [test_set.language for test_set in load_sts17(tracks, ["tr-en", "ar-ar"])] == ["tr-en", "ar-ar"]
    assert second.gold == [5, 1]


def test_the_last_half_of_track_6_has_no_gold(tracks: Path) -> None:
    (tracks / "STS.input.track6.tr-en.txt").write_text("".join(f"a{number}\tb\n" for number in range(500)))
    (tracks / "STS.gs.track6.tr-en.txt").write_text("".join(f"{number % 5}\n" for number in range(250)))
    (turkish,) = load_sts17(tracks, ["tr-en"])
    assert (len(turkish.sources), turkish.sources[-1], len(turkish.gold)) == (250, "a249", 250)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("STS.gs.track1.ar-ar.txt", "1\n2\n3\n", "has 3 gold scores for the 2 pairs"),
        ("STS.gs.track6.tr-en.txt", "1\n", "has 1 gold scores for the 2 pairs"),
        ("STS.gs.track1.ar-ar.txt", "1\nviel\n", "ar-ar.txt:2: a gold score is 'viel', not a finite number"),
        ("STS.gs.track1.ar-ar.txt", "1\nnan\n", "STS.gs.track1.ar-ar.txt:2: a gold score is 'nan'"),
        ("STS.input.track1.ar-ar.txt", "eins one\nzwei\ttwo\n", "ar-ar.txt:1: lines must be sentence<TAB>sentence"),
    ],
)
def test_bad_files_raise(tracks: Path, file: str, text: str, message: str) -> None:
    (tracks / file).write_text(text)
    with pytest.raises(DataError) as error:
        load_sts17(tracks)
    assert message in str(error.value)


def test_what_is_not_there_raises(tracks: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no 'ar-am', only ar-ar, tr-en; did you mean 'ar-ar'"):
        load_sts17(tracks, ["ar-am"])
    with pytest.raises(DataError, match="has no 'es-es', only ar-ar, tr-en"):
        load_sts17(tracks, ["es-es"])
    (tracks / "STS.gs.track1.ar-ar.txt").unlink()
    with pytest.raises(DataError, match=r"no such file: .*STS\.gs\.track1"):
        load_sts17(tracks)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no files such as STS.input"):
        load_sts17(tmp_path / "empty")
    with pytest.raises(DataError, match="has no files such as de-en.jsonl"):
        load_sts22(tmp_path / "empty")
    with pytest.raises(DataError, match="no such file or folder: nowhere"):
        load_sts22("nowhere")


def _rows() -> list[dict[str, object]]:
    return [
        {"sentence1": "eins", "sentence2": "one", "score": 4},
        {"sentence1": "zwei", "sentence2": "three ", "score": 1.5},
    ]


def test_sts22_is_read_from_json_lines(tmp_path: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in _rows())
    (tmp_path / "de-en.jsonl").write_text(text)
    with gzip.open(tmp_path / "ar.jsonl.gz", "wt") as file:
        file.write(text)
    for name in ("en-de", "ar-pt", "train", "gold_scores"):  # other languages, and files that name none
        (tmp_path / f"{name}.jsonl").write_text(text)
    arabic, german, *others = load_sts22(tmp_path)
    assert [arabic.language, german.language, *(other.language for other in others)] == [
        "ar",
        "de-en",
        "ar-pt",
        "en-de",
    ]
    assert (german.sources, german.targets, german.gold) == (["eins", "zwei"], ["one", "three"], [4, 1.5])
    (tmp_path / "de-en.jsonl").write_text(text + '{"sentence1": "drei"}\n')
    with pytest.raises(DataError, match=r"de-en\.jsonl:3: not a JSON object with sentence1, sentence2 and score"):
        load_sts22(tmp_path, ["de-en"])


def test_a_gold_score_that_is_not_finite_raises_with_its_line(tmp_path: Path) -> None:
    rows = [*_rows(), {"sentence1": "drei", "sentence2": "three", "score": float("nan")}]
    (tmp_path / "de-en.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    with pytest.raises(DataError, match=r"de-en\.jsonl:3: a gold score is nan"):
        load_sts22(tmp_path)


@pytest.mark.parametrize("missing", [None, 7])
def test_a_sentence_that_is_missing_raises(tmp_path: Path, missing: object) -> None:
    rows = [*_rows(), {"sentence1": "drei", "sentence2": missing, "score": 1}]
    (tmp_path / "de-en.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=f"de-en.jsonl:{len(rows)}: a sentence is not text but {missing}"):
        load_sts22(tmp_path)


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "de.jsonl").write_text("")
    with pytest.raises(DataError, match=r"de\.jsonl has no pairs: download it again"):
        load_sts22(tmp_path)


def test_the_hub_gives_the_same_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    columns = {key: [row[key] for row in _rows()] for key in _rows()[0]}
    monkeypatch.setattr(datasets, "load_dataset", lambda repo, config, split, **_: columns)
    (tmp_path / "de-en.jsonl").write_text("".join(json.dumps(row) + "\n" for row in _rows()))
    assert load_sts22("owner/sts22", ["de-en"]) == load_sts22(tmp_path)
    assert [test_set.language for test_set in load_sts17("owner/sts17", ["ar-en"])] == ["ar-en"]
    with pytest.raises(DataError, match="has no 'es-en-wmt'"):
        load_sts17("owner/sts17", ["es-en-wmt"])
