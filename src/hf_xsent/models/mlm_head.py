"""Predict tokens by an MLM head; the heads of all encoder families consist of dense, norm and bias."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedConfig
from transformers.activations import ACT2FN

from hf_xsent.models.families import family
from hf_xsent.models.loading import load_config, quiet_loading, split_config
from hf_xsent.models.saved_form import read_heads
from hf_xsent.objectives.registry import objective_class, read_objectives
from hf_xsent.tensors.chunked_softmax import chunked_cross_entropy, sample_vocabulary

_WITH_HEAD = ("masked_language_modeling", "translation_language_modeling")  # the first one's head is preferred


class MLMHead(nn.Module):
    """Token logits of hidden states: norm(act(dense(h))) times token embeddings, the encoder's or the head's.

    With ``size``, the head has separate embeddings of the first ``size`` token ids; if ``restricted``, of the ids in
    ``vocabulary`` instead: any other id counts as ``unknown_id``. ``sample`` is the number of random negatives of a
    sampled softmax.
    """

    vocabulary: Tensor

    def __init__(
        self,
        config: PreTrainedConfig,
        size: int | None = None,
        restricted: bool = False,
        unknown_id: int | None = None,
        sample: int | None = None,
    ) -> None:
        super().__init__()
        activation = getattr(config, "hidden_act", None) or config.classifier_activation
        eps = getattr(config, "layer_norm_eps", None) or config.norm_eps
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=getattr(config, "classifier_bias", True))
        self.activation = ACT2FN[activation]
        self.norm = nn.LayerNorm(config.hidden_size, eps=eps, bias=getattr(config, "norm_bias", True))
        self.bias = nn.Parameter(torch.zeros(size or config.vocab_size))
        self.words = nn.Embedding(size, config.hidden_size) if size else None
        if restricted:
            self.register_buffer("vocabulary", torch.arange(size or 0))
        self.restricted = restricted
        self.unknown_id = unknown_id
        self.sample = sample

    def forward(self, states: Tensor, labels: Tensor, word_embeddings: Tensor | None = None) -> Tensor:
        """Sum the cross entropy of the ids ``labels``; ``word_embeddings`` are the encoder's, V × d."""
        table = word_embeddings if self.words is None else self.words.weight
        if table is None:
            raise TypeError("this head has no token embeddings: pass the encoder's as word_embeddings")
        bias: Tensor = self.bias
        if self.restricted:
            labels = self._rows_of(labels)
        if self.sample is not None:
            rows, correction = sample_vocabulary(labels, len(table), self.sample)
            table, bias, labels = table[rows], bias[rows] + correction, torch.searchsorted(rows, labels)
        return chunked_cross_entropy(self.transform(states), table, bias, labels)

    def transform(self, states: Tensor) -> Tensor:
        """Compute norm(act(dense(h))), to multiply with the token embeddings."""
        transformed: Tensor = self.norm(self.activation(self.dense(states)))
        return transformed

    def _rows_of(self, ids: Tensor) -> Tensor:
        """Return the rows of ids in the restricted vocabulary; unknown ids get the row of ``unknown_id``."""
        rows = torch.searchsorted(self.vocabulary, ids).clamp_max(len(self.vocabulary) - 1)
        unknown = torch.searchsorted(self.vocabulary, torch.full_like(ids[:1], self.unknown_id or 0))
        return torch.where(self.vocabulary[rows] == ids, rows, unknown)

    @torch.no_grad()
    def load_matching(self, earlier: Mapping[str, Tensor]) -> None:
        """Load the weights of an earlier training stage; tokens that it does not have stay as initialized."""
        for module, name in ((self.dense, "dense"), (self.norm, "norm")):
            module.load_state_dict(
                {key.partition(".")[2]: weight for key, weight in earlier.items() if key.startswith(f"{name}.")}
            )
        own = self.vocabulary if self.restricted else torch.arange(len(self.bias))
        theirs = earlier.get("vocabulary", torch.arange(len(earlier["bias"])))
        own = own.to(theirs.device)
        places = torch.searchsorted(theirs, own).clamp_max(len(theirs) - 1)
        known = theirs[places] == own
        self.bias[known] = earlier["bias"][places[known]].to(self.bias)
        if self.words is not None and "words.weight" in earlier:
            self.words.weight[known] = earlier["words.weight"][places[known]].to(self.words.weight)

    @torch.no_grad()
    def start_from(self, trained: MLMHead, word_embeddings: Tensor, vocabulary: Tensor | None) -> None:
        """Copy a checkpoint's head and token embeddings: all, or those of ``vocabulary``, ascending ids."""
        rows = slice(None) if vocabulary is None else vocabulary.to(word_embeddings.device)
        self.dense.load_state_dict(trained.dense.state_dict())
        self.norm.load_state_dict(trained.norm.state_dict())
        self.bias.copy_(trained.bias[rows])
        if self.words is not None:
            self.words.weight.copy_(word_embeddings[rows])
        if vocabulary is not None:
            self.vocabulary.copy_(vocabulary)


@torch.no_grad()
def plain_head(config: PreTrainedConfig) -> MLMHead:
    """Build a new head with the identity as dense and a zero bias."""
    head = MLMHead(config)
    nn.init.eye_(head.dense.weight)
    if head.dense.bias is not None:
        nn.init.zeros_(head.dense.bias)
    return head


def load_mlm_head(name_or_path: str, hub: Mapping[str, Any] = MappingProxyType({})) -> MLMHead:
    """Load the MLM head of a checkpoint, or build a plain one if it has none; ``hub`` has arguments of the Hub.

    A model of this package has one if it was trained by MLM or TLM with an output layer tied to the word embeddings.
    """
    config, settings = split_config(load_config(name_or_path, **hub))
    head = plain_head(config)
    if settings:
        objectives = settings.get("objectives") or {}
        tied = [name for name in _WITH_HEAD if name in objectives and not objectives[name].get("untied_embeddings")]
        if tied and (weights := _below(f"objectives.{tied[0]}.head.", read_heads(name_or_path, **hub))):
            head.load_state_dict(weights)
        return head
    with quiet_loading():
        model, report = AutoModelForMaskedLM.from_pretrained(
            name_or_path, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **hub
        )
    trained = {name: weight for name, weight in model.state_dict().items() if name not in report["missing_keys"]}
    places = family(config).mlm_head_names
    for name, parameter in head.named_parameters():
        piece = name.split(".")[0]
        stored = name.replace(piece, places[piece], 1)
        if stored in trained:
            parameter.data.copy_(trained[stored])
    return head


@torch.no_grad()
def load_matching_heads(
    objectives: nn.ModuleDict, settings: Mapping[str, Any], earlier: Mapping[str, Any], heads: Mapping[str, Tensor]
) -> None:
    """Load the ``heads`` that objectives share with those of an earlier training stage.

    Heads over word pieces load the rows of the pieces that are in both vocabularies.
    """
    for name, theirs in read_objectives(earlier, {}).items():
        if name not in settings or not objective_class(name).continues(settings[name], theirs):
            continue
        weights = _below(f"objectives.{name}.", heads)
        over_pieces = {place: part for place, part in objectives[name].named_modules() if isinstance(part, MLMHead)}
        for place, part in over_pieces.items():
            if saved := _below(f"{place}.", weights):
                part.load_matching(saved)
        for place, weight in objectives[name].named_parameters():
            covered = place.startswith(tuple(f"{head}." for head in over_pieces))
            if not covered and place in weights and weight.shape == weights[place].shape:
                weight.copy_(weights[place])


def _below(prefix: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
