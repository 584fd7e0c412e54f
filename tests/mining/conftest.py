from __future__ import annotations

import pytest

from hf_xsent.data import sentences


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store 16 sentences per shard."""
    monkeypatch.setattr(sentences, "ROWS_PER_BATCH", 16)
