from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hf_xsent.data.sentences import load_sentences
from hf_xsent.errors import DataError, OutputError
from hf_xsent.mining.vectors import VectorStore, identify_model
from hf_xsent.models.embedder import SentenceEmbedder


def test_a_length_is_part_of_what_decides_a_vector(tiny_encoders: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    side = load_sentences(tmp_path / "a.txt", tmp_path)
    identities = [
        identify_model(str(tiny_encoders), SentenceEmbedder.from_pretrained(str(tiny_encoders), max_length=length))
        for length in (8, 16)
    ]
    VectorStore.open(tmp_path, side, identities[0])
    with pytest.raises(OutputError, match=r"results of another max_length \(8, not 16\): give another --work folder"):
        VectorStore.open(tmp_path, side, identities[1])


def test_a_vector_that_is_not_finite_is_told_with_its_line(tmp_path: Path) -> None:
    class Overflowing:
        def encode(self, sentences: list[str]) -> np.ndarray:
            return np.array([[1e6 if text == "two" else 1.0] for text in sentences], dtype=np.float32)

    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    store = VectorStore.open(tmp_path, load_sentences(tmp_path / "a.txt", tmp_path), {"model": "x"}, "float16")
    with (
        np.errstate(over="ignore"),
        pytest.raises(DataError, match=r"line 3 \('two'\) has a vector that is not finite in float16"),
    ):
        store.encode(Overflowing())
