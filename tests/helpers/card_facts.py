"""What a card of a tiny model says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hf_xsent.publishing.evaluation_tables import EvaluationTable
from hf_xsent.publishing.facts import ModelFacts, Stage
from hf_xsent.publishing.model_card import render_card

STAGE = Stage(
    recipe={"method": "dap", "objectives": {"translation_ranking": {"weight": 1.0}, "representation_translation": 0.8}},
    pairs={"de": 1200},
    steps=8,
    epochs=1.5,
)
FACTS = ModelFacts(
    stages=[STAGE], languages=["de", "en", "no"], base_model="FacebookAI/xlm-roberta-base", license="mit"
)
ENCODING: dict[str, Any] = {
    **{"pooling": "mean", "max_length": 16, "dimensions": 32, "layer": 3, "normalize": False, "linear_map": False},
    **{"plain": True, "truncated": False, "prompted": False, "prompt": "", "pad_id": 0, "pad_token": "<pad>"},
    **{
        "dtype": "float32",
        "token_types": False,
        "truncates_left": False,
        "fast_tokenizer": True,
        "embedded_languages": [],
        "files": [],
        "opened": [],
    },
}


def rendered(
    recipe: Mapping[str, Any] = STAGE.recipe,
    repository: str = "org/dap-tiny",
    tables: Sequence[EvaluationTable] = (),
    **encoding: Any,
) -> str:
    """Return the text of the card, of this recipe and encoding."""
    facts = replace(FACTS, stages=[replace(STAGE, recipe=recipe)])
    return str(render_card(facts, ENCODING | encoding, repository, tables))
