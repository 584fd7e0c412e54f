"""What a card of a tiny model says."""

from __future__ import annotations

from typing import Any

STORED: dict[str, Any] = {
    "base_model": "FacebookAI/xlm-roberta-base",
    "license": "mit",
    "languages": ["de", "en", "no"],
    "recipe": {
        "method": "dap",
        "objectives": {"translation_ranking": {"weight": 1.0}, "representation_translation": 0.8},
    },
    "pairs": {"de": 1200},
    "training": ["Training took 8 steps (1.50 epochs)."],
}


ENCODING: dict[str, Any] = {
    **{"pooling": "mean", "max_length": 16, "dimensions": 32, "layer": 3, "normalize": False, "linear_map": False},
    **{"plain": True, "truncated": False, "prompted": False, "prompt": "", "pad_id": 0, "pad_token": "<pad>"},
    **{"token_types": False, "files": [], "opened": []},
}


def card_facts(**changed: object) -> dict[str, Any]:
    return {"name": "dap-tiny", "repository": "org/dap-tiny"} | STORED | ENCODING | changed
