from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import struct
import tracemalloc
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.readers.formats import read_linked_pairs, read_pairs
from hf_xsent.data.readers.resolving import resolve_sources
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import DataError

Pairs = list[tuple[str, str]]
PAIRS: Pairs = [
    ("Guten Tag", "Good day"),
    ("Wie geht’s?\u2028Gut.\rJa.", "How are you? Fine."),
    ("„Ja“ \\n", 'He said "yes"'),
]

# Any text that is not empty once stripped; a line feed and (at its ends) white space are what TSV cannot hold.
_characters = st.characters(exclude_categories=("Cs", "Cc"))
_text = st.text(_characters, min_size=1, max_size=30).map(str.strip).filter(bool)
_pairs = st.lists(st.tuples(_text, _text), min_size=1, max_size=5)


def _zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress, ".zst": _zstd,
}  # fmt: skip


def _tsv(pairs: Pairs) -> bytes:
    return "".join(f"{source}\t{target}\n" for source, target in pairs).encode()


def _jsonl(pairs: Pairs) -> bytes:
    return "".join(json.dumps({"de": source, "en": target}) + "\n" for source, target in pairs).encode()


def _po_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _po(pairs: Pairs) -> bytes:
    header = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    body = "".join(f"#: a.c:1\nmsgid {_po_string(target)}\nmsgstr {_po_string(source)}\n\n" for source, target in pairs)
    return (header + body).encode()


def _tmx(pairs: Pairs) -> bytes:
    units = "".join(
        f'<tu><tuv xml:lang="en-GB"><seg>{escape(target)}</seg></tuv>'
        f'<tuv xml:lang="fr"><seg>x</seg></tuv><tuv xml:lang="de-AT"><seg>{escape(source)}</seg></tuv></tu>\n'
        for source, target in pairs
    )
    return f'<?xml version="1.0"?>\n<tmx version="1.4"><body>\n{units}</body></tmx>'.encode()


def _mo(pairs: Pairs, order: str = "<", header: str = "") -> bytes:
    messages = [(b"", b"Content-Type: text/plain; charset=UTF-8\n" + header.encode())]
    messages += [(target.encode(), source.encode()) for source, target in pairs]
    head, strings = 28 + 16 * len(messages), b""
    tables: list[list[tuple[int, int]]] = [[], []]
    for message in messages:
        for table, text in zip(tables, message, strict=True):
            table.append((len(text), head + len(strings)))
            strings += text + b"\0"
    numbers = [0x950412DE, 0, len(messages), 28, 28 + 8 * len(messages), 0, 0]
    numbers += [number for table in tables for entry in table for number in entry]
    return struct.pack(f"{order}{len(numbers)}I", *numbers) + strings


WRITERS = {"tsv": _tsv, "jsonl": _jsonl, "po": _po, "tmx": _tmx, "mo": _mo}


def _valid(source: BitextSource) -> list[tuple[str, str]]:
    return [row[:2] for row in read_linked_pairs(source) if not isinstance(row, DataError)]


def _source(path: Path, **options: object) -> BitextSource:
    return BitextSource("de", str(path), **options)  # type: ignore[arg-type]


def _file(folder: Path, name: str, data: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=_pairs)
def test_every_text_survives_every_format_and_compression(tmp_path: Path, kind: str, suffix: str, pairs: Pairs) -> None:
    if kind == "tmx":  # XML has no place for these
        pairs = [pair for pair in pairs if not any(ord(c) in (0xFFFE, 0xFFFF) for text in pair for c in text)]
    path = _file(tmp_path, f"pairs.{kind}{suffix}", COMPRESS[suffix](WRITERS[kind](pairs)))
    assert list(read_pairs(_source(path))) == pairs


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_moses_pair_is_two_files_joined_by_a_comma(tmp_path: Path, suffix: str) -> None:
    for code, side in (("deu", 0), ("en", 1)):
        text = "".join(pair[side] + "\n" for pair in PAIRS).encode()
        _file(tmp_path, f"OPUS.de-en.{code}{suffix}", COMPRESS[suffix](text))
    files = [f"{tmp_path}/OPUS.de-en.{code}{suffix}" for code in ("deu", "en")]
    for names in (files, files[::-1]):  # by their codes
        assert list(read_pairs(_source(Path(",".join(names))))) == PAIRS
    with pytest.raises(DataError, match=f"OPUS.de-en; join two files by a comma, such as {','.join(files)}"):
        list(read_pairs(_source(tmp_path / "OPUS.de-en")))


def test_parquet_and_datasets_flat_and_in_opus_style(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    flat = datasets.Dataset.from_dict({"id": [1, 2, 3], "de": [p[0] for p in PAIRS], "en": [p[1] for p in PAIRS]})
    opus = datasets.Dataset.from_dict({"translation": [{"de": source, "en": target} for source, target in PAIRS]})
    for name, data in (("flat", flat), ("opus", opus)):
        (tmp_path / name / "parquet").mkdir(parents=True)
        data.to_parquet(str(tmp_path / name / "parquet" / "train.parquet"))
        data.save_to_disk(str(tmp_path / name / "saved"))
        datasets.DatasetDict(train=data).save_to_disk(str(tmp_path / name / "splits"))
        for path in ("parquet/train.parquet", "parquet", "saved", "splits", "splits/train"):
            (((code, (source,)),)) = resolve_sources(str(tmp_path / name / path)).items()
            assert code == "de" and list(read_pairs(source)) == PAIRS
    with pytest.raises(
        DataError, match=r"no split 'dev', only train: give the folder or file of one, .*data\['train'\]"
    ):
        list(read_pairs(_source(tmp_path / "flat" / "splits", split="dev")))


def test_a_column_of_numbers_below_an_unknown_header_is_no_side(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("sent_id\tenglisch\tdeutsch\n" + "3\tA dog.\tEin Hund.\n" * 9, "utf-8")
    with pytest.raises(
        DataError, match=r"the source column has no letters in the first 10 pairs \('sent_id', '3', '3'\)"
    ):
        list(read_pairs(BitextSource("de", str(tmp_path / "a.tsv"))))


def test_sides_of_tmx_whose_languages_are_not_stated_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "m.tmx").write_text(
        '<tmx><body><tu><tuv xml:lang="de"><seg>ein Hund</seg></tuv><tuv xml:lang="fr"><seg>un chien</seg></tuv></tu>'
        "</body></tmx>", "utf-8",
    )  # fmt: skip
    assert list(read_pairs(BitextSource("und", str(tmp_path / "m.tmx"), "und"))) == [("ein Hund", "un chien")]


def test_the_source_of_a_tmx_of_several_languages_must_be_stated(tmp_path: Path) -> None:
    segments = "".join(
        f'<tuv xml:lang="{code}"><seg>{code}</seg></tuv>' for code in ("de-DE", "de-AT", "en-US", "fr-FR")
    )
    path = tmp_path / "m.tmx"
    path.write_text(f"<tmx><body><tu>{segments}</tu></body></tmx>", "utf-8")
    assert list(read_pairs(BitextSource("fr", str(path)))) == [("fr-FR", "en-US")]
    with pytest.raises(DataError, match="m.tmx:1: the unit has de-DE and de-AT and fr-FR besides en-US: state the lan"):
        list(read_pairs(BitextSource("und", str(path))))
    path.write_text(path.read_text("utf-8").replace("fr-FR", "de"), "utf-8")
    assert list(read_pairs(BitextSource("und", str(path)))) == [("de-DE", "en-US")]


@pytest.mark.parametrize("given", ["pairs.jsonl", "pairs.parquet", "saved", "saved as numpy"])
def test_links_and_negatives_are_read_from_every_format_of_records(tmp_path: Path, given: str) -> None:
    datasets = pytest.importorskip("datasets")
    records = [
        {"source": "ein Hund", "target": "a dog", "links": "0-0 1-1", "source_negatives": ["Katze"], "license": None},
        {"source": "ein Ei", "target": "an egg", "links": None, "source_negatives": None, "license": "CC0"},
    ]
    data = datasets.Dataset.from_list(records)
    data.to_json(str(tmp_path / "pairs.jsonl"))
    data.to_parquet(str(tmp_path / "pairs.parquet"))
    data.save_to_disk(str(tmp_path / "saved"))
    data.with_format("numpy").save_to_disk(str(tmp_path / "saved as numpy"))
    rows = list(read_linked_pairs(_source(tmp_path / given)))
    assert rows == [
        ("ein Hund", "a dog", "0-0 1-1", ["Katze"], None, None, None),
        ("ein Ei", "an egg", None, None, None, None, "CC0"),
    ]
    if given == "pairs.parquet":
        datasets.Dataset.from_list([records[0] | {"links": "0-9"}]).to_parquet(str(tmp_path / "pairs.parquet"))
        with pytest.raises(DataError, match=r"pairs\.parquet:1: the link 0-9 is outside the target"):
            list(read_pairs(_source(tmp_path / "pairs.parquet")))


@pytest.mark.parametrize("columns", [("target", "source"), (1, 0)])
def test_links_and_negatives_are_exchanged_with_the_sides(tmp_path: Path, columns: tuple[int | str, int | str]) -> None:
    record = {"source": "a dog", "target": "ein Hund", "links": "0-0 0-1", "source_negatives": ["a cat"]}
    path = _file(tmp_path, "pairs.jsonl", json.dumps(record))
    rows = list(read_linked_pairs(_source(path, columns=columns)))
    assert rows == [("ein Hund", "a dog", "0-0 1-0", None, ["a cat"], None, None)]


@pytest.mark.parametrize("columns", [None, ("source", "target")])
def test_lines_without_a_tab_are_named_also_with_names_of_columns(tmp_path: Path, columns: Any) -> None:
    path = _file(tmp_path, "pairs.txt", "source,target\nein Hund,a dog\n")
    with pytest.raises(DataError, match=r"pairs\.txt:1: no column 1 .*since the line has 1"):
        list(read_pairs(_source(path, columns=columns)))


def test_tsv_columns_by_number_and_name(tmp_path: Path) -> None:
    path = _file(tmp_path, "x.tsv", "\ufeffid\tenglish\tgerman\r\n7\tday\t Tag \r\n")
    assert list(read_pairs(_source(path, columns=("german", "english")))) == [("Tag", "day")]
    assert list(read_pairs(_source(path, columns=(2, 1)))) == [("Tag", "day")]
    with pytest.raises(DataError, match=r"x\.tsv: no column 'germann'.*'german'"):
        list(read_pairs(_source(path, columns=("germann", "english"))))
    with pytest.raises(DataError, match=r"no column 'source', only .*; without a header, give numbers"):
        list(read_pairs(_source(path, columns=("source", "english"))))


def test_columns_of_one_of_several_files_are_stated_as_its_error_says(tmp_path: Path) -> None:
    german = _file(tmp_path, "f.de.tsv", "Mine\tTheirs\nEin Hund läuft.\tA dog runs.\n")
    turkish = _file(tmp_path, "f.tr.tsv", "Merhaba dünya.\tHello world.\n")
    data = {"de": str(german), "tr": str(turkish)}
    with pytest.raises(DataError, match=r"f\.tr\.tsv: no column 'Mine', .*; for one of several files, de=0,1"):
        load_bitext(data, columns=["Mine", "Theirs"], cleaning=None, cache_dir=tmp_path / "cache")
    bitext = load_bitext(data, columns=["de=Mine,Theirs", "tr=0,1"], cleaning=None, cache_dir=tmp_path / "cache")
    assert bitext.languages == {"de": 1, "tr": 1}


def test_parquet_with_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    offsets, text = (pa.py_buffer(part) for part in (bytes([0, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0]), b"ab\xff\xfe"))
    pq.write_table(
        pa.table({"source": pa.Array.from_buffers(pa.string(), 2, [None, offsets, text]), "target": ["x", "y"]}),
        tmp_path / "bad.parquet",
    )
    with pytest.raises(DataError, match=r"bad\.parquet: not a readable Parquet file \(.*utf-8"):
        list(read_pairs(_source(tmp_path / "bad.parquet")))


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_file_may_be_an_array_of_records(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "de.json"
    text = json.dumps([{"de": "Hündin", "en": "dog"}, {"de": 1, "en": "two"}], indent=indent, ensure_ascii=False)
    path.write_text(f"\ufeff\n{text}\n", encoding="utf-8")
    pair, error = read_linked_pairs(_source(path))
    assert pair[:2] == ("Hündin", "dog") and "de.json:2: the source side is not text" in str(error)
    path.write_text(text[:-4])
    with pytest.raises(DataError, match=r"de.json: not a JSON array or object \(.+\); write \[{...}, {...}\]"):
        list(read_pairs(_source(path)))
    path.write_text('{"de": "Hund", "en": "dog"}\n')
    assert list(read_pairs(_source(path))) == [("Hund", "dog")]


def test_jsonl_columns_by_dotted_name_and_by_default(tmp_path: Path) -> None:
    records = [
        {"translation": {"de": "Tag", "en": "day"}},
        {"source": "Tag", "target": "day"},
        {"a": {"b": "Tag"}, "c": "day", "d": "night"},
    ]
    sources = [_source(_file(tmp_path, f"{n}.jsonl", json.dumps(record))) for n, record in enumerate(records)]
    assert list(read_pairs(sources[0])) == list(read_pairs(sources[1])) == [("Tag", "day")]
    named = BitextSource("de", sources[2].path, columns=("a.b", "c"))
    assert list(read_pairs(named)) == [("Tag", "day")]
    with pytest.raises(DataError, match="cannot choose among the columns a.b, c, d; state the two .* as columns"):
        list(read_pairs(sources[2]))


def test_po_skips_untranslated_messages_and_reads_plurals(tmp_path: Path) -> None:
    path = _file(
        tmp_path, "x.po",
        'msgid ""\nmsgstr "Plural-Forms: nplurals=2;\\n"\n\n'
        '#, fuzzy, c-format\n#| msgid "old"\nmsgid "fuzzy"\nmsgstr "unscharf"\n\n'
        'msgid "none"\nmsgstr ""\n\n#~ msgid "gone"\n#~ msgstr "fort"\n\n'
        '#, fuzzy\n#~ msgid "old"\n#~ msgstr "alt"\n'
        'msgctxt "menu"\nmsgid ""\n"long "\n"line"\n'
        'msgstr "lange\\t\\"Zeile\\" ä"\n\nmsgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] "eine Datei"\n'
        'msgstr[1] "%d Dateien"\n',
    )  # fmt: skip
    expected = [('lange\t"Zeile" ä', "long line"), ("eine Datei", "one file"), ("%d Dateien", "%d files")]
    assert list(read_pairs(_source(path))) == expected


def test_mo_of_either_byte_order_with_context_and_plurals(tmp_path: Path) -> None:
    pairs = [("Öffnen", "menu\x04Open"), ("eine Datei\0%d Dateien", "one file\0%d files"), ("ファイル", "a\0b")]
    for order in "<>":
        path = _file(tmp_path, "x.mo", _mo(pairs, order))
        expected = [("Öffnen", "Open"), ("eine Datei", "one file"), ("%d Dateien", "%d files"), ("ファイル", "a")]
        assert list(read_pairs(_source(path))) == expected


def test_an_unknown_entity_and_missing_languages_of_tmx_are_errors(tmp_path: Path) -> None:
    path, english = tmp_path / "m.tmx", "<tuv xml:lang='en'><seg>b</seg></tuv>"
    unit = f"<tu><tuv xml:lang='{{}}'><seg>{{}}</seg></tuv>{english}</tu>"
    for doctype in ("", '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'):
        path.write_text(f"{doctype}<tmx><body>\n{unit.format('fr', 'caf&eacute;')}</body></tmx>", "utf-8")
        with pytest.raises(DataError, match="m.tmx:2: not well-formed XML .undefined entity"):
            list(read_pairs(BitextSource("fr", str(path))))
    path.write_text(f"<tmx><body>{unit.format('fr', 'a')}</body></tmx>", "utf-8")
    with pytest.raises(DataError, match="has no unit in both de and en, only in fr, en: state two of these"):
        list(read_pairs(BitextSource("de", str(path))))


def test_a_row_of_csv_with_a_bad_line_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    for row in (
        b'"Hallo\nb\xe4d nicht\nWelt","Hello\nnot\nworld"',
        b'"B\xe4d\nnicht","a"',
        b'"nicht\nb\xe4\0d\xe4",Hello',
    ):
        path.write_bytes(b"Eins;Zwei,One\n" + row + b"\nGuten Tag,Good day\n")
        bitext = load_bitext(f"de={path}", cleaning=None, on_error="skip", cache_dir=tmp_path)
        assert bitext.pairs("de") == (["Eins;Zwei", "Guten Tag"], ["One", "Good day"])
        assert bitext.report.languages["de"].bad == 1
        with pytest.raises(DataError, match=r"q.csv:[23]: .*(UTF-8|NUL)"):
            load_bitext(f"de={path}", cleaning=None, cache_dir=tmp_path)
    path.write_bytes(b'source,target\n"Hallo\nb\xe4d,Hello\nGuten Tag,Good day\n')
    with pytest.raises(DataError, match=r"q.csv:3: .*UTF-8"):
        load_bitext(f"de={path}", cleaning=None, on_error="skip", cache_dir=tmp_path)


def test_tmx_reads_words_not_codes_and_the_first_region(tmp_path: Path) -> None:
    path = _file(
        tmp_path, "x.tmx",
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx><body><tu>'
        '<tuv lang="EN"><seg>Big <bpt i="1">&lt;b></bpt><hi>day</hi></seg></tuv>'
        '<tuv xml:lang="de-DE"><seg>Großer Tag</seg></tuv><tuv xml:lang="de-AT"><seg>Servus</seg></tuv></tu>'
        '<tu><tuv xml:lang="en"><seg>only</seg></tuv></tu></body></tmx>',
    )  # fmt: skip
    assert list(read_pairs(_source(path))) == [("Großer Tag", "Big day")]
    assert list(read_pairs(BitextSource("de-AT", str(path)))) == [("Servus", "Big day")]
    assert list(read_pairs(BitextSource("und", str(path)))) == [("Großer Tag", "Big day")]


BAD_FILES = [
    ("x.tsv", b"a\tb\nc\n", r"x\.tsv:2: no column 1 .* the line has 1; lines of TSV are source<TAB>target"),
    ("x.tsv", b"a\tb\n \tc\n", r"x\.tsv:2: the source side is empty"),
    ("x.tsv", b"a\tb\nc\t\n", r"x\.tsv:2: the target side is empty; fix it, .* of load_bitext or pretrain"),
    ("x.tsv", b"a\tb\n\xff\tc\n", r"x\.tsv:2: not UTF-8"),
    ("x.jsonl", b'{"de": "a", "en": "b"}\n{"de": 1}\n', r"x\.jsonl:2: the source side is not text but 1;"),
    ("x.jsonl", b'{"de": "a", "en": "b"}\n{"de": "c"}\n', r"x\.jsonl:2: the target side is missing"),
    ("x.jsonl", b'{"de": "a", "en": "b"}\n{"de": "c", "en": "d\\u0000"}\n', r":2: the target side has NUL"),
    ("x.jsonl", b'{"de": "c"}\n{"de": "a", "en": "b"}\n', r"x\.jsonl:1: a pair needs two columns, not only de"),
    ("x.jsonl", b'{"de": "a", "en": "b"}\n{"de": \n', r"x\.jsonl:2: not JSON"),
    ("x.jsonl", b'{"de": "a", "en": "b"}\n{"de": "\\ud800", "en": "c"}\n', r"x\.jsonl:2: not JSON .*surrogates"),
    ("x.jsonl", b'{"de": "a", "en": "b"}\n[1]\n', r"x\.jsonl:2: expected a JSON object"),
    ("x.tsv", b"a\tb\n" + "собака\tdog\n".encode("utf-16-le"), r"x\.tsv:2: NUL characters in the line; .*UTF-16"),
    ("x.jsonl", b'{"de": "a", "en": "b"}\n' + '{"de": "c"}'.encode("utf-32-be"), r"x\.jsonl:2: NUL characters"),
    *(
        (
            "x.jsonl",
            _jsonl([("a", "b")]) + json.dumps({"de": "c", "en": "d", "links": links}).encode(),
            r"x\.jsonl:2: links must be written like .{0,300}$",
        )
        for links in ("9" * 5000 + "-0", " " * 100_000 + "x", 5, [1], {"a": 1})
    ),
    ("x.csv", b"de,en\na,b,\nc, then d,e\n", r"x\.csv:3: the row has 3 cells instead of 2; put sentences in quotation"),
    ("x.csv", b"a,b\n c,d,, e\n", r"x\.csv:2: the row has 4 cells instead of 2"),
    ("x.csv", b"c, then d,e\na,b\n", r"x\.csv:1: the row has 3 cells instead of 2"),
    ("x.tsv", b"de\ten\na\tb\t\n1\ta\tb\n", r"x\.tsv:3: the row has 3 cells instead of 2; replace tabs in sent"),
    ("x.tsv", b"# a note\nid\tde\ten\n1\ta\tb\n", r"x\.tsv:1: the source side is missing"),  # before the header
]


@pytest.mark.parametrize(("name", "data", "message"), BAD_FILES)
def test_a_bad_row_is_named_or_skipped(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    source = _source(_file(tmp_path, name, data))
    with pytest.raises(DataError, match=message):
        list(read_pairs(source))
    assert _valid(source) == [("a", "b")]


BROKEN_FILES = [
    ("x.po", b'msgid "b"\nmsgstr "a"\n\nrubbish\n', r"x\.po:4: not a comment, msgid"),
    ("x.po", b'msgid "a"\nmgstr "x"\n\nmsgid "b"\nmsgstr "y"\n', r"x\.po:2: not a comment, msgid"),
    ("x.po", b'msgid "a"\n\nmsgid "b"\nmsgstr "y"\n', r"x\.po:3: not a comment, msgid"),
    *(
        ("x.po", b'\xef\xbb\xbfmsgid "a"\nmsgstr "x"\n\n' + text, r"x\.po:5: not a comment, msgid")
        for text in (
            b'msgid "b"\nmsgstr "Hallo\n',
            b'msgid "b"\nmsgstr Hallo\n',
            b'msgctxt ""\n"menu\n',
            b'msgid ""\n"b\\"',
            b'msgid "b"\nmsgstr[0] "x',
            b'msgid "b"\nmsgstr[0]',
            b'msgid "b"\nmsgstr "',
        )
    ),
    ("x.po", b'msgid "a"\nmsgstr "\xff"\n', r"x\.po: text is not in its charset .*; correct the charset in its header"),
    ("x.tmx", b"<tmx><body>\n<tu></body></tmx>", r"x\.tmx:2: not well-formed XML"),
    (
        "x.tmx",
        b'<?xml version="1.0" encoding="undefined"?>' + _tmx([("ä", "b")])[21:],
        r"x\.tmx:1: not well-formed XML",
    ),
    ("x.tmx", b'<?xml version="1.0" encoding="none"?>' + _tmx([("ä", "b")])[21:], r"x\.tmx:1: not well"),
    ("x.mo", b"nothing of the kind", r"x\.mo: not a complete MO file"),
    ("x.mo", _mo(PAIRS)[:60], r"x\.mo: not a complete MO file"),
    ("x.parquet", b"PAR1 or not", r"x\.parquet: not a readable Parquet file"),
    ("x.tsv.gz", gzip.compress(_tsv(PAIRS), mtime=0)[:-12], r"x\.tsv\.gz: cannot be read to its end"),
    ("x.tsv.xz", b"a\tb\n", r"x\.tsv\.xz: cannot be read to its end"),
    ("x.tsv.zst", b"a\tb\n", r"x\.tsv\.zst: cannot be read to its end"),
    ("x.csv", b'de,en\na,"b\n', r"x\.csv:2: not CSV \(unexpected end of data\); check the quotation marks"),
    ("x.csv", b'de,en,fr,es\n"a","b",c,d\n"a"b",c,d,e\n', r"x\.csv:3: not CSV \('.' expected after"),
    ("x.csv", b"de,en\na\rb,c\n", r"x\.csv:2: not CSV \(new-line character seen in unquoted field"),
    ("x.docx", b"a\tb\n", r"x\.docx: unknown format '.docx'; formats are .tsv"),
]


@pytest.mark.parametrize(("name", "data", "message"), BROKEN_FILES)
def test_a_broken_file_raises_even_if_bad_rows_are_skipped(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        _valid(_source(_file(tmp_path, name, data)))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_a_file_of_several_streams_is_read_completely_or_refused(tmp_path: Path, suffix: str) -> None:
    pairs = [(f"Satz {number * 7919 % 10007}", f"sentence {number}") for number in range(20_000)]
    first, second = (COMPRESS[suffix](_tsv(part)) for part in (pairs[:5000], pairs[5000:]))
    path = _file(tmp_path, f"x.tsv{suffix}", first + second)
    assert list(read_pairs(_source(path))) == pairs
    path.write_bytes(first + COMPRESS[suffix](b"") + second)
    assert list(read_pairs(_source(path))) == pairs
    for damaged in (second[:-10], second[::-1]):
        path.write_bytes(first + damaged)
        with pytest.raises(DataError, match="cannot be read to its end"):
            _valid(_source(path))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_padding_between_the_streams_of_a_file_is_skipped(tmp_path: Path, suffix: str) -> None:
    streams = [COMPRESS[suffix](_tsv([pair])) for pair in (("Hund", "dog"), ("Katze", "cat"))]
    path = _file(tmp_path, f"x.tsv{suffix}", (b"\0" * 8).join(streams) + b"\0" * 4)
    assert list(read_pairs(_source(path))) == [("Hund", "dog"), ("Katze", "cat")]


@pytest.mark.parametrize("kind", ["po", "mo"])
@pytest.mark.parametrize(
    ("forms", "singular", "plural"),
    [
        ("nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;", 1, 4),
        ("nplurals=4; plural=(n%100==1 ? 1 : n%100==2 ? 2 : n%100==3 || n%100==4 ? 3 : 0);", 1, 0),  # Slovenian
        ("nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);", 0, 1),  # Latvian
        ("nplurals=1; plural=0;", None, 0),  # Japanese
        ("nplurals=2; plural=(n != 1);", 0, 1),
    ],
)
def test_plural_forms_are_those_of_the_header(
    tmp_path: Path, kind: str, forms: str, singular: int | None, plural: int
) -> None:
    texts = [f"form {number}" for number in range(6)]
    if kind == "po":
        entries = "".join(f'msgstr[{number}] "{text}"\n' for number, text in enumerate(texts))
        data = f'msgid ""\nmsgstr "Plural-Forms: {forms}\\n"\n\nmsgid "one"\nmsgid_plural "many"\n{entries}'.encode()
    else:
        data = _mo([("\0".join(texts), "one\0many")], header=f"Plural-Forms: {forms}\n")
    expected = [(texts[plural], "many")]
    expected = expected if singular is None else [(texts[singular], "one"), *expected]
    assert list(read_pairs(_source(_file(tmp_path, f"x.{kind}", data)))) == expected


@pytest.mark.parametrize("columns", [(0, 3), ("de", "en")])
def test_a_line_without_the_requested_column_is_named(tmp_path: Path, columns: tuple[int | str, int | str]) -> None:
    path = _file(tmp_path, "x.tsv", "de\tnote\tyear\ten\nein\tnote\n")
    with pytest.raises(DataError, match=r"x\.tsv:2: the target side is missing"):
        list(read_pairs(_source(path, columns=columns)))


def test_blank_lines_of_a_table_are_no_rows(tmp_path: Path) -> None:
    for name, delimiter in (("x.tsv", "\t"), ("x.csv", ",")):
        path = _file(tmp_path, name, f"a{delimiter}b\n\nc{delimiter}d\n\n")
        assert list(read_pairs(_source(path))) == [("a", "b"), ("c", "d")]


def test_two_columns_of_one_name_are_chosen_by_number(tmp_path: Path) -> None:
    path = _file(tmp_path, "x.tsv", "id\ttext\ttext\n1\ta\tb\n")
    assert list(read_pairs(_source(path, columns=(2, 1)))) == [("b", "a")]


def test_moses_files_of_unequal_length_are_named(tmp_path: Path) -> None:
    _file(tmp_path, "p.de", "a\nb\n")
    _file(tmp_path, "p.en", "a\n")
    with pytest.raises(DataError, match=r"p\.de:2: .*p\.en has only 1 lines"):
        list(read_pairs(_source(Path(f"{tmp_path}/p.de,{tmp_path}/p.en"))))


def test_two_tables_are_no_moses_pair(tmp_path: Path) -> None:
    names = [str(_file(tmp_path, name, "ein Hund\ta dog\neine Katze\ta cat\n")) for name in ("a.tsv", "b.tsv")]
    with pytest.raises(DataError, match=r"a\.tsv seems to be a table or records, not text"):
        list(read_pairs(_source(Path(",".join(names)))))


def test_unknown_formats_codes_and_missing_files_are_named_early(tmp_path: Path) -> None:
    path = _file(tmp_path, "x.tsv", "a\tb\n")
    with pytest.raises(DataError, match="unknown language code 'deuu'"):
        list(read_pairs(BitextSource("deuu", str(path))))
    with pytest.raises(DataError, match=r"no such file or folder: .*y\.tsv; did you mean 'x\.tsv'"):
        list(read_pairs(_source(tmp_path / "y.tsv")))
    with pytest.raises(DataError, match="the folder .* does not exist either"):
        list(read_pairs(_source(tmp_path / "none" / "y.tsv")))


@pytest.mark.parametrize("kind", ["tsv", "tmx"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
    def peak(count: int) -> int:
        pairs = ((f"Satz {number}", f"sentence {number}") for number in range(count))
        with (tmp_path / f"x.{kind}").open("wb") as file:
            while chunk := list(islice(pairs, 2000)):
                data = WRITERS[kind](chunk)
                if kind == "tmx":
                    data = data.replace(b'<?xml version="1.0"?>', b"").replace(b"</body></tmx>", b"")
                    data = data if not file.tell() else data.replace(b'<tmx version="1.4"><body>', b"")
                file.write(data)
            file.write(b"</body></tmx>" if kind == "tmx" else b"")
        tracemalloc.start()
        assert sum(1 for _ in read_pairs(_source(tmp_path / f"x.{kind}"))) == count
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return memory

    peak(100)
    assert peak(15_000) < 1.5 * peak(2_000) + 200_000


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("score\tdocument\tsource\ttarget", "0.9\ta.txt\tein Hund\ta dog"),  # align-documents
        ("score\tcosine\ttarget_rank\tsource_rank\tsource_line\ttarget_line\tsource\ttarget",
         "1.1\t0.9\t1\t1\t7\t8\tein Hund\ta dog"),  # mine
        ("source\ttarget\tnegative_1\tnegative_2", "ein Hund\ta dog\ta cat\ta fox"),  # mine-negatives
        ("target\tsource\tnegatives", "a dog\tein Hund\ta cat"),
        ("de\ten", "ein Hund\ta dog"),
        ("English\tGerman", "a dog\tein Hund"),
        ("Doc\tGerman\tEnglish\tTranslator", "n1\tein Hund\ta dog\tx"),
        ("id\ttext_deu\ttext_eng", "17\tein Hund\ta dog"),
        ("sentence1\tsentence2\tscore", "ein Hund\ta dog\t0.9"),
        ("\tde\ten", "0\tein Hund\ta dog"),  # DataFrame.to_csv with its index
        ("Unnamed: 0\tde\ten", "0\tein Hund\ta dog"),  # read and written again
    ],
)  # fmt: skip
def test_a_header_row_names_the_columns_and_is_not_a_pair(tmp_path: Path, header: str, row: str) -> None:
    path = _file(tmp_path, "pairs.tsv", f"{header}\n{row}\n{row}\n")
    assert list(read_pairs(_source(path))) == [("ein Hund", "a dog")] * 2
    columns = tuple(row.split("\t").index(side) for side in ("ein Hund", "a dog"))
    assert list(read_pairs(_source(path, columns=columns))) == [("ein Hund", "a dog")] * 2


@pytest.mark.parametrize("index", [(0, 1), ("tat-1", "news-2")])
def test_the_index_of_a_data_frame_is_no_column_of_languages(tmp_path: Path, index: tuple[object, object]) -> None:
    rows = [("ein Hund", "a dog"), ("eine Katze", "a cat")]
    pd.DataFrame(rows, index=index, columns=["source", "target"]).to_csv(tmp_path / "pairs.csv")
    for data in (tmp_path / "pairs.csv", {"de": tmp_path / "pairs.csv"}):
        bitext = load_bitext(data, cleaning=None, cache_dir=tmp_path / "cache")
        assert [(pair["source"], pair["target"]) for pair in bitext] == rows


def test_csv_whose_rows_two_delimiters_split_equally_needs_a_header(tmp_path: Path) -> None:
    path = tmp_path / "el.csv"  # the Greek question mark is a semicolon
    rows = "Πού είναι ο σταθμός;,Where is the station?\nΤι ώρα είναι;,What time is it?\n"
    path.write_text(rows, "utf-8")
    with pytest.raises(DataError, match="split equally by ';' and by ',': add a first line that names the columns"):
        load_bitext({"el": path}, cleaning=None, cache_dir=tmp_path / "cache")
    path.write_text(f"el,en\n{rows}", "utf-8")
    bitext = load_bitext({"el": path}, cleaning=None, cache_dir=tmp_path / "cache")
    assert bitext.pairs("el")[0] == ["Πού είναι ο σταθμός;", "Τι ώρα είναι;"]


def test_csv_has_quotes_and_a_header_and_any_usual_delimiter(tmp_path: Path) -> None:
    rows = [["id", "text_de", "text_en"], ["1", 'Er sagte:\n"Ja, gut"', "He said: yes; fine"], ["2", " Tag ", "day"]]
    for delimiter in ",;\t":
        with (tmp_path / "x.csv").open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows(rows)
        expected = [('Er sagte:\n"Ja, gut"', "He said: yes; fine"), ("Tag", "day")]
        assert list(read_pairs(_source(tmp_path / "x.csv"))) == expected
        assert list(read_pairs(_source(tmp_path / "x.csv", columns=(1, 2)))) == expected
    path = _file(tmp_path, "y.csv.gz", gzip.compress(b"de,en\na,b\nc\n\xff,d\n\ne,f\n"))
    errors = [str(row) for row in read_linked_pairs(_source(path)) if isinstance(row, DataError)]
    assert _valid(_source(path)) == [("a", "b"), ("e", "f")]
    assert [error.split(": ", 1)[1][:20] for error in errors] == ["the target side is m", "not UTF-8; convert t"]


def test_a_cell_of_csv_may_be_long_and_an_unclosed_quotation_mark_is_no_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hf_xsent.data.readers.tables._LONGEST_CELL", 300_000)
    csv.field_size_limit(131_072)  # the default
    path = _file(tmp_path, "long.csv", f'id,de,en\n"{"x," * 100_000}",Hund,dog\n')
    assert list(read_pairs(_source(path))) == [("Hund", "dog")]
    path = _file(tmp_path, "open.csv", 'de,en\n"Hund,dog\n' + "Satz,sentence\n" * 30_000)
    with pytest.raises(DataError, match=r"open\.csv:\d+: not CSV \(field larger than field limit .*quotation marks"):
        _valid(_source(path))


@pytest.mark.parametrize("quoted", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("delimiter", [";", "\t", ","])
def test_commas_in_the_sentences_do_not_cut_the_rows_of_a_csv(tmp_path: Path, delimiter: str, quoted: int) -> None:
    rows = [("Ja, ja, ja", "yes"), ("nun, gut", "well, well"), ("Hund", "dog")]
    with (tmp_path / "x.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=delimiter, quoting=quoted).writerows(rows)
    assert list(read_pairs(_source(tmp_path / "x.csv"))) == rows


@pytest.mark.parametrize("header", ["", "de, en\n"])
def test_spaces_may_be_before_the_quotes_of_a_csv(tmp_path: Path, header: str) -> None:
    path = _file(tmp_path, "x.csv", f'{header} "Hallo, Welt", "Hello, world"\nHund, dog\n')
    assert list(read_pairs(_source(path))) == [("Hallo, Welt", "Hello, world"), ("Hund", "dog")]


def test_rows_of_tables_may_end_with_notes_or_empty_cells(tmp_path: Path) -> None:
    for name, text in (
        ("x.tsv", "a\tb\nc\td\tnote\t\n"),
        ("x.csv", "a,b,note\nc,d\ne,f,note\n"),
        ("x.csv", "de,en\na,b,\nc,d,\n"),
    ):
        assert list(read_pairs(_source(_file(tmp_path, name, text))))[:2] == [("a", "b"), ("c", "d")]


def test_the_delimiter_of_a_csv_is_that_of_whole_rows_outside_of_quotes(tmp_path: Path) -> None:
    rows = [("Ja; gut", "Yes; good"), *[("Hund", "dog")] * 18, ("ein\nHund", "a dog"), ("Ei", "egg")]
    with (tmp_path / "x.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    assert list(read_pairs(_source(tmp_path / "x.csv"))) == rows
    path = _file(tmp_path, "y.csv", '"Ja; nein; gut",yes\nHund\n')
    assert _valid(_source(path)) == [("Ja; nein; gut", "yes")]


def test_a_first_row_that_is_a_pair_is_not_a_header(tmp_path: Path) -> None:
    for row in ("score\tresult", "Quelle\tSource", "Text\tThe text", "1\tone"):
        path = _file(tmp_path, "pairs.tsv", f"{row}\nzwei\ttwo\n")
        assert len(list(read_pairs(_source(path)))) == 2, row


@pytest.mark.parametrize(("row", "is_logged"), [("l1_text\tl2_text", True), ("Hund\tdog", False)])
def test_a_first_pair_of_lower_case_names_is_logged(
    tmp_path: Path, row: str, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = _file(tmp_path, "pairs.tsv", f"{row}\nzwei\ttwo\n")
    assert len(list(read_pairs(_source(path)))) == 2
    assert ("pairs.tsv:1: l1_text and l2_text are read as a pair; if they name columns" in caplog.text) == is_logged
    caplog.clear()
    assert len(list(read_pairs(_source(path, columns=tuple(row.split("\t")))))) == 1 and not caplog.text


def test_a_header_whose_columns_are_not_clear_asks_for_them(tmp_path: Path) -> None:
    path = _file(tmp_path, "pairs.tsv", "id\tfr\ten\n1\tun chien\ta dog\n")
    with pytest.raises(DataError, match=r"pairs.tsv: .* columns id, fr, en; .*state the two .* as columns"):
        list(read_pairs(_source(path)))


@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_columns_without_letters_are_refused(tmp_path: Path, kind: str) -> None:
    pairs = [(f"0.{number}", f"ein Satz {number}") for number in range(10)]
    path = _file(tmp_path, f"scored.{kind}", WRITERS[kind](pairs))
    with pytest.raises(DataError, match=r"the source column has no letters .*'0.1', '0.2'.* state the two"):
        list(read_pairs(_source(path)))
    assert len(list(read_pairs(_source(_file(tmp_path, "few.tsv", "1\teins\n10. 12.\tam 10.\n"))))) == 2


@pytest.mark.parametrize(("name", "separator"), [("x.csv", ","), ("x.tsv", "\t")])
def test_a_first_row_without_names_of_columns_is_a_pair(tmp_path: Path, name: str, separator: str) -> None:
    pairs = [("Ein Hund", "A dog"), ("Eine Katze", "A cat")]
    for more in ([], ["news"]):
        path = _file(tmp_path, name, "".join(f"{separator.join([*pair, *more])}\n" for pair in pairs))
        assert _valid(_source(path)) == pairs
        codes = _file(tmp_path, name, "".join(f"{separator.join([*pair, 'de', 'en'])}\n" for pair in pairs))
        assert _valid(_source(codes)) == pairs
        codes = _file(tmp_path, name, "".join(f"{separator.join([a, 'de', b, 'en'])}\n" for a, b in pairs))
        assert _valid(_source(codes, columns=(0, 2))) == pairs
    path = _file(tmp_path, name, separator.join(["mine", "theirs"]) + f"\n{separator.join(pairs[0])}\n")
    assert _valid(_source(path, columns=("mine", "theirs"))) == pairs[:1]
