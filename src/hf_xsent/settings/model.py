"""Declare the settings of models besides objectives: config fields, recipe keys and flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hf_xsent.settings.declare import setting


def pooling_setting(default: str | None) -> Any:
    """Declare the pooling; papers have their own default."""
    return setting(
        default,
        "How to pool the hidden states into a sentence embedding. (default: cls for the methods dap, ppa and wacse, "
        "as in their papers; otherwise the starting model's, and mean for a plain encoder; dual pivot: sum or mean)",
        choices=("cls", "mean", "max"),
    )


@dataclass(repr=False, eq=False)
class EncoderSettings:
    """How an encoder's hidden states become one vector per sentence."""

    pooling: str | None = pooling_setting(None)
    normalize: bool | None = setting(
        None,
        "Scale sentence embeddings to length 1. (default: as the starting model does; false for a plain encoder, true "
        "for dual pivot)",
    )
    max_length: int = setting(
        128, "Truncate sentences to this many tokens: 32 trains fastest, 128 truncates few sentences.", at_least=3
    )
    prompts: dict[str, str] | None = setting(
        None,
        "Prompts by name, as sentence-transformers stores them in an export: {query: 'query: '}. (default: the "
        "starting model's; {} for none)",
        metavar="{NAME: TEXT}",
    )
    default_prompt_name: str | None = setting(
        None,
        "Name of the prompt to prepend to each sentence, in training and afterwards; null: none. (default: the "
        "starting model's, if its prompts are used; else none)",
    )
    dropout: float | None = setting(
        None, "Dropout of the encoder in training; without it, the checkpoint's dropout.", at_least=0, below=1
    )
    encoder_layers: int | None = setting(
        None,
        "Start a smaller student from N evenly spaced layers, the first and the last included; without it, all layers.",
        at_least=1,
    )
    languages: list[str] | None = setting(
        None,
        "Add the embedding of its language to each token; list all languages, with the target language.",
        metavar="CODE",
    )
    language_std: float = setting(
        0.0, "Standard deviation of new language embeddings; 0 starts them at zero.", at_least=0
    )
    lora_rank: int | None = setting(
        None,
        "Freeze the encoder and train LoRA adapters of this rank, scaled by 2 and merged at the end; without it, all "
        "weights train.",
        at_least=1,
    )


@dataclass(repr=False, eq=False)
class PairSettings:
    """Training settings that apply to all objectives."""

    random_input_shuffling: bool = setting(False, "Swap source and target of each pair at random (PPA).")
    training_mlp: bool = setting(
        False, "Add a linear layer with tanh over sentence embeddings, in training only, as in DAP's authors' code."
    )


@dataclass(repr=False, eq=False)
class ExtractionSettings:
    """Settings of dual pivot's extraction over a frozen encoder; ``VARIANTS`` has the defaults of each variant."""

    variant: str = setting(
        "paper",
        "Dual pivot: take the defaults of pooling, dropout, layer_norm, map_bias, map_start, paired_rows, hinge, "
        "random_negatives and mask_repeated from the paper's text (paper), or from the authors' code, which produced "
        "its results (authors).",
        choices=("paper", "authors"),
    )
    layers: list[int] | None = setting(
        None, "Dual pivot: numbers of the hidden states to mix; 0 is the embedding layer. Without it, all.", at_least=0
    )
    layer_mix: bool = setting(True, "Dual pivot: train the weights of the mix; false averages the layers.")
    linear_map: bool = setting(True, "Dual pivot: train the linear map that follows the mix.")
    layer_norm: bool | None = setting(
        None, "Dual pivot: train a layer norm of each token's mix; it needs layer_mix. (default: the variant's)"
    )
    map_bias: bool | None = setting(
        None,
        "Dual pivot: train biases of the linear map, of the cycle's maps F and G, and of the critic. (default: the "
        "variant's)",
    )
    map_start: str | None = setting(
        None,
        "Dual pivot: start of the linear map: identity, or random as torch does (default: the variant's). F, G and the "
        "critic always start at random.",
        choices=("identity", "random"),
    )
    paired_rows: bool | None = setting(
        None,
        "Dual pivot, objectives that need no pairs: keep the two sides of each bitext row together; false shuffles the "
        "two sides independently. (default: the variant's)",
    )


VARIANTS: dict[str, dict[str, Any]] = {  # defaults of dual pivot by variant
    "paper": {
        "pooling": "sum",
        "dropout": 0.0,
        "layer_norm": False,
        "map_bias": False,
        "map_start": "identity",
        "paired_rows": False,
    },
    "authors": {
        "pooling": "mean",
        "dropout": 0.1,
        "layer_norm": True,
        "map_bias": True,
        "map_start": "random",
        "paired_rows": True,
    },
}
_RANKING = {"hinge": False, "random_negatives": "bernoulli", "mask_repeated": False}
VARIANT_OBJECTIVES: dict[str, dict[str, Any]] = {
    "paper": {},
    "authors": {"triplet_ranking": _RANKING, "cycle": _RANKING},
}
