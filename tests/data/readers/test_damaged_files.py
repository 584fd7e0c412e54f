"""Files in another encoding, and odd links, give an error in one sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_xsent.data.readers.formats import read_linked_pairs, read_pairs
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import DataError


def _valid(source: BitextSource) -> list[tuple[str, str]]:
    return [row[:2] for row in read_linked_pairs(source) if not isinstance(row, DataError)]


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
    assert _valid(source) == []


@pytest.mark.parametrize("charset", ["undefined", "none"])
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
