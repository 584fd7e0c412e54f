"""Write the cards of the papers' models from published results, and those of models trained here from measured ones.

python model_cards/fill.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hf_xsent.evaluation.report import read_reports
from hf_xsent.models import METHODS
from hf_xsent.pages.tables import Table
from hf_xsent.publishing.evaluation_tables import EvaluationTable, read_results, tabulate
from hf_xsent.publishing.facts import ModelFacts, Stage
from hf_xsent.publishing.model_card import render_card
from hf_xsent.settings.recipes import recipe_file

HERE = Path(__file__).parent
RESULTS = HERE.parent / "benchmarks" / "results"
ENCODING = {  # of all of these models
    **{"plain": True, "normalize": False, "linear_map": False, "truncated": False, "prompted": False, "prompt": ""},
    **{"fast_tokenizer": True, "embedded_languages": [], "files": [], "opened": []},
}


def filled(name: str, published: dict[str, Any]) -> str:
    """Render one card: the recipe that trains the model, and its paper's results."""
    note = (
        "**No weights were trained for this card.** It describes the model that the recipe trains; all figures under "
        "*Results* are the paper's."
    )
    title = f"The recipe `{published['recipe']}`"
    tables = [
        EvaluationTable(
            title=f"{benchmark['title']} (**the paper's figures, not measured here**)",
            table=Table(benchmark["header"], [[str(cell) for cell in row] for row in benchmark["rows"]]),
            note=f"Source: {published['source']}.",
        )
        for benchmark in published["tables"]
    ]
    facts, encoding, more = _parts(published)
    return str(render_card(facts, encoding, name, tables, note=note, recipe_title=title, **more))


def measured(name: str, trained: dict[str, Any]) -> str:
    """Render the card of a model that was trained here: its recipe and its measured results."""
    note = f"**The weights are not published**: `docs/train_a_strong_model.md` has the commands that write `{name}`."
    path = RESULTS / trained["results"]
    of_all = [report.settings for report in read_reports(path)]
    fingerprints = {settings["model_fingerprint"] for settings in of_all if settings["model"] == trained["model"]}
    facts, encoding, more = _parts(trained)
    tables = tabulate(read_results([path], fingerprints), encoding)
    return str(render_card(facts, encoding, name, tables, note=note, **more))


def _parts(stated: dict[str, Any]) -> tuple[ModelFacts, dict[str, Any], dict[str, Any]]:
    """Return the facts that are stated of a model, how its recipe encodes, and sentences on its training."""
    recipe = yaml.safe_load(recipe_file(stated["recipe"]).read_text("utf-8"))
    pooling = recipe.get("pooling") or METHODS[recipe["method"]][0]().pooling
    stated = {"base_model": recipe.get("model"), "license": ""} | stated
    facts = ModelFacts([Stage(recipe)], **{name: stated[name] for name in ("languages", "base_model", "license")})
    encoding = ENCODING | {"pooling": pooling, "max_length": recipe["max_length"]} | stated
    return facts, encoding, {"sentences_of_training": stated.get("training", [])}


def cards() -> dict[str, str]:
    """Render all cards, by file name."""
    published = yaml.safe_load((HERE / "published.yaml").read_text("utf-8"))["cards"]
    trained = yaml.safe_load((HERE / "trained.yaml").read_text("utf-8"))
    return {f"{name}.md": filled(name, one) for name, one in published.items()} | {
        f"{name}.md": measured(name, one) for name, one in trained.items()
    }


if __name__ == "__main__":
    for file, text in cards().items():
        (HERE / file).write_text(text, encoding="utf-8")
