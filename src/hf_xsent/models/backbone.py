"""Run packed sentences through a Hugging Face encoder layer by layer, with one interface for every supported family.

The layers are the encoder's modules, called as its forward calls them; only attention over packed sentences is ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from itertools import islice
from threading import RLock
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from hf_xsent.compat import attention_of, set_attention
from hf_xsent.errors import RecipeError
from hf_xsent.tensors.attention import packed_attention
from hf_xsent.tensors.packing import PackedSentences
from hf_xsent.tensors.recomputing import recompute_activations

PACKED_ATTENTION = "hf_xsent_packed"
_ONE_AT_A_TIME = RLock()  # threads share the config of an encoder: one must not restore it in the layer of another

Layer = Any  # a layer module of the encoder; its attributes differ by family


@torch.compiler.disable  # shapes differ by batch: torch.compile would recompile every time
def _packed_attention_interface(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Call ``packed_attention`` with the arguments of Hugging Face layers, on a batch of one row of T tokens.

    Use plain attention if the encoder's own forward called the layer, without packing.
    """
    packed: PackedSentences | None = options.pop("packed", None)
    if packed is None:
        return sdpa_attention_forward(module, query, key, value, mask, **options)
    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    dropout, window = options.get("dropout", 0.0), options.get("sliding_window")
    scaling = options["scaling"]
    context = packed_attention(query, key, value, packed.runs, scaling, dropout, window, packed.boundaries)
    return context[None], None


AttentionInterface.register(PACKED_ATTENTION, _packed_attention_interface)
AttentionMaskInterface.register(PACKED_ATTENTION, sdpa_mask)


class Backbone(ABC):
    """A view of a Hugging Face encoder as embeddings, layers and hidden states, without own weights."""

    arguments: ClassVar[dict[str, Any]] = {}  # of the encoder's class, besides its config
    dropouts: ClassVar[tuple[str, ...]] = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # config fields
    mlm_head_names: ClassVar[dict[str, str]]  # names of dense, norm and bias in a checkpoint's MLM head

    def __init__(self, encoder: PreTrainedModel) -> None:
        self.encoder: Any = encoder
        self.config: PreTrainedConfig = encoder.config

    @property
    @abstractmethod
    def layers(self) -> nn.ModuleList:
        """The transformer layers, lowest first."""

    @property
    def word_embeddings(self) -> nn.Embedding:
        """The table of token embeddings."""
        return self.encoder.get_input_embeddings()

    @staticmethod
    def max_length(config: PreTrainedConfig) -> int:
        """Return the maximum length of a sentence in tokens, from the encoder's number of positions."""
        return config.max_position_embeddings

    def lowest(self, layers: int) -> list[nn.Module]:
        """Return the embeddings and the lowest ``layers`` layers; with 0, nothing."""
        check_frozen_layers(layers, self.config)
        return [self.encoder.embeddings, *self.layers[:layers]] if layers else []

    @abstractmethod
    def embed(self, words: Tensor, packed: PackedSentences) -> Tensor:
        """Return the first layer's input, 1 × T × d, from the token embeddings, 1 × T × d."""

    def layer_arguments(self, layer: Layer, hidden: Tensor, packed: PackedSentences) -> dict[str, Any]:
        """Return the arguments of this layer's forward besides hidden states and packing."""
        return {}

    @abstractmethod
    def layer_at(self, layer: Layer, hidden: Tensor, packed: PackedSentences, tokens: Tensor) -> Tensor:
        """Compute the layer's output of these M tokens only, 1 × M × d."""

    def final_norm(self, hidden: Tensor) -> Tensor:
        """Apply the encoder's norm after the last layer, if it has one."""
        return hidden

    def hidden_states(self, packed: PackedSentences, extra_embeddings: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the T × d hidden states of the embeddings and of each layer in order, computed lazily.

        ``extra_embeddings`` (T × d), such as language embeddings, are added to the token embeddings.
        """
        yield from self._states(self._token_embeddings(packed, extra_embeddings), packed)

    def encode_layers(
        self, packed: PackedSentences, layers: Collection[int], extra_embeddings: Tensor | None = None
    ) -> dict[int, Tensor]:
        """Return the T × d hidden states after each of these layers; 0 is the embeddings."""
        states = islice(self.hidden_states(packed, extra_embeddings), max(layers) + 1)
        return {number: hidden for number, hidden in enumerate(states) if number in layers}

    def encode(
        self,
        packed: PackedSentences,
        layer: int | None = None,
        tokens: Tensor | None = None,
        extra_embeddings: Tensor | None = None,
    ) -> Tensor:
        """Return T × d hidden states after ``layer`` (default: last), or M × d of ``tokens`` (M ascending indices)."""
        return self.encode_vectors(self._token_embeddings(packed, extra_embeddings), packed, layer, tokens)

    def encode_vectors(
        self,
        vectors: Tensor,
        packed: PackedSentences,
        layer: int | None = None,
        tokens: Tensor | None = None,
        embedded: bool = False,
    ) -> Tensor:
        """Encode 1 × T × d vectors in place of token embeddings or, if ``embedded``, of the first layer's input."""
        count = len(self.layers)
        layer = count if layer is None else layer
        all_tokens = tokens is None or layer == 0
        hidden = next(islice(self._states(vectors, packed, embedded), layer if all_tokens else layer - 1, None))
        if tokens is None:
            return hidden
        if layer == 0:
            return hidden[tokens]
        with recompute_activations():
            selected = self.layer_at(self.layers[layer - 1], hidden[None], packed, tokens)
        return (self.final_norm(selected) if layer == count else selected).squeeze(0)

    def _token_embeddings(self, packed: PackedSentences, extra_embeddings: Tensor | None) -> Tensor:
        words = self.word_embeddings(packed.input_ids[None])
        return words if extra_embeddings is None else words + extra_embeddings

    def _states(self, vectors: Tensor, packed: PackedSentences, embedded: bool = False) -> Iterator[Tensor]:
        hidden = vectors if embedded else self.embed(vectors, packed)
        yield hidden.squeeze(0)
        for layer in self.layers:
            hidden = self._run_layer(layer, hidden, packed)
            yield (self.final_norm(hidden) if layer is self.layers[-1] else hidden).squeeze(0)

    def _run_layer(self, layer: Layer, hidden: Tensor, packed: PackedSentences) -> Tensor:
        """Call a layer with our attention in place of the config's, except flash attention, which supports packing.

        With gradient checkpointing, torch calls the layer again in the backward pass, so that ours must stay set.
        """
        flash: dict[str, Any] = dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k"), packed.boundaries)
        flash |= dict.fromkeys(("max_length_q", "max_length_k"), packed.runs[-1][1])
        options = self.layer_arguments(layer, hidden, packed)
        with _ONE_AT_A_TIME, recompute_activations():
            previous = attention_of(self.config)
            if "flash" not in (previous or ""):
                set_attention(self.config, PACKED_ATTENTION)
            try:
                return layer(hidden, attention_mask=None, packed=packed, **flash, **options)
            finally:
                if not (layer.training and layer.gradient_checkpointing):
                    set_attention(self.config, previous)

    @staticmethod
    def _attend(
        tokens: Tensor, query: Tensor, key: Tensor, value: Tensor, heads: int, packed: PackedSentences, **options: Any
    ) -> Tensor:
        """Compute attention from queries of M tokens (1 × M × d) to keys and values of all T: 1 × M × d."""
        if tokens is not packed.first_tokens:  # their number differs by sentence: pad with zero queries
            query = torch.zeros_like(key).index_copy(1, tokens, query.to(key.dtype))
        query, key, value = (x.squeeze(0).unflatten(-1, (heads, -1)) for x in (query, key, value))
        context = packed_attention(query, key, value, packed.runs, boundaries=packed.boundaries, **options).flatten(1)
        return (context if tokens is packed.first_tokens else context[tokens])[None]


def check_frozen_layers(layers: int, config: PreTrainedConfig) -> None:
    """Raise an error if an encoder of this config has fewer layers."""
    if not 0 <= layers <= config.num_hidden_layers:
        raise RecipeError(f"frozen_layers {layers} does not fit: this encoder has {config.num_hidden_layers} layers")
