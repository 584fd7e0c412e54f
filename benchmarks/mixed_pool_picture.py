"""Draw the picture of the README: accuracy in a mixed collection of two models of a results file.

python benchmarks/mixed_pool_picture.py benchmarks/results/suite.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_xsent.data.languages import find_language
from hf_xsent.files import write_text
from hf_xsent.pages.charts import bar_chart, standalone

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "mixed_pool.svg"
BEFORE, AFTER = "start", "mixed"  # names of models in the results
LANGUAGES = ("de", "es", "fr", "tr", "ru", "el", "ar", "he", "hi", "ja", "ko", "zh", "sw")


def picture(results: Mapping[str, Any]) -> str:
    """Draw bars before and after training, for some languages and the mean of all."""
    runs = {run["settings"]["model"]: run for run in results["runs"] if run["task"] == "mixed_pool"}
    before, after = runs[BEFORE], runs[AFTER]
    codes = {find_language(code).code: code for code in before["languages"]}
    bars = {
        find_language(language).name: [run["languages"][codes[language]]["beside"] for run in (before, after)]
        for language in LANGUAGES
        if language in codes
    }
    bars[f"mean of all {len(codes)}"] = [run["groups"]["all"]["beside"] for run in (before, after)]
    title = "% of translations that are nearer than all sentences of the query's language"
    return standalone(bar_chart(title, bars, ["before training", "after training"], key=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    write_text(PICTURE, picture(json.loads(parser.parse_args().results.read_text("utf-8"))))
