from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent.data.identification import check_language, check_order, contradicting_language, identify_language
from hf_xsent.errors import DataError


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
    with pytest.raises(DataError, match=r"the source side seems to be .*, not .*: check language"):
        check_language(lines, language, "the source side")


def test_a_short_text_contradicts_nothing() -> None:
    assert contradicting_language(["Das ist ein Hund."], "fr") is None


def test_swapped_sides_of_tatoeba_are_found_and_others_are_not_refused(assets: Path) -> None:
    not_found = set()
    for path in sorted((assets / "data" / "tatoeba").glob("tatoeba.???-eng.eng")):
        code = path.name[8:11]
        target, source = (path.with_suffix(f".{side}").read_text("utf-8").splitlines()[:100] for side in ("eng", code))
        check_order((source, target), (code, "eng"), "pairs")
        try:
            check_order((target, source), (code, "eng"), "pairs")
            not_found.add(code)
        except DataError as error:
            assert "source and target, stated as" in str(error)
    assert not_found == {"ang", "cha", "csb", "dtp", "ile", "ina", "kzj", "lfn", "nds", "nov", "tzl"}  # are not known
