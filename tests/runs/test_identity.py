"""What decides a result is identified by its content: models, files and settings."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from hf_xsent.runs.identity import deciding_settings, differences, identify_files


def test_files_are_identified_by_content_not_by_name_or_time(tmp_path: Path) -> None:
    first, copy = tmp_path / "a.tsv", tmp_path / "b.tsv"
    first.write_text("Hund\tdog\n")
    copy.write_text("Hund\tdog\n")
    os.utime(copy, (0, 0))
    assert identify_files([first]) == identify_files([copy])
    copy.write_text("Hund\tcat\n")
    assert identify_files([first]) != identify_files([copy])
    assert identify_files([first, copy]) != identify_files([copy, first])


@dataclass
class Inner:
    rate: float = 0.1
    threads: int = field(default=1, metadata={"results": False})


@dataclass
class Outer:
    seed: int = 0
    output: str = field(default="out", metadata={"results": False})
    inner: Inner = field(default_factory=Inner)


def test_every_setting_decides_results_unless_it_is_declared_not_to() -> None:
    assert deciding_settings(Outer()) == {"seed": 0, "inner": {"rate": 0.1}}


def test_differences_name_what_only_one_side_has() -> None:
    assert differences({"seed": 1, "k": 4}, {"seed": 1, "top": 2}) == {"k": (4, None), "top": (None, 2)}
