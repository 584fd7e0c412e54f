"""Attack every reader of data files with files made by its grammar, whole and damaged."""

from __future__ import annotations

import gzip
import json
import logging
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from typing import Any
from xml.sax.saxutils import escape

from hf_xsent.data.benchmarks.bucc import find_bucc
from hf_xsent.data.benchmarks.gold_links import load_gold_links
from hf_xsent.data.benchmarks.inference import load_inference
from hf_xsent.data.benchmarks.questions import load_questions
from hf_xsent.data.benchmarks.sts import load_sts17, load_sts22
from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.readers.formats import read_linked_pairs, read_pairs
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.data.sentences import load_sentences
from hf_xsent.documents.reading import read_document
from hf_xsent.errors import DataError

from .inputs import Trial, compressed, damaged, pairs, run_trials, text

Pairs = list[tuple[str, str]]
ODD_VALUES = (
    None,
    0,
    -1,
    1.5,
    10**400,
    True,
    [],
    ["a"],
    {},
    {"de": "x"},
    "",
    " ",
    "\0",
    "\ud800",
    "a\0b",
    "x" * 10_000,
)
CHARSETS = ("utf-8", "UTF-8", "idna", "undefined", "punycode", "utf-7", "utf-16", "rot13", "unicode_escape", "cp1252")
CHARSETS += ("latin-1", "mbcs", "none", "charmap", "hex", "koi8-r", "shift_jis", "")


def attack(seed: int, count: int) -> dict[str, int]:
    """Attack the readers with ``count`` inputs; return the answers, or raise an AssertionError with the input."""
    logging.getLogger("hf_xsent").setLevel(logging.ERROR)
    return run_trials(TARGETS, seed, count)


# Files of pairs


def _tsv(rng: Random, some: Pairs) -> bytes:
    return "".join(f"{source}\t{target}\n" for source, target in some).encode()


def _json_value(rng: Random, value: Any) -> Any:
    return rng.choice(ODD_VALUES) if rng.random() < 0.03 else value


def _json_lines(rng: Random, records: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(one, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass") + b"\n"
                    for one in records)  # fmt: skip


def _jsonl(rng: Random, some: Pairs) -> bytes:
    nested = rng.random() < 0.3
    records = [{"de": source, "en": target} for source, target in some]
    return _json_lines(rng, ({"translation": one} if nested else one for one in records))


def _odd_jsonl(rng: Random, some: Pairs) -> bytes:
    records: list[Any] = [{"de": _json_value(rng, one), "en": _json_value(rng, other)} for one, other in some]
    deep: Any = "x"
    for _ in range(rng.choice((0, 0, 5, 900))):
        deep = {"a": deep} if rng.random() < 0.5 else [deep]
    records[0]["extra"] = deep
    records += [rng.choice(ODD_VALUES) for _ in range(rng.randint(0, 2))]
    links = rng.choice(("0-0", "0-0 1-1", "9-9", "9" * 5000 + "-0", "x", 5, None, " " * 5000 + "x"))
    return _json_lines(rng, [{**one, "links": links} if isinstance(one, dict) else one for one in records])


def _tmx(rng: Random, some: Pairs, encoding: str = "UTF-8") -> bytes:
    units = []
    for source, target in some:
        tags = rng.choice((("de", "en"), ("de-AT", "EN-us"), ("deu", "eng")))
        variants = [f'<tuv xml:lang="{tag}"><seg>{escape(one)}</seg></tuv>'
                    for tag, one in zip(tags, (source, target), strict=True)]  # fmt: skip
        rng.shuffle(variants)
        units.append(f"<tu>{''.join(variants)}</tu>\n")
    head = f'<?xml version="1.0" encoding="{encoding}"?>\n<tmx version="1.4"><body>\n'
    return (head + "".join(units) + "</body></tmx>").encode()


def _odd_tmx(rng: Random, some: Pairs) -> bytes:
    data = _tmx(rng, some, rng.choice(CHARSETS))
    entity = b'<!DOCTYPE t [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    deep = b"<hi>" * 20_000
    return data.replace(b"<seg>", rng.choice((b"<seg><ph>", b"<seg>" + deep, b"<seg>&b;", entity, b"<tuv><seg>")), 1)


def _po_string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _po(rng: Random, some: Pairs) -> bytes:
    parts = ['msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n']
    for source, target in some:
        context = 'msgctxt "menu"\n' if rng.random() < 0.2 else ""
        parts.append(f"#: a.c:1\n{context}msgid {_po_string(target)}\nmsgstr {_po_string(source)}\n")
    return "\n".join(parts).encode()


def _odd_po(rng: Random, some: Pairs) -> bytes:
    lines = _po(rng, some).decode().split("\n")
    for _ in range(rng.randint(1, 4)):
        odd = ('"more"', 'msgstr[1] "x"', 'msgid_plural "y"', '"\\', '"\\\\"', "#, fuzzy", '"\\377\\xff"', "msgid", '"')
        lines.insert(rng.randrange(len(lines)), rng.choice((*odd, '"' + "\\" * 50_001 + '"', '"' + 'a"' * 50_000)))
    return "\n".join(lines).encode()


def _mo(rng: Random, some: Pairs, charset: str = "UTF-8") -> bytes:
    order = rng.choice("<>")
    messages = [(b"", f"Content-Type: text/plain; charset={charset}\n".encode())]
    messages += [(target.encode(), source.encode()) for source, target in some]
    head, strings = 28 + 16 * len(messages), b""
    tables: list[list[int]] = [[], []]
    for message in messages:
        for table, one in zip(tables, message, strict=True):
            table += [len(one), head + len(strings)]
            strings += one + b"\0"
    numbers = [0x950412DE, 0, len(messages), 28, 28 + 8 * len(messages), 0, 0, *tables[0], *tables[1]]
    return struct.pack(f"{order}{len(numbers)}I", *numbers) + strings


def _parquet(rng: Random, some: Pairs) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kind = rng.choice((pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())))
    columns = {name: pa.array([one[side] for one in some], pa.string()).cast(kind)
               for side, name in enumerate(("de", "en"))}  # fmt: skip
    table = pa.table({"id": list(range(len(some))), **columns})
    sink = pa.BufferOutputStream()
    settings = {"compression": rng.choice(("none", "snappy", "gzip")), "row_group_size": rng.choice((1, 7, 1000))}
    pq.write_table(table, sink, use_dictionary=rng.random() < 0.5, **settings)
    return sink.getvalue().to_pybytes()


def _odd_parquet(rng: Random, some: Pairs) -> bytes:
    """Write text that is not UTF-8, odd types or missing values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = len(some)
    raw = pa.array([rng.choice((b"\xff\xfe", b"a\0b", one.encode())) for one, _ in some], pa.binary())
    text_of_raw = pa.Array.from_buffers(pa.string(), count, raw.buffers())
    odd = (
        *(text_of_raw, raw, pa.nulls(count), pa.array([None, *range(count - 1)]), pa.array([["x"]] * count)),
        pa.array([{"en": one} for _, one in some]),
        pa.array([2**50] * count, pa.timestamp("s")),
    )
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"de": text_of_raw, "en": rng.choice(odd)}), sink)
    return sink.getvalue().to_pybytes()


# Writers of whole files, and of files that follow the grammar but hold odd values.
WHOLE: dict[str, Callable[[Random, Pairs], bytes]] = {
    "tsv": _tsv, "jsonl": _jsonl, "tmx": _tmx, "po": _po, "mo": _mo, "parquet": _parquet,
}  # fmt: skip
ODD: dict[str, Callable[[Random, Pairs], bytes]] = {
    "jsonl": _odd_jsonl, "tmx": _odd_tmx, "po": _odd_po, "parquet": _odd_parquet,
    "mo": lambda rng, some: _mo(rng, some, rng.choice(CHARSETS)),
}  # fmt: skip
LINE_FORMATS = ("tsv", "jsonl", "po")


def _source(rng: Random, path: Path | str, **options: Any) -> BitextSource:
    if rng.random() < 0.15:
        column = rng.choice((0, 1, 7, "de", "x", "a.b"))
        options |= {"source_column": column, "target_column": rng.choice((0, 1, 7, "en", "translation.en"))}
    return BitextSource(rng.choice(("de", "de", "de", "und")), str(path), **options)


def _well_formed(trial: Trial) -> Callable[[Pairs], None]:
    def check(found: Pairs) -> None:
        for pair in found:
            for side in pair[:2]:
                good = isinstance(side, str) and side and side == side.strip() and "\0" not in side
                trial.require(good, f"not a sentence: {side!r:.100}")
                side.encode("utf-8")

    return check


def _equal(trial: Trial, expected: Pairs) -> Callable[[Pairs], None]:
    def check(found: Pairs) -> None:
        trial.require(found == expected, f"read {found[:2]!r:.300}, not {expected[:2]!r:.300}")

    return check


def _read(trial: Trial, path: Path | str, options: dict[str, Any] | None = None) -> str:
    source = _source(trial.rng, path, **(options or {}))
    on_error = trial.rng.choice(("raise", "skip"))
    return trial.answer(lambda: list(read_pairs(source, on_error)), _well_formed(trial))  # type: ignore[arg-type]


def whole_pairs(trial: Trial) -> str:
    """Every whole file gives the pairs that it was written from."""
    rng, some = trial.rng, pairs(trial.rng)
    kind = rng.choice([*WHOLE])
    data = WHOLE[kind](rng, some)
    if kind in LINE_FORMATS:
        data = data.replace(b"\n", rng.choice((b"\n", b"\r\n")))
        data = rng.choice((b"", b"\xef\xbb\xbf")) + data
    suffix, data = compressed(rng, data) if kind != "parquet" else ("", data)
    path = trial.write(f"x.{kind}{suffix}", data)
    outcome = trial.answer(lambda: list(read_pairs(BitextSource("de", str(path)))), _equal(trial, some))
    trial.require(outcome == "read", "a whole file is refused")
    return outcome


def misread_pairs(trial: Trial) -> str:
    """Files in another encoding or with other line ends give an error, not other pairs."""
    rng, some = trial.rng, pairs(trial.rng)
    kind = rng.choice(LINE_FORMATS)
    data = WHOLE[kind](rng, some)
    encoding = rng.choice(("utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "CR"))
    data = data.replace(b"\n", b"\r") if encoding == "CR" else data.decode().encode(encoding)
    path = trial.write(f"x.{kind}", data)
    outcome = trial.answer(lambda: list(read_pairs(BitextSource("de", str(path)))), _well_formed(trial))
    right = (kind, encoding) == ("po", "CR")  # polib knows all line ends
    trial.require(outcome != "read" or right or data.count(b"\r") < 2, f"{encoding} is misread")
    return outcome


def odd_pairs(trial: Trial) -> str:
    """Odd values, and files damaged before or after compression."""
    rng, some = trial.rng, pairs(trial.rng)
    kind = rng.choice([*WHOLE])
    writers = [WHOLE[kind], *([ODD[kind]] * 2 if kind in ODD else [])]
    data = rng.choice(writers)(rng, some)
    if rng.random() < 0.7:
        data = damaged(rng, data)
    suffix, data = compressed(rng, data)
    if suffix and rng.random() < 0.5:
        data = damaged(rng, data)
    named = rng.choice([*WHOLE]) if rng.random() < 0.05 else kind
    path = trial.write(f"x.{named}{suffix}", data)
    options: dict[str, Any] = {}
    if rng.random() < 0.1:
        lines = "".join(rng.choice(("0-0\n", "\n", "0-0 1-1\n", "99-0\n", "x\n", "0-\n")) for _ in some)
        links = trial.write("links.txt", damaged(rng, lines.encode()) if rng.random() < 0.3 else lines)
        options = {"links": str(links), "link_words": rng.choice(("script", "spaces"))}
    return _read(trial, path, options)


def moses(trial: Trial) -> str:
    """Two files, damaged separately."""
    rng, some = trial.rng, pairs(trial.rng)
    for side, code in enumerate(("de", "en")):
        data = "".join(f"{pair[side]}\n" for pair in some).encode()
        if rng.random() < 0.5:
            data = damaged(rng, data)
        suffix, data = compressed(rng, data)
        trial.write(f"x.{code}{suffix}", data)
    return _read(trial, trial.folder / "x")


def dataset(trial: Trial) -> str:
    """A data set that was saved to a folder, with damaged files."""
    import datasets

    rng, some = trial.rng, pairs(trial.rng)
    folder = trial.folder / "data"
    if rng.random() < 0.5:
        columns = {"de": [source for source, _ in some], "en": [target for _, target in some]}
        datasets.disable_progress_bars()
        datasets.Dataset.from_dict(columns).save_to_disk(str(folder))
    else:
        trial.write("data/train.parquet", WHOLE["parquet"](rng, some))
    victim = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".arrow"))
    if rng.random() < 0.7:
        victim.write_bytes(damaged(rng, victim.read_bytes()))
    return _read(trial, folder)


def bomb(trial: Trial) -> str:
    """A small compressed file of one endless line."""
    rng = trial.rng
    unit = rng.choice((b"a\t", b"\0", b'"', b"[", b"<seg>", b"<!-- ", b"msgid"))
    head = rng.choice((b"", b"a\tb\n", b"<tmx><body><tu><tuv xml:lang='de'><seg>", b'msgid "'))
    data = gzip.compress(head + unit * (80_000_000 // len(unit)), 1)
    return _read(trial, trial.write(f"x.{rng.choice(('tsv', 'jsonl', 'tmx', 'po', 'mo'))}.gz", data))


ODD_NAMES = ("x" * 300 + ".tsv", "loop.tsv", "", ".", "a,b", "a,b,c", "/dev/zero", "a\0b.tsv", "*.tsv", "[", "~nobody")
ODD_NAMES += ("x.tsv/y.tsv", "{language}.tsv", "\x1b[31m.tsv", "\ud8ff.tsv", "pipe.tsv")


def odd_names(trial: Trial) -> str:
    """Names that no file has, too long ones, links in a circle, folders, devices and pipes."""
    rng = trial.rng
    name = rng.choice(ODD_NAMES)
    (trial.folder / "loop.tsv").symlink_to("loop.tsv")
    import os

    if not (trial.folder / "pipe.tsv").exists():
        os.mkfifo(trial.folder / "pipe.tsv")
    path = name if name.startswith(("/", "~")) else f"{trial.folder}/{name}"
    outcome = trial.answer(lambda: list(load_bitext({"de": path}, cache_dir=trial.folder / "cache").languages))
    os.unlink(trial.folder / "pipe.tsv")
    return outcome


def sentences(trial: Trial) -> str:
    """Lines of text."""
    rng = trial.rng
    data = "".join(f"{text(rng)}\n" for _ in range(rng.randint(1, 20))).encode()
    data = damaged(rng, data) if rng.random() < 0.5 else data
    suffix, data = compressed(rng, data)
    path = trial.write(f"x.txt{suffix}", data)

    def load() -> list[tuple[str, int]]:
        lines = load_sentences(path, trial.folder / "work")
        return [lines[row] for row in range(len(lines))]

    expected: list[list[tuple[str, int]]] = []
    outcome = trial.answer(load, expected.append)
    if outcome == "read":
        outcome = trial.answer(load, _equal(trial, expected[0]))  # type: ignore[arg-type]
        trial.require(outcome == "read", "cached sentences are refused")
    return outcome


# Benchmarks, links and documents


def _maybe_damaged(rng: Random, data: bytes | str) -> bytes:
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return damaged(rng, raw) if rng.random() < 0.6 else raw


def benchmark(trial: Trial) -> str:
    """Files of one of the benchmarks."""
    rng, some = trial.rng, pairs(trial.rng)
    kind = rng.choice(("squad", "nli-tsv", "nli-jsonl", "sts17", "sts22", "tatoeba", "bucc", "gold-links"))
    lines = [f"{source}\t{target}" for source, target in some]

    def value(one: Any) -> Any:
        return _json_value(rng, one)

    def write(name: str, data: str | bytes) -> Path:
        return trial.write(name, _maybe_damaged(rng, data))

    if kind == "squad":
        answers = [{"answer_start": value(0), "text": value(some[0][1][:4])}]
        qas = [{"id": value(source[:9]), "question": value(source), "answers": value(answers)} for source, _ in some]
        content = {"data": value([{"paragraphs": value([{"context": value(some[0][1]), "qas": qas}])}])}
        path = write("x.json", json.dumps(content))
        return trial.answer(lambda: load_questions(path))
    if kind == "nli-tsv":
        path = write("x.tsv", "\n".join(f"{line}\t{rng.choice(('neutral', '0', '-', 'x', '२'))}" for line in lines))
        return trial.answer(lambda: load_inference(path))
    if kind == "nli-jsonl":
        records = [{"premise": value(a), "hypothesis": value(b), "label": value("neutral")} for a, b in some]
        path = write("x.jsonl", _json_lines(rng, records))
        return trial.answer(lambda: load_inference(path))
    if kind == "sts17":
        write("STS.input.track1.ar-ar.txt", "\n".join(lines))
        write("STS.gs.track1.ar-ar.txt", "\n".join(rng.choice(("1", "2.5", "x", "nan", "1e999")) for _ in lines))
        return trial.answer(lambda: load_sts17(trial.folder))
    if kind == "sts22":
        records = [{"sentence1": value(a), "sentence2": value(b), "score": value(rng.random())} for a, b in some]
        write("de-en.jsonl", _json_lines(rng, records))
        return trial.answer(lambda: load_sts22(trial.folder))
    if kind == "tatoeba":
        for side, code in enumerate(("deu", "eng")):
            write(f"tatoeba.deu-eng.{code}", "\n".join(pair[side] for pair in some))
        return trial.answer(lambda: load_tatoeba(trial.folder))
    if kind == "bucc":
        for side, code in enumerate(("zh", "en")):
            write(f"zh-en.dev.{code}", "\n".join(f"{code}-{n}\t{pair[side]}" for n, pair in enumerate(some)))
        write("zh-en.dev.gold", "\n".join(f"zh-{n}\ten-{n}" for n in range(len(some))))
        return trial.answer(lambda: find_bucc(trial.folder))
    write("x.src-tgt", "\n".join(f"{source} ||| {target}" for source, target in some))
    write("x.gold", "\n".join(rng.choice(("1-1", "1p1 2-1", "0-0", "x", "9" * 5000 + "-1")) for _ in some))
    return trial.answer(lambda: load_gold_links(trial.folder / "x"))


def document(trial: Trial) -> str:
    """A document, one sentence per line or running text."""
    rng = trial.rng
    data = "\n".join(text(rng) + rng.choice((".", "", "\n")) for _ in range(rng.randint(1, 20)))
    suffix, packed = compressed(rng, _maybe_damaged(rng, data))
    path = trial.write(f"x.txt{suffix}", packed)
    return trial.answer(lambda: read_document(path, rng.choice(("lines", "text")), rng.choice((None, "de", "und"))))


def linked(trial: Trial) -> str:
    """JSONL of align-words, and links in a file of their own."""
    rng, some = trial.rng, pairs(trial.rng)
    odd = ("0-0", "0-0 1-1", "", None, 5, "x", "9" * 5000 + "-1", " " * 9000 + "x")
    records = [{"source": source, "target": target, "links": rng.choice(odd)} for source, target in some]
    path = trial.write("x.jsonl", _maybe_damaged(rng, _json_lines(rng, records)))
    options = {"links": str(path)} if rng.random() < 0.3 else {}
    source = BitextSource("de", str(path), **options)  # type: ignore[arg-type]
    return trial.answer(lambda: [one for one in read_linked_pairs(source) if not isinstance(one, DataError)],
                        _well_formed(trial))  # type: ignore[arg-type]  # fmt: skip


TARGETS: dict[str, tuple[float, Callable[[Trial], str]]] = {
    "whole pairs": (10, whole_pairs),
    "misread pairs": (5, misread_pairs),
    "odd pairs": (45, odd_pairs),
    "moses": (8, moses),
    "dataset": (1, dataset),
    "names": (2, odd_names),
    "sentences": (5, sentences),
    "benchmark": (15, benchmark),
    "document": (5, document),
    "linked": (5, linked),
    "bomb": (0.05, bomb),
}
