"""Reduce an encoder to some of its layers, as the start of a smaller and faster student."""

from __future__ import annotations

from copy import deepcopy

from transformers import PreTrainedConfig, PreTrainedModel

from hf_xsent.errors import RecipeError
from hf_xsent.models.families import backbone_of


def spaced_layers(total: int, count: int) -> list[int]:
    """Return the indices of ``count`` evenly spaced layers of ``total``, including the first and (if count > 1) last.

    >>> spaced_layers(12, 4), spaced_layers(12, 6)
    ([0, 4, 7, 11], [0, 2, 4, 7, 9, 11])
    """
    if not 1 <= count <= total:
        raise RecipeError(f"encoder_layers {count} does not fit: this encoder has {total} layers")
    return [round(number * (total - 1) / max(1, count - 1)) for number in range(count)]


def reduced_config(config: PreTrainedConfig, count: int) -> PreTrainedConfig:
    """Return the config of an encoder that is reduced to ``count`` layers."""
    numbers, reduced = spaced_layers(config.num_hidden_layers, count), deepcopy(config)
    kinds = getattr(config, "layer_types", None)
    reduced.num_hidden_layers = count
    if kinds is not None:  # ModernBERT has local and global layers
        reduced.layer_types = [kinds[number] for number in numbers]
    return reduced


def select_layers(encoder: PreTrainedModel, count: int) -> None:
    """Remove all but ``count`` evenly spaced layers of an encoder."""
    layers, config = backbone_of(encoder).layers, reduced_config(encoder.config, count)
    for place, number in enumerate(spaced_layers(len(layers), count)):
        layers[place] = layers[number]
    del layers[count:]
    for name in ("num_hidden_layers", "layer_types"):
        if hasattr(config, name):
            setattr(encoder.config, name, getattr(config, name))
