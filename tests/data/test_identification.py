from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.identification import check_language, contradicting_language, identify_language, sides_seem_swapped
from hf_xsent.errors import DataError

Pairs = list[tuple[str, str]]


def _pairs(assets: Path, code: str, count: int) -> Pairs:
    lines = (assets / "data" / "dev" / f"{code}-en.tsv").read_text(encoding="utf-8").splitlines()[:count]
    return [(source, target) for source, target in (line.split("\t") for line in lines)]


def _swapped(pairs: Pairs) -> Pairs:
    return [(target, source) for source, target in pairs]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("fr", "Les enfants sont dans le jardin avec leur mère, qui est assise sur un banc."),
        ("pl", "Dzieci są w ogrodzie ze swoją matką, która siedzi na ławce i czyta."),
        ("uk", "Діти в саду зі своєю матір'ю, яка сидить на лавці й читає книжку."),
        ("hi", "बच्चे बगीचे में अपनी माँ के साथ हैं और वह एक किताब पढ़ रही है।"),
        ("fa", "بچه ها با مادر خود در باغ هستند و او کتاب می خواند که از آن من است."),
        ("ja", "子供たちは庭にいます。"),
        ("zh", "孩子们和母亲在花园里。"),
        ("th", "เด็ก ๆ อยู่ในสวน"),
        (None, "1234 !?"),
        (None, ""),
    ],
)
def test_the_language_of_a_sentence(code: str | None, text: str) -> None:
    assert identify_language([text]) == code


def test_the_languages_of_tatoeba_are_not_contradicted(assets: Path) -> None:
    """A table of 36 languages took Polish for Afrikaans, and about 50 others for their nearest neighbour."""
    files = sorted((assets / "data" / "tatoeba").glob("tatoeba.???-eng.???"))
    sentences = {path.suffix[1:]: path.read_text("utf-8").splitlines() for path in files if path.suffix != ".eng"}
    assert len(sentences) == 112
    found = {code: contradicting_language(lines, code) for code, lines in sentences.items()}
    assert not (wrong := {code: other for code, other in found.items() if other is not None}), wrong


@pytest.mark.parametrize(
    ("language", "actual"), [("pl", "deu"), ("uk", "rus"), ("cs", "slk"), ("zh", "jpn"), ("sv", "nld")]
)
def test_another_language_is_refused(assets: Path, language: str, actual: str) -> None:
    lines = (assets / "data" / "tatoeba" / f"tatoeba.{actual}-eng.{actual}").read_text("utf-8").splitlines()[:50]
    check_language(lines, actual, "the source side")
    check_language(lines, "und", "the source side")
    check_language(lines, "csb", "the source side")  # Kashubian, which is not known
    with pytest.raises(DataError, match=r"the source side seems to be .*, not .*: check --language"):
        check_language(lines, language, "the source side")


def test_a_short_text_contradicts_nothing() -> None:
    assert contradicting_language(["Das ist ein Hund."], "fr") is None


@pytest.mark.parametrize("code", ["af", "de", "id", "nl", "sw", "tl", "vi", "zh"])
@pytest.mark.parametrize("count", [25, 300])
def test_swapped_columns_are_noticed_and_right_ones_are_not(assets: Path, code: str, count: int) -> None:
    pairs = _pairs(assets, code, count)
    for language in (code, "und"):
        assert not sides_seem_swapped(pairs, language, "en")
        assert sides_seem_swapped(_swapped(pairs), language, "en")


def test_the_source_language_decides_if_the_target_is_not_known(assets: Path) -> None:
    pairs = [(source, f"{source[::-1]} lo") for source, _ in _pairs(assets, "sw", 100)]
    assert not sides_seem_swapped(pairs, "sw", "csb")
    assert sides_seem_swapped(_swapped(pairs), "sw", "csb")
    assert not sides_seem_swapped(_swapped(pairs), "dsb", "csb")


def test_loading_warns_on_every_load_with_three_examples_and_names_undetermined_files(
    assets: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = _pairs(assets, "sw", 50)
    path = tmp_path / "sw.tsv"
    path.write_text("".join(f"{target}\t{source}\n" for source, target in pairs), encoding="utf-8")
    for _ in range(2):
        caplog.clear()
        with caplog.at_level("INFO", "hf_xsent"):
            load_bitext(path, cache_dir=tmp_path / "cache")
        (warning,) = (record.message for record in caplog.records if "swapped" in record.message)
        assert "sw.tsv" in warning and warning.count(" | ") == 4 and pairs[2][1][:60] in warning
        assert any("its code is und" in record.message and "sw.tsv" in record.message for record in caplog.records)
