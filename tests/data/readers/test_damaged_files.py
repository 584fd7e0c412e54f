"""Files that are damaged, misread or made to do harm give an error in one sentence, in bounded time and memory."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_xsent.data.benchmarks.inference import load_inference
from hf_xsent.data.benchmarks.questions import load_questions
from hf_xsent.data.benchmarks.sts import load_sts22
from hf_xsent.data.readers.formats import read_pairs
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.data.words.links import read_links
from hf_xsent.errors import DataError

DEEP = "[" * 100_000


def _source(folder: Path, name: str, data: bytes | str) -> BitextSource:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return BitextSource("de", str(path))


def test_a_carriage_return_within_a_sentence_ends_no_line(tmp_path: Path) -> None:
    source = _source(tmp_path, "x.tsv", "ein\rHund\ta dog\r\nzwei\u2028drei\ttwo\r\n")
    assert list(read_pairs(source)) == [("ein\rHund", "a dog"), ("zwei\u2028drei", "two")]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize("name", ["x.tsv", "x.jsonl"])
def test_utf_16_without_a_mark_is_not_read_as_utf_8(tmp_path: Path, encoding: str, name: str) -> None:
    data = {"x.tsv": "собака\tdog\n", "x.jsonl": '{"de": "a", "en": "b"}\n'}[name]
    source = _source(tmp_path, name, data.encode(encoding))
    with pytest.raises(DataError, match="NUL characters in the line; .*UTF-16"):
        list(read_pairs(source))
    assert list(read_pairs(source, on_error="skip")) == []


def test_deep_json_is_an_error_in_every_reader(tmp_path: Path) -> None:
    (tmp_path / "de-en.jsonl").write_text(DEEP)
    readers: list[Callable[[Path], Any]] = [
        lambda path: list(read_pairs(BitextSource("de", str(path)))),
        lambda path: list(read_links(path)),
        load_inference,
        load_questions,
        lambda path: load_sts22(path.parent),
    ]
    for read in readers:
        with pytest.raises(DataError, match=r"de-en\.jsonl"):
            read(tmp_path / "de-en.jsonl")


def test_deep_objects_beside_the_columns_are_read(tmp_path: Path) -> None:
    record = '{"de": "a", "en": "b", "x": ' + '{"y":' * 500 + "1" + "}" * 500 + "}"
    assert list(read_pairs(_source(tmp_path, "x.jsonl", record))) == [("a", "b")]


def test_flipped_bits_of_parquet_are_data_errors(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"de": [f"Satz {n}" for n in range(50)], "en": [f"line {n}" for n in range(50)]}), path)
    data = path.read_bytes()
    refused = 0
    for seed in range(150):
        rng, damaged = random.Random(seed), bytearray(data)
        for _ in range(3):
            damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        source = _source(tmp_path, "y.parquet", bytes(damaged))
        try:
            list(read_pairs(source, on_error="skip"))
        except DataError as error:
            refused += 1
            assert "y.parquet" in str(error)
    assert refused > 50


@pytest.mark.parametrize("charset", ["idna", "undefined", "rot13", "none"])
def test_odd_charsets_of_tmx_are_named(tmp_path: Path, charset: str) -> None:
    unit = "<tu><tuv lang='de'><seg>ä</seg></tuv><tuv lang='en'><seg>b</seg></tuv></tu>"
    data = f'<?xml version="1.0" encoding="{charset}"?><tmx><body>{unit}</body></tmx>'.encode()
    with pytest.raises(DataError, match=r"x\.tmx:1: not well-formed XML"):
        list(read_pairs(_source(tmp_path, "x.tmx", data)))


@pytest.mark.parametrize("links", ["9" * 5000 + "-0", " " * 100_000 + "x", 5, [1], {"a": 1}])
def test_odd_links_are_named_in_a_short_message(tmp_path: Path, links: Any) -> None:
    record = json.dumps({"source": "a", "target": "b", "links": links})
    with pytest.raises(DataError, match=r"x\.jsonl:1: links must be written like") as raised:
        list(read_pairs(_source(tmp_path, "x.jsonl", record)))
    assert len(str(raised.value)) < 400


def test_a_long_line_is_not_echoed(tmp_path: Path) -> None:
    source = _source(tmp_path, "x.tsv", "\t".join(f"column{n}" for n in range(100_000)) + "\na\tb\n")
    with pytest.raises(DataError, match="no column 'de'") as raised:
        list(read_pairs(BitextSource("de", source.path, source_column="de", target_column="en")))
    assert len(str(raised.value)) < 700


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 300 + ".tsv", "no such file"),
        ("a\0b.tsv", "no such file"),
        ("pipe.tsv", "not a regular file"),
    ],
)
def test_names_and_links_that_lead_nowhere_are_refused(tmp_path: Path, name: str, message: str) -> None:
    os.mkfifo(tmp_path / "pipe.tsv")
    with pytest.raises(DataError, match=message) as raised:
        list(read_pairs(BitextSource("de", str(tmp_path / name))))
    assert "did you mean" not in str(raised.value)
