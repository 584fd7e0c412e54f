from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent.data import sentences


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store 16 sentences per shard."""
    monkeypatch.setattr(sentences, "ROWS_PER_BATCH", 16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Lines 0–59 and 40–99: twenty translations; one line twice."""
    (tmp_path / "a.txt").write_text("".join(f"a{i}\n" for i in range(60)) + "a3\n")
    (tmp_path / "b.txt").write_text("".join(f"b{i}\n" for i in range(99, 39, -1)))
    return tmp_path
