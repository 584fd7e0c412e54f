from __future__ import annotations

import pytest

from hf_xsent.data.identification import identify_language


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("fr", "Les enfants sont dans le jardin avec leur mère, qui est assise sur un banc."),
        ("nl", "De kinderen zijn in de tuin met hun moeder, die op een bank zit."),
        ("bg", "Децата са в градината с майка си, която седи на пейката и чете."),
        ("hi", "बच्चे बगीचे में अपनी माँ के साथ हैं और वह एक किताब पढ़ रही है।"),
        ("fa", "بچه ها با مادر خود در باغ هستند و او کتاب می خواند که از آن من است."),
        ("ja", "子供たちは庭にいます。"),
        ("zh", "孩子们和母亲在花园里。"),
        ("th", "เด็ก ๆ อยู่ในสวน"),
        ("el", "Τα παιδιά είναι στον κήπο."),
        (None, "1234 !?"),
        (None, "Xyz abc qwertz"),
    ],
)
def test_languages_by_script_and_frequent_words(code: str | None, text: str) -> None:
    assert identify_language([text]) == code
