from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from page_reader import Page

from hf_xsent.cli import main
from hf_xsent.errors import DataError
from hf_xsent.quickstart.quickstart import django_catalogues, search_examples
from hf_xsent.quickstart.report import report

RESULTS = {
    "model": "<my & encoder>",
    "steps": 40,
    "pairs": {"de": 1200, "und": 3},
    "held_out": {"de": 60, "und": 2},
    "accuracy": {"de": {"before": 10.0, "after": 90.0}, "und": {"before": 0.0, "after": 50.0}},
    "losses": [[20, 3.5], [40, 0.5]],
    "search": [["Wo <b>?", "Where?", 0.5, "Where?"], ["Wer?", "Where?", 0.4, "Who?"]],
    "seconds": 12,
}


def test_the_report_is_one_page_that_needs_no_network():
    page = Page(report(RESULTS).html())
    assert page.links == []
    text = page.text
    assert "From 5.0% to 70.0% of translations found" in text
    assert "German" in text and "your pairs" in text
    assert "<my & encoder>" in text and "Wo <b>?" in text  # escaped in the page
    assert "✓ right" in text and "✗ wrong: Who?" in text


def test_a_file_as_output_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "pairs.tsv").write_text("")
    assert main(["quickstart", "--output", str(tmp_path / "pairs.tsv")]) == 2
    assert "pairs.tsv is a file: choose a folder" in capsys.readouterr().err


def test_examples_are_of_different_sentences_and_state_the_translation():
    class Letters:
        def encode(self, sentences: list[str]) -> np.ndarray:
            return np.array([[one.count("0"), one.count("1"), one.count("2") + 0.1] for one in sentences])

        def similarity(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
            return first @ second.T

    targets = [f"the sentence with the number {number * 6} in it, and more" for number in "012"]
    pairs = {code: ([f"{code} {one}" for one in targets], targets) for code in ("de", "fr", "sw")}
    examples = search_examples(Letters(), pairs)
    assert [query[:2] for query, *_ in examples] == ["de", "fr", "sw"]
    assert {translation for *_, translation in examples} == set(targets)
    assert all(nearest == translation for _, nearest, _, translation in examples)


@pytest.mark.parametrize("losses", [[], [[20, 3.5]]])
def test_a_run_too_short_for_a_curve_still_gets_its_report(losses: list[list[float]]):
    assert "Too few steps" in report(RESULTS | {"losses": losses}).html()


def test_djangos_messages_are_found_by_language():
    catalogues = django_catalogues(["de", "zh_Hans"])
    assert list(catalogues) == ["de", "zh_Hans"]
    assert all(path.endswith("django.po") for path in catalogues["de"])
    with pytest.raises(DataError, match="no messages in 'dee'; did you mean 'de'"):
        django_catalogues(["dee"])


def test_the_quickstart_with_your_own_pairs_exports_a_model(
    tiny_encoders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    nouns, places = (
        ["dog", "cat", "bird", "boy", "girl", "cook", "king", "child"],
        ["garden", "house", "street", "wood", "river"],
    )
    rows = [
        f"Da ist {noun} Nummer {number} bei {place}.\tHere is {noun} number {number} near the {place}.\n"
        for number, (noun, place) in enumerate((noun, place) for noun in nouns for place in places)
    ]
    data = tmp_path / "my.tsv"
    data.write_text("".join(rows), encoding="utf-8")
    output = tmp_path / "quickstart"
    arguments = ["quickstart", "--model", str(tiny_encoders), "--data", str(data), "--output", str(output)]
    assert main([*arguments, "--max_steps", "3", "--dev_pairs", "5"]) == 0
    results = json.loads((output / "results.json").read_text("utf-8"))
    assert results["held_out"] == {"und": 5}
    assert (output / "model" / "modules.json").is_file() and (output / "report.html").is_file()
    assert "accuracy@1 (%)" in capsys.readouterr().out
    assert main(arguments) == 2  # the folder is taken
