from __future__ import annotations

from pathlib import Path

import pytest
from training_run import Pairs, Run


@pytest.fixture
def run(tmp_path: Path, encoder_folders: dict[str, Path], pairs: Pairs) -> Run:
    return Run(tmp_path, encoder_folders["bert"], pairs)
