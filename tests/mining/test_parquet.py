"""Vectors leave as Parquet that databases read, and mining reads them in place of text."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numbered_words import Words

from hf_xsent import Encoder, mine_files
from hf_xsent.errors import DataError

pytestmark = pytest.mark.usefixtures("small_shards")


def _mine(folder: Path, source: str, target: str, output: str, model: Any = None, **settings: Any) -> bytes:
    mine_files(folder / source, folder / target, folder / output, model or Words(), **settings)
    return (folder / output).read_bytes()


def test_written_vectors_are_mined_without_encoding(folder: Path) -> None:
    whole = _mine(folder, "a.txt", "b.txt", "text.tsv", vectors=folder / "vectors")
    model = Words()
    assert _mine(folder, "vectors/source", "vectors/target", "vectors.tsv", model) == whole
    assert not model.encoded
    assert _mine(folder, "vectors/source", "b.txt", "mixed.tsv") == whole
    table = pq.read_table(folder / "vectors" / "target")
    assert table.schema.names == ["id", "text", "embedding"]
    assert table.schema.field("embedding").type == pa.list_(pa.float32(), 24)
    assert table["id"].to_pylist()[:2] == [1, 2] and table["text"].to_pylist()[:2] == ["b99", "b98"]


@pytest.mark.parametrize("name", ["{}", "{}.parquet"])
def test_pairs_have_the_ids_of_the_files_and_gold_may_use_them(folder: Path, name: str) -> None:
    for side in "ab":
        texts = (folder / f"{side}.txt").read_text().split()
        table = Encoder(Words())(pa.table({"text": texts, "id": [1000 + 7 * row for row in range(len(texts))]}))
        path = folder / name.format(side)
        if name == "{}":
            path.mkdir()
            pq.write_table(table.slice(33), path / "2.parquet", row_group_size=7)
            path, table = path / "1.parquet", table.slice(0, 33)
        pq.write_table(table, path, row_group_size=10)
    whole = [row.split("\t") for row in _mine(folder, "a.txt", "b.txt", "text.tsv").decode().splitlines()]
    rows = [
        row.split("\t") for row in _mine(folder, name.format("a"), name.format("b"), "ids.tsv").decode().splitlines()
    ]
    for row, expected in zip(rows[1:], whole[1:], strict=True):
        assert row[4:6] == [str(1000 + 7 * (int(line) - 1)) for line in expected[4:6]]
        assert row[:4] + row[6:] == expected[:4] + expected[6:]
    pairs = {tuple(row[6:]): row[4:6] for row in rows[1:]}
    gold = ["\t".join(pairs[f"a{number}", f"b{number}"]) + "\n" for number in range(40, 60)]
    (folder / "gold.tsv").write_text("".join(gold))
    sides = name.format("a"), name.format("b")
    calibrated = _mine(folder, *sides, "gold.out.tsv", calibrate=folder / "gold.tsv")
    assert calibrated.count(b"\n") == 21
    with pytest.raises(DataError, match="has its vectors already: drop vectors"):
        _mine(folder, *sides, "x.tsv", vectors=folder / "again")


@pytest.mark.parametrize("form", ["doc{}", "{:05}"])
def test_ids_may_be_text(folder: Path, form: str) -> None:
    for side in "ab":
        texts = (folder / f"{side}.txt").read_text().split()
        table = Encoder(Words())(pa.table({"text": texts, "id": [*map(form.format, range(len(texts)))]}))
        pq.write_table(table, folder / f"{side}.parquet")
    first = json.loads(_mine(folder, "a.parquet", "b.parquet", "ids.jsonl").splitlines()[0])
    assert isinstance(first["source_line"], str)
    lines = (json.loads(line) for line in (folder / "ids.jsonl").read_text().splitlines())
    ids = {row["source"]: f"{row['source_line']}\t{row['target_line']}\n" for row in lines}
    (folder / "gold.tsv").write_text("".join(ids[f"a{number}"] for number in range(40, 60)))
    assert _mine(folder, "a.parquet", "b.parquet", "some.tsv", calibrate=folder / "gold.tsv").count(b"\n") == 21


def test_ids_that_json_has_not_are_their_text(folder: Path) -> None:
    texts = (folder / "a.txt").read_text().split()
    ids = pa.array([uuid.UUID(int=row).bytes for row in range(len(texts))], pa.uuid())
    pq.write_table(Encoder(Words())(pa.table({"text": texts, "id": ids})), folder / "a.parquet")
    _, *rows = _mine(folder, "a.parquet", "b.txt", "ids.tsv").decode().splitlines()
    records = [json.loads(line) for line in _mine(folder, "a.parquet", "b.txt", "ids.jsonl").splitlines()]
    assert [row.split("\t")[4] for row in rows] == [record["source_line"] for record in records]


def test_ids_of_several_types_are_text(folder: Path) -> None:
    whole = _mine(folder, "a.txt", "b.txt", "text.tsv")
    (folder / "a").mkdir()
    texts = (folder / "a.txt").read_text().split()
    for start, kind in ((0, int), (33, str)):
        ids = [kind(row + 1) for row, _ in enumerate(texts)][start : start + 33 if start == 0 else None]
        table = Encoder(Words())(pa.table({"text": texts[start:][: len(ids)], "id": ids}))
        pq.write_table(table, folder / "a" / f"{start}.parquet")
    assert _mine(folder, "a", "b.txt", "ids.tsv") == whole


def test_a_missing_or_damaged_file_is_one_sentence(folder: Path) -> None:
    with pytest.raises(DataError, match=r"no such file: .*none\.parquet"):
        _mine(folder, "none.parquet", "b.txt", "out.tsv")
    (folder / "a.parquet").write_text("text")
    with pytest.raises(DataError, match=r"a\.parquet: not a readable Parquet file"):
        _mine(folder, "a.parquet", "b.txt", "out.tsv")


def test_a_database_reads_the_vectors(folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: the extra hf-xsent[dev] brings it")
    _mine(folder, "a.txt", "b.txt", "text.tsv", vectors=folder / "vectors")
    query = "select embedding from read_parquet(?) where text = 'a45'"
    ((vector,),) = duckdb.execute(query, [f"{folder}/vectors/source/*.parquet"]).fetchall()
    block = (Path(__file__).parents[2] / "docs/at_scale.md").read_text("utf-8").partition("import duckdb\n")[2]
    call = block.partition("```")[0].strip().replace("vectors/", f"{folder}/vectors/")
    nearest = eval(call, {"duckdb": duckdb, "vector": vector}).fetchall()
    assert len(nearest) == 5 and nearest[0] == ("b45",)


def test_tables_of_a_pipeline_are_mined_whatever_their_row_groups(folder: Path) -> None:
    whole = _mine(folder, "a.txt", "b.txt", "text.tsv")
    for side in "ab":
        texts = (folder / f"{side}.txt").read_text().split()
        table = Encoder(Words())(pa.table({"text": texts, "more": texts}))
        (folder / side).mkdir()
        pq.write_table(table.slice(0, 33), folder / side / "1.parquet", row_group_size=10)
        pq.write_table(table.slice(33), folder / side / "2.parquet", row_group_size=7)
    assert _mine(folder, "a", "b", "vectors.tsv") == whole


def test_vectors_of_another_model_and_damaged_ones_are_refused(folder: Path) -> None:
    class Other(Words):
        def encode(self, texts: list[str]) -> np.ndarray:
            return super().encode(texts)[:, ::-1]

    _mine(folder, "a.txt", "b.txt", "text.tsv", vectors=folder / "vectors")
    with pytest.raises(DataError, match="were made with model .*: give the model and the settings"):
        _mine(folder, "vectors/source", "vectors/target", "x.tsv", Other())
    pq.write_table(pa.table({"text": ["a"]}), folder / "x.parquet")
    with pytest.raises(DataError, match="x.parquet has no column 'embedding'"):
        _mine(folder, "x.parquet", "b.txt", "x.tsv")
    rows = [[1.0, 2.0]] * 5 + [None]
    pq.write_table(pa.table({"text": list("abcdef"), "embedding": rows}), folder / "x.parquet")
    with pytest.raises(DataError, match="x.parquet has rows without a vector"):
        _mine(folder, "x.parquet", "b.txt", "x.tsv")
    vectors = [[1.0] * size for size in (2, 4, 3, 3)]
    pq.write_table(pa.table({"text": list("abcd"), "embedding": vectors}), folder / "x.parquet")
    with pytest.raises(DataError, match=r"x.parquet has .* vectors of different lengths"):
        _mine(folder, "x.parquet", "b.txt", "x.tsv")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("text", [1, 2], "'text' has values of the type int64, not text: convert it"),
        ("text", [b"a", b"b"], "'text' has values of the type binary, not text"),
        ("embedding", ["[1.0]", "[2.0]"], "'embedding' has values of the type string, not lists of numbers"),
        ("embedding", [["a"], ["b"]], "'embedding' has values of the type list<.*string>, not lists of numbers"),
        ("embedding", [1.0, 2.0], "'embedding' has values of the type double, not lists of numbers"),
    ],
)
def test_columns_of_other_types_are_refused(folder: Path, column: str, values: list[Any], message: str) -> None:
    table = {"text": ["a", "b"], "embedding": [[1.0], [2.0]], column: values}
    pq.write_table(pa.table(table), folder / "x.parquet")
    with pytest.raises(DataError, match=f"x.parquet: the column {message}"):
        _mine(folder, "x.parquet", "b.txt", "x.tsv")


def test_each_file_of_a_folder_is_checked_and_texts_may_be_missing(folder: Path) -> None:
    _mine(folder, "a.txt", "b.txt", "text.tsv", vectors=folder / "vectors")
    whole = pq.read_table(folder / "vectors" / "source")
    vectors = whole["embedding"].to_pylist()
    (folder / "a").mkdir()
    pq.write_table(whole, folder / "a" / "2.parquet")

    def refused(table: pa.Table, message: str) -> None:
        pq.write_table(table, folder / "a" / "1.parquet")
        with pytest.raises(DataError, match=message):
            _mine(folder, "a", "b.txt", "x.tsv")

    field = whole.schema.field("embedding").with_metadata({"hf_xsent": '{"model": "another"}'})
    refused(whole.set_column(2, field, whole["embedding"]), r"1.parquet were made with model another")
    texts = [f"x{number}" for number in range(len(whole))]
    refused(pa.table({"text": texts, "embedding": [row[:3] for row in vectors]}), "vectors of different lengths")
    table = pa.table({"text": pa.array([None] * len(whole), pa.string()), "embedding": vectors})
    pq.write_table(table, folder / "a" / "1.parquet")
    lines = _mine(folder, "a", "b.txt", "x.tsv").splitlines()
    assert len(lines) == (folder / "text.tsv").read_text().count("\n")


def test_an_encoder_replaces_its_column() -> None:
    encoder = Encoder(Words())
    table = encoder(pa.table({"text": ["a1", "b2"]}))
    assert encoder(table).schema.names == ["text", "embedding"]
