"""One process at a time holds a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent.errors import OutputError
from hf_xsent.runs.claim import claim_folder


def test_a_folder_in_use_is_refused_and_free_again_afterwards(tmp_path: Path) -> None:
    with (
        claim_folder(tmp_path),
        pytest.raises(OutputError, match="is in use by another process: wait until it ends"),
        claim_folder(tmp_path),
    ):
        pass
    with claim_folder(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
