"""What a card of a tiny model says."""

from __future__ import annotations

from hf_xsent.publishing.model_card import CardFacts


def card_facts(**changed: object) -> CardFacts:
    facts = {
        "name": "dap-tiny",
        "base_model": "FacebookAI/xlm-roberta-base",
        "license": "mit",
        "languages": ["de", "en", "no"],
        "dimensions": 32,
        "pooling": "mean",
        "max_length": 16,
        "recipe": {
            "method": "dap",
            "objectives": {"translation_ranking": {"weight": 1.0}, "representation_translation": 0.8},
        },
        "repository": "org/dap-tiny",
    }
    return CardFacts(**(facts | changed))
