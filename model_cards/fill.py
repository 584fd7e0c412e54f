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
from hf_xsent.publishing.evaluation_tables import EvaluationTable, read_tables
from hf_xsent.publishing.model_card import CardFacts, render_card

HERE = Path(__file__).parent
RECIPES = HERE.parent / "trainer_scripts" / "recipes"
RESULTS = HERE.parent / "benchmarks" / "results"


def filled(name: str, published: dict[str, Any]) -> str:
    """Render one card: the recipe that trains the model, and its paper's results."""
    recipe = yaml.safe_load((RECIPES / published["recipe"]).read_text("utf-8"))
    note = f"Source: {published['source']}."
    facts = CardFacts(
        name=name,
        base_model=recipe["model"],
        license=published["license"],
        languages=published["languages"],
        dimensions=published["dimensions"],
        pooling=recipe.get("pooling", METHODS[recipe["method"]][0]().pooling),
        max_length=recipe["max_length"],
        recipe=recipe,
        repository=f"org/{name}",
        tables=[
            EvaluationTable(
                title=benchmark["title"],
                table=Table(benchmark["header"], [[str(cell) for cell in row] for row in benchmark["rows"]]),
                note=note,
                measured=False,
            )
            for benchmark in published["tables"]
        ],
        recipe_title=f"The recipe `trainer_scripts/recipes/{published['recipe']}`",
    )
    return str(render_card(facts))


def measured(name: str, trained: dict[str, Any]) -> str:
    """Render the card of a model that was trained here: its recipe and its measured results."""
    recipe = yaml.safe_load((RECIPES / trained["recipe"]).read_text("utf-8"))
    of_all = [report.settings for report in read_reports(RESULTS / trained["results"])]
    fingerprints = {settings["model_fingerprint"] for settings in of_all if settings["model"] == trained["model"]}
    facts = CardFacts(
        name=name,
        **{key: trained[key] for key in ("base_model", "license", "languages", "dimensions", "training")},
        pooling=recipe["pooling"],
        max_length=recipe["max_length"],
        recipe=recipe,
        repository=f"org/{name}",
        tables=read_tables(RESULTS / trained["results"], fingerprints=fingerprints),
    )
    note = "> **The weights are not published**: `docs/train_a_strong_model.md` has the commands that train them."
    return str(render_card(facts)).replace("\n## Use\n", f"\n{note}\n\n## Use\n", 1)


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
