from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent.data.languages import find_language, known_languages, scripts_of
from hf_xsent.errors import DataError


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("de", "de"), ("deu", "de"), ("ger", "de"), ("DE", "de"), ("cmn", "zh"), ("pes", "fa"), ("swh", "sw"),
        ("ekk", "et"), ("zsm", "ms"), ("nob", "nb"), ("lvs", "lv"), ("khk", "mn"), ("pt_BR", "pt"), ("zh-hans", "zh"),
        ("de_DE.UTF-8", "de"), ("ca@valencia", "ca"), ("ar-dz", "ar"), ("arq", "arq"), ("yue", "yue"), ("und", "und"),
    ],
)  # fmt: skip
def test_finds_a_language_by_any_of_its_codes(code: str, expected: str) -> None:
    assert find_language(code).code == expected


@pytest.mark.parametrize(
    ("code", "scripts"),
    [
        ("sr", {"Cyrl", "Latn"}), ("sr_Latn", {"Latn"}), ("sr@latin", {"Latn"}), ("uz@cyrillic", {"Cyrl"}),
        ("zh-Hans", {"Hani"}), ("zh_Hant_TW", {"Hani"}), ("ja", {"Hani", "Hira", "Kana"}), ("und", set()),
        ("und-Latn", {"Latn"}),
    ],
)  # fmt: skip
def test_a_script_subtag_overrides_the_expected_script(code: str, scripts: set[str]) -> None:
    assert set(find_language(code).scripts) == scripts


@pytest.mark.parametrize("code", ["acm", "acq", "aeb", "ajp", "apc", "ar", "arq", "ars", "ary", "arz"])
def test_varieties_of_arabic_have_its_script(code: str) -> None:
    assert "Arab" in find_language(code).scripts


@pytest.mark.parametrize(
    ("code", "hint"), [("deuu", "'deu'"), ("german", "'de'"), ("qq", "ISO 639"), ("sr-Xyzw", "Xyzw"), ("", "ISO 639")]
)
def test_an_unknown_code_is_named_with_a_hint(code: str, hint: str) -> None:
    with pytest.raises(DataError) as error:
        find_language(code)
    assert repr(code) in str(error.value)
    assert hint in str(error.value)


def test_codes_are_unique_and_lead_back_to_their_language() -> None:
    for language in known_languages():
        assert find_language(language.code) == find_language(language.iso3) == language


@pytest.mark.parametrize(
    ("text", "scripts"),
    [
        ("Привет, Tom! 3²", {"Cyrl": 6, "Latn": 3}),
        ("今日はデス", {"Hani": 2, "Hira": 1, "Kana": 2}),
        ("Ｆｕｌｌ", {"Latn": 4}),
        ("12 %", {}),
        ("", {}),
    ],
)
def test_counts_letters_by_script(text: str, scripts: dict[str, int]) -> None:
    assert scripts_of(text) == scripts


@given(st.text())
def test_never_counts_more_than_the_letters(text: str) -> None:
    assert sum(scripts_of(text).values()) <= sum(map(str.isalpha, text))


def test_importing_it_loads_no_heavy_library() -> None:
    code = (
        "import sys, types, pathlib, importlib.util as u\n"
        "root = types.ModuleType('hf_xsent'); root.__path__ = [str(pathlib.Path(sys.argv[1]).parents[1])]\n"
        "sys.modules['hf_xsent'] = root\n"
        "import hf_xsent.data.bitext\n"
        "print([name for name in ('torch', 'datasets', 'pyarrow', 'transformers') if name in sys.modules])"
    )
    import hf_xsent.data.languages as module

    out = subprocess.run([sys.executable, "-c", code, str(module.__file__)], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
