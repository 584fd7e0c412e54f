"""Vectors leave as Parquet that databases read, and mining reads them in place of text."""

from __future__ import annotations

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


def test_a_database_reads_the_vectors(folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: the extra hf-xsent[dev] brings it")
    _mine(folder, "a.txt", "b.txt", "text.tsv", vectors=folder / "vectors")
    query = """
        select b.text from read_parquet($target) as b, read_parquet($source) as a where a.text = 'a45'
        order by array_cosine_similarity(b.embedding::float[24], a.embedding::float[24]) desc limit 1
    """
    files = {side: f"{folder}/vectors/{side}/*.parquet" for side in ("source", "target")}
    assert duckdb.execute(query, files).fetchall() == [("b45",)]


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
    with pytest.raises(DataError, match="were made with model .*: give the model that made them"):
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
