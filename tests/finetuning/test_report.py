from __future__ import annotations

import pytest

from hf_xsent.finetuning.report import FineTuningReport

FIFTEEN = ["en", "fr", "es", "de", "el", "bg", "ru", "tr", "ar", "vi", "th", "zh", "hi", "sw", "ur"]


def _report(languages: list[str], setting: str = "zero-shot") -> FineTuningReport:
    return FineTuningReport("xnli", setting, {one: {"accuracy": 50.0 + n} for n, one in enumerate(languages)})


def test_published_means_are_over_the_languages_of_their_rows() -> None:
    published = _report(FIFTEEN).published()
    assert {"mBERT + DAP (DAP)", "XLM-R + DAP (DAP)", "XLM-R + WACSE (WACSE)", "LaBSE (DAP)", "PPA 2M"} <= {*published}
    for name, model in published.items():
        languages = [one for one in model if one != "mean"]
        assert sum(model[one] for one in languages) / len(languages) == pytest.approx(model["mean"], abs=0.06), name
    assert published["XLM-R + WACSE (WACSE)"]["mean"] == 74.2
    assert published["mBERT + DAP (DAP)"]["sw"] == 67.3


def test_each_paper_is_compared_on_its_own_languages() -> None:
    lines = _report(FIFTEEN).table().splitlines()
    eight = [one for one in lines if one.startswith("mean of the 8")]
    assert [one.split()[-1] for one in eight] == ["55.25"]  # 50, 51, 52, 53, 55, 58, 61 and 62
    (wacse,) = [one for one in lines if one.startswith("XLM-R + WACSE")]
    assert wacse.split()[-3:] == ["74.20", "of", "15"]
    (ppa,) = [one for one in lines if one.startswith("PPA 2M")]
    assert ppa.split()[-3:] == ["74.30", "of", "8"]


def test_few_measured_languages_are_compared_alone() -> None:
    lines = _report(["de", "en"]).table().splitlines()
    assert not any(one.startswith("mean of the") for one in lines)
    (ppa,) = [one for one in lines if one.startswith("PPA 2M")]
    assert ppa.split() == ["PPA", "2M", "74.20", "82.80", "74.30", "of", "8"]
    assert "published" not in _report(["de"], "unknown training").table()
