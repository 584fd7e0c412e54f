"""Write the cards of the papers' models from their recipes and published results.

python model_cards/fill.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hf_xsent.models import METHODS
from hf_xsent.publishing.evaluation_tables import EvaluationTable
from hf_xsent.publishing.model_card import CardFacts, render_card

HERE = Path(__file__).parent
RECIPES = HERE.parent / "trainer_scripts" / "recipes"


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
                title=one["title"],
                header=[str(cell) for cell in one["header"]],
                rows=[[str(cell) for cell in row] for row in one["rows"]],
                note=note,
                measured=False,
            )
            for one in published["tables"]
        ],
        trained_here=False,
        settings_from=f"The recipe `trainer_scripts/recipes/{published['recipe']}`",
    )
    return str(render_card(facts))


def cards() -> dict[str, str]:
    """Render all cards, by file name."""
    published = yaml.safe_load((HERE / "published.yaml").read_text("utf-8"))["cards"]
    return {f"{name}.md": filled(name, one) for name, one in published.items()}


if __name__ == "__main__":
    for file, text in cards().items():
        (HERE / file).write_text(text, encoding="utf-8")
