from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.data.swapped_columns import warn_of_swapped_columns


def _write(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{first}\t{second}\n" for first, second in pairs), encoding="utf-8")
    return path


def _pairs(assets: Path, code: str, count: int) -> list[tuple[str, str]]:
    lines = (assets / "data" / "dev" / f"{code}-en.tsv").read_text(encoding="utf-8").splitlines()[:count]
    return [(source, target) for source, target in (line.split("\t") for line in lines)]


@pytest.mark.parametrize("code", ["af", "de", "id", "nl", "sw", "tl", "vi", "zh"])
@pytest.mark.parametrize("count", [25, 300])
def test_swapped_columns_are_noticed_and_right_ones_are_not(
    assets: Path, tmp_path: Path, code: str, count: int
) -> None:
    pairs = _pairs(assets, code, count)
    right = _write(tmp_path / "right.tsv", pairs)
    swapped = _write(tmp_path / "swapped.tsv", [(target, source) for source, target in pairs])
    for language in (code, "und"):
        assert not warn_of_swapped_columns(BitextSource(language, str(right)))
        assert warn_of_swapped_columns(BitextSource(language, str(swapped)))
    assert not warn_of_swapped_columns(BitextSource(code, str(swapped), source_column=1, target_column=0))


def test_the_source_language_decides_if_the_target_is_not_known(assets: Path, tmp_path: Path) -> None:
    pairs = [(source, f"{source[::-1]} lo") for source, _ in _pairs(assets, "sw", 100)]
    path = _write(tmp_path / "pairs.tsv", pairs)
    assert not warn_of_swapped_columns(BitextSource("sw", str(path), target_language="mt"))
    path = _write(tmp_path / "pairs.tsv", [(target, source) for source, target in pairs])
    assert warn_of_swapped_columns(BitextSource("sw", str(path), target_language="mt"))
    assert not warn_of_swapped_columns(BitextSource("zu", str(path), target_language="mt"))


def test_loading_warns_on_every_load_with_three_examples_and_names_undetermined_files(
    assets: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = _pairs(assets, "sw", 50)
    path = _write(tmp_path / "sw.tsv", [(target, source) for source, target in pairs])
    for _ in range(2):
        caplog.clear()
        with caplog.at_level("INFO", "hf_xsent"):
            load_bitext(path, cache_dir=tmp_path / "cache")
        (warning,) = (one.message for one in caplog.records if "swapped" in one.message)
        assert "sw.tsv" in warning and warning.count(" | ") == 4 and pairs[2][1][:60] in warning
        assert any("its code is und" in one.message and "sw.tsv" in one.message for one in caplog.records)
