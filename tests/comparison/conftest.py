from __future__ import annotations

from pathlib import Path

import pytest
from study_file import Pairs, StudyFile


@pytest.fixture
def study(tmp_path: Path, encoder_folders: dict[str, Path], pairs: Pairs) -> StudyFile:
    return StudyFile(tmp_path, encoder_folders["bert"], pairs)
