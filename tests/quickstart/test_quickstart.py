from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hf_xsent.cli import main
from hf_xsent.pages.charts import standalone
from hf_xsent.quickstart.pool import PoolSearch, pool_chart
from hf_xsent.quickstart.quickstart import LANGUAGES, django_catalogues, quickstart

ROOT = Path(__file__).parents[2]


def test_the_picture_and_the_figures_of_the_readme_are_those_of_a_run():
    results = json.loads((ROOT / "benchmarks/results/quickstart.json").read_text("utf-8"))
    assert (ROOT / "docs/images/quickstart.svg").read_text("utf-8") == standalone(pool_chart(results["pool"]))
    caption = " ".join((ROOT / "README.md").read_text("utf-8").split())
    for figure in ("translation_first", "own_language"):
        before, after = (
            sum(scores[when][figure] for scores in results["pool"].values()) / len(results["pool"])
            for when in ("before", "after")
        )
        assert f"{before:.1f}%" in caption and f"{after:.1f}%" in caption
    assert f"{sum(results['pairs'].values()):,} pairs" in caption and f"{results['steps']} steps" in caption


@pytest.mark.parametrize("targets", [["Red", "Crimson", "Green"], ["Crimson", "Red", "Green"]])
def test_each_target_of_a_repeated_source_is_its_translation(targets: list[str]) -> None:
    class Model:
        def encode(self, texts: list[str]) -> np.ndarray:
            known = {
                "Rot": [1, 0.2, 0],
                "Grün": [0, 1, 0.1],
                "Red": [0, 0.8, 0.6],
                "Crimson": [1, 0.3, 0],
                "Green": [0, 1, 0],
            }
            return np.array([known[text] for text in texts])

    figures = PoolSearch(Model(), {"de": (["Rot", "Rot", "Grün"], targets)}).figures()
    assert figures["de"]["translation_first"] == 100


def test_a_pool_is_searched_beside_the_own_language():
    pairs = {"de": (["Hund", "Haus"], ["dog", "house"]), "fr": (["chien"], ["dog"])}

    class Letters:
        def encode(self, sentences: list[str]) -> np.ndarray:
            rows = {
                "Hund": (1, 0.2, 0),
                "dog": (1, 0, 0),
                "Haus": (1, 0.9, 0),
                "house": (0, 0, 1),
                "chien": (0.9, 0, 0),
            }
            return np.array([rows[sentence] for sentence in sentences])

    search = PoolSearch(Letters(), pairs)
    assert search.texts == ["Hund", "dog", "Haus", "house", "chien"]
    assert search.figures() == {
        "de": {"translation_first": 50.0, "own_language": 25.0},  # Haus finds Hund
        "fr": {"translation_first": 100.0, "own_language": 0.0},
    }
    assert [row["sentence"] for row in search.neighbours(2)] == ["Hund", "dog", "chien", "house"]


def test_djangos_messages_are_listed_by_language():
    catalogues = django_catalogues()
    assert list(catalogues) == [*LANGUAGES]
    assert all(catalogues.values())
    assert all(path.endswith("django.po") for path in catalogues["de"])


def test_the_quickstart_with_your_own_pairs_trains_a_model(
    tiny_encoders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    nouns = ["dog", "cat", "bird", "boy", "girl", "cook", "king", "child"]
    places = ["garden", "house", "street", "wood", "river"]
    rows = [
        f"Da ist {noun} Nummer {number} bei {place}.\tHere is {noun} number {number} near the {place}.\n"
        for number, (noun, place) in enumerate((noun, place) for noun in nouns for place in places)
    ]
    data = tmp_path / "my.tsv"
    data.write_text("".join(rows), encoding="utf-8")
    output = tmp_path / "quickstart"
    arguments = ["quickstart", "--model", str(tiny_encoders), "--data", f"de={data}", "--output", str(output)]
    monkeypatch.setattr("hf_xsent.quickstart.quickstart.TOO_EASY", 0.0)
    assert main([*arguments, "--max_steps", "3", "--dev_pairs", "5"]) == 0
    results = json.loads((output / "results.json").read_text("utf-8"))
    assert results["held_out"] == {"de": 5} and results["sentences"] == 10
    assert not results["example"]["query"].endswith("'])")
    assert (output / "model" / "modules.json").is_file() and (output / "pool.svg").is_file()
    printed = capsys.readouterr().out
    assert "query: " in printed and printed.count("  German: ") + printed.count("  English: ") == 10
    assert "warning: the held-out pairs are too easy" in printed
    assert main(arguments) == 2  # the folder is taken
    assert main([*arguments[:-1], str(data)]) == 2
    assert "my.tsv: Not a directory" in capsys.readouterr().err


def test_the_pool_is_searched_with_the_same_length_before_and_after_training(
    encoder_folders: dict[str, Path], tmp_path: Path
):
    # Sentences of a language differ only beyond the length with which the model is trained.
    rows = [f"{'Hund ' * 70}Da {number}\t{'dog ' * 70}Here {number}\n" for number in range(20)]
    data = tmp_path / "de.tsv"
    data.write_text("".join(rows), encoding="utf-8")
    results = quickstart(
        model=str(encoder_folders["bert"]), data=str(data), output=str(tmp_path / "out"), max_steps=1, dev_pairs=4
    )
    for when in ("before", "after"):
        assert [neighbour["cosine"] for neighbour in results.data["example"][when][:3]] == [1.0, 1.0, 1.0]
