"""Declare the settings of models besides objectives: config fields, recipe keys and flags."""

from __future__ import annotations

from dataclasses import dataclass

from hf_xsent.settings.declaring import setting


@dataclass(repr=False, eq=False)
class EncoderSettings:
    """How an encoder's hidden states become one vector per sentence."""

    pooling: str = setting(
        "cls",
        "Rule by which hidden states are pooled into the sentence embedding.",
        choices=("cls", "mean", "max", "sum"),
    )
    normalize: bool = setting(False, "Scale sentence embeddings to length 1.")
    max_length: int = setting(
        128, "Truncate sentences to this many tokens: 32 trains fastest, 128 truncates few sentences.", at_least=2
    )
    prompts: dict[str, str] | None = setting(
        None, "Prompts by name, as sentence-transformers stores them in an export: {query: 'query: '}."
    )
    default_prompt_name: str | None = setting(
        None, "Prepend this prompt to each sentence, in training and afterwards; without it, none."
    )
    dropout: float | None = setting(
        None, "Dropout of the encoder in training; without it, the checkpoint's dropout.", at_least=0, below=1
    )
    languages: list[str] | None = setting(
        None, "Add an embedding for each of these languages to the input; include the target language."
    )
    lora_rank: int | None = setting(
        None, "Freeze the encoder and train LoRA adapters of this rank, merged at the end.", at_least=1
    )
    lora_alpha: float | None = setting(None, "Scale adapters by alpha / rank; without it, alpha is 2 × rank.", above=0)
    lora_targets: list[str] | None = setting(
        None, "Names of the linear layers to adapt, such as query value; without it, all."
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
    """Settings of dual pivot's extraction over a frozen encoder."""

    layers: list[int] | None = setting(
        None, "Dual pivot: numbers of the hidden states to mix; 0 is the embedding layer. Without it, all.", at_least=0
    )
    layer_mix: bool = setting(True, "Dual pivot: train the weights of the mix; false averages the layers.")
    linear_map: bool = setting(True, "Dual pivot: train the linear map that follows the mix.")
