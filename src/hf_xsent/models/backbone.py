"""One face over every supported encoder (see ``families``).

A backbone runs packed sentences (see ``packing``) through a Hugging Face encoder layer by layer. The layers are the
encoder's own modules, called as its own forward calls them; only the attention between packed sentences is ours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from hf_xsent.compat import attention_of, has_hooks, set_attention
from hf_xsent.errors import RecipeError
from hf_xsent.tensors.packing import PackedSentences, packed_attention
from hf_xsent.tensors.recomputing import activations_recomputed

PACKED_ATTENTION = "hf_xsent_packed"

Layer = Any  # an encoder's own layer module; what it holds differs by family


@torch.compiler.disable  # its shapes differ from batch to batch, so that compiling it would never come to an end
def _packed_attention_interface(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    packed: PackedSentences | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """``packed_attention`` in the form in which Hugging Face layers call it: a batch of one row of T tokens.

    A layer that is called without our packing, by its encoder's own forward, gets the usual attention.
    """
    if packed is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, sliding_window=sliding_window, **options
        )
    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    return packed_attention(query, key, value, packed.runs, scaling, dropout, sliding_window)[None], None


AttentionInterface.register(PACKED_ATTENTION, _packed_attention_interface)
AttentionMaskInterface.register(PACKED_ATTENTION, sdpa_mask)


class Backbone(ABC):
    """A Hugging Face encoder seen as embeddings, layers and hidden states; holds no weights of its own."""

    arguments: ClassVar[dict[str, Any]] = {}  # what the encoder's class takes beside its config
    dropouts: ClassVar[tuple[str, ...]] = ("hidden_dropout_prob", "attention_probs_dropout_prob")  # in its config
    mlm_head: ClassVar[dict[str, str]]  # where a masked-language checkpoint keeps dense, norm and bias of its head

    def __init__(self, encoder: PreTrainedModel) -> None:
        self.encoder: Any = encoder
        self.config: PreTrainedConfig = encoder.config

    @property
    @abstractmethod
    def layers(self) -> nn.ModuleList:
        """The transformer layers, lowest first."""

    @property
    def word_embeddings(self) -> nn.Embedding:
        """The table of word-piece vectors."""
        return self.encoder.get_input_embeddings()

    @staticmethod
    def max_length(config: PreTrainedConfig) -> int:
        """The longest sentence, in tokens, for which the encoder has positions."""
        return config.max_position_embeddings

    def freeze(self, layers: int) -> None:
        """Let the embeddings and so many lowest layers stay as they are; they then keep no activations either."""
        check_frozen_layers(layers, self.config)
        for frozen in (self.encoder.embeddings, *self.layers[:layers]) if layers else ():
            frozen.requires_grad_(False)

    def compile_layers(self) -> None:
        """Compile what lies between the attentions: the only part whose code is the same for all lengths."""
        for layer in self.layers:
            layer.compile(dynamic=True)

    @abstractmethod
    def embed(self, words: Tensor, packed: PackedSentences) -> Tensor:
        """The input of the first layer, 1 × T × d, from the word vectors, 1 × T × d."""

    def layer_arguments(self, layer: Layer, hidden: Tensor, packed: PackedSentences) -> dict[str, Any]:
        """What this layer's forward takes beside hidden states and packing."""
        return {}

    @abstractmethod
    def layer_at(self, layer: Layer, hidden: Tensor, packed: PackedSentences, tokens: Tensor) -> Tensor:
        """The layer's output for these M tokens alone, 1 × M × d: what nobody reads of a last layer is not computed."""

    def final_norm(self, hidden: Tensor) -> Tensor:
        """What the encoder applies after its last layer."""
        return hidden

    def hidden_states(self, packed: PackedSentences, extra_embeddings: Tensor | None = None) -> Iterator[Tensor]:
        """T × d hidden states of the embeddings and of each layer, in order; each is computed when asked for.

        ``extra_embeddings`` (T × d), language embeddings for instance, are added to the word vectors.
        """
        yield from self._states(self._word_vectors(packed, extra_embeddings), packed)

    def encode(
        self,
        packed: PackedSentences,
        layer: int | None = None,
        tokens: Tensor | None = None,
        extra_embeddings: Tensor | None = None,
    ) -> Tensor:
        """T × d states after ``layer`` (default the last), or only those of ``tokens`` (M ascending numbers): M × d."""
        return self.encode_vectors(self._word_vectors(packed, extra_embeddings), packed, layer, tokens)

    def encode_vectors(
        self,
        words: Tensor,
        packed: PackedSentences,
        layer: int | None = None,
        tokens: Tensor | None = None,
        embedded: bool = False,
    ) -> Tensor:
        """As ``encode``, from 1 × T × d vectors in the place of word vectors, or of the first layer's input."""
        count = len(self.layers)
        layer = count if layer is None else layer
        # FSDP, ZeRO-3 and probes hook into the call of a layer: then it must run as a whole.
        whole = tokens is None or layer == 0 or has_hooks(self.layers[layer - 1])
        hidden = next(islice(self._states(words, packed, embedded), layer if whole else layer - 1, None))
        if tokens is None:
            return hidden
        if whole:
            return hidden[tokens]
        with activations_recomputed():
            some = self.layer_at(self.layers[layer - 1], hidden[None], packed, tokens)
        return (self.final_norm(some) if layer == count else some).squeeze(0)

    def _word_vectors(self, packed: PackedSentences, extra_embeddings: Tensor | None) -> Tensor:
        words = self.word_embeddings(packed.input_ids[None])
        return words if extra_embeddings is None else words + extra_embeddings

    def _states(self, words: Tensor, packed: PackedSentences, embedded: bool = False) -> Iterator[Tensor]:
        hidden = words if embedded else self.embed(words, packed)
        yield hidden.squeeze(0)
        for layer in self.layers:
            hidden = self._run_layer(layer, hidden, packed)
            yield (self.final_norm(hidden) if layer is self.layers[-1] else hidden).squeeze(0)

    def _run_layer(self, layer: Layer, hidden: Tensor, packed: PackedSentences) -> Tensor:
        longest = packed.runs[-1][1]
        with self._attention(layer), activations_recomputed():
            return layer(
                hidden,
                attention_mask=None,
                packed=packed,
                cu_seq_lens_q=packed.boundaries,
                cu_seq_lens_k=packed.boundaries,
                max_length_q=longest,
                max_length_k=longest,
                **self.layer_arguments(layer, hidden, packed),
            )

    @contextmanager
    def _attention(self, layer: Layer) -> Iterator[None]:
        """Flash attention packs by itself from the boundaries; any other kind is replaced by ours for the call.

        A checkpointed layer is called again in the backward pass, by torch: ours stays in place for that.
        """
        chosen = attention_of(self.config)
        if "flash" in (chosen or ""):
            yield
            return
        set_attention(self.config, PACKED_ATTENTION)
        try:
            yield
        finally:
            if not (layer.training and layer.gradient_checkpointing):
                set_attention(self.config, chosen)

    @staticmethod
    def _attend_from(
        tokens: Tensor, query: Tensor, key: Tensor, value: Tensor, heads: int, packed: PackedSentences, **options: Any
    ) -> Tensor:
        """These M tokens ask (1 × M × d), all T answer (1 × T × d): 1 × M × d."""
        if tokens is not packed.first_tokens:  # their number differs by sentence: the others ask in vain
            query = torch.zeros_like(key).index_copy(1, tokens, query.to(key.dtype))
        query, key, value = (x.squeeze(0).unflatten(-1, (heads, -1)) for x in (query, key, value))
        context = packed_attention(query, key, value, packed.runs, **options).flatten(1)
        return (context if tokens is packed.first_tokens else context[tokens])[None]


def check_frozen_layers(layers: int, config: PreTrainedConfig) -> None:
    """Whether an encoder of this config has so many layers to freeze."""
    if not 0 <= layers <= config.num_hidden_layers:
        raise RecipeError(f"frozen_layers {layers} does not fit: this encoder has {config.num_hidden_layers} layers")
