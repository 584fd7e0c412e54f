"""Lines of text in work folders: damage is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent.stored_lines import read_with_checksum, write_with_checksum


@pytest.mark.parametrize("lines", [[], [""], ["ein Hund", "\u2028 a\rb", ""]])
def test_stored_lines_are_read_back(tmp_path: Path, lines: list[str]) -> None:
    write_with_checksum(tmp_path / "x", lines)
    assert read_with_checksum(tmp_path / "x") == lines


def test_a_flipped_bit_a_missing_end_and_a_missing_file_are_noticed(tmp_path: Path) -> None:
    write_with_checksum(tmp_path / "x", ['{"score": 0.25}', '{"score": 0.5}'])
    content = (tmp_path / "x").read_bytes()
    for place in range(len(content)):
        (tmp_path / "x").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert read_with_checksum(tmp_path / "x") is None
    (tmp_path / "x").write_bytes(content[:-1])
    assert read_with_checksum(tmp_path / "x") is None
    assert read_with_checksum(tmp_path / "y") is None
