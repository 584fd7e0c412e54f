"""The masked-language head of a checkpoint, the same three pieces for every family: dense, norm and a bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedConfig
from transformers.activations import ACT2FN

from hf_xsent.models.families import family
from hf_xsent.models.loading import is_ours, load_config, quiet_loading
from hf_xsent.tensors.chunked_softmax import chunked_cross_entropy, sample_vocabulary


class MaskedLanguageHead(nn.Module):
    """Word-piece scores of hidden states: norm(act(dense(h))) times word embeddings, the encoder's or its own.

    With ``size``, the head has its own table of so many word pieces; ``restricted`` says that these are not simply the
    first ids but those in ``vocabulary``, and that any other id counts as ``unknown_id``. With ``sample``, the softmax
    is over about so many random pieces beside the right ones.
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
        """Summed cross entropy of the ids ``labels``; ``word_embeddings`` is the encoder's table, V × d."""
        table = word_embeddings if self.words is None else self.words.weight
        if table is None:
            raise TypeError("this head has no table of its own: pass the encoder's word_embeddings")
        bias: Tensor = self.bias
        if self.restricted:
            labels = self._rows_of(labels)
        if self.sample is not None:
            rows, correction = sample_vocabulary(labels, len(table), self.sample)
            table, bias, labels = table[rows], bias[rows] + correction, torch.searchsorted(rows, labels)
        return chunked_cross_entropy(self.transform(states), table, bias, labels, single_backward=True)

    def transform(self, states: Tensor) -> Tensor:
        """What is multiplied with the word embeddings."""
        transformed: Tensor = self.norm(self.activation(self.dense(states)))
        return transformed

    def _rows_of(self, ids: Tensor) -> Tensor:
        """Where ids stand in the restricted vocabulary; those that do not, at the unknown piece."""
        rows = torch.searchsorted(self.vocabulary, ids).clamp_max(len(self.vocabulary) - 1)
        unknown = torch.searchsorted(self.vocabulary, torch.full_like(ids[:1], self.unknown_id or 0))
        return torch.where(self.vocabulary[rows] == ids, rows, unknown)

    @torch.no_grad()
    def load_matching(self, earlier: MaskedLanguageHead) -> None:
        """Load an earlier stage's head; word pieces that it does not have keep their start."""
        for part in ("dense", "norm"):
            getattr(self, part).load_state_dict(getattr(earlier, part).state_dict())
        own, theirs = self._ids(), earlier._ids()
        places = torch.searchsorted(theirs, own).clamp_max(len(theirs) - 1)
        known = theirs[places] == own
        self.bias[known] = earlier.bias[places[known]]
        if self.words is not None and earlier.words is not None:
            self.words.weight[known] = earlier.words.weight[places[known]]

    def _ids(self) -> Tensor:
        """Which word piece each row is."""
        return self.vocabulary if self.restricted else torch.arange(len(self.bias), device=self.bias.device)

    @torch.no_grad()
    def start_from(self, trained: MaskedLanguageHead, word_embeddings: Tensor, vocabulary: Tensor | None) -> None:
        """Take over a checkpoint's head and word embeddings, all of them or those of ``vocabulary``, ascending ids."""
        rows = slice(None) if vocabulary is None else vocabulary.to(word_embeddings.device)
        for part in ("dense", "norm"):
            getattr(self, part).load_state_dict(getattr(trained, part).state_dict())
        self.bias.copy_(trained.bias[rows])
        if self.words is not None:
            self.words.weight.copy_(word_embeddings[rows])
        if vocabulary is not None:
            self.vocabulary.copy_(vocabulary)


@torch.no_grad()
def plain_head(config: PreTrainedConfig) -> MaskedLanguageHead:
    """A new head that changes nothing but the norm: dense is the identity, the bias zero."""
    head = MaskedLanguageHead(config)
    nn.init.eye_(head.dense.weight)
    if head.dense.bias is not None:
        nn.init.zeros_(head.dense.bias)
    return head


def load_masked_language_head(name_or_path: str) -> MaskedLanguageHead:
    """The head that the checkpoint was trained with, or a plain one where it has none."""
    config = load_config(name_or_path)
    if is_ours(config):  # a model of ours keeps its heads with their objectives
        return plain_head(config.encoder_config)
    head = plain_head(config)
    with quiet_loading():
        model, report = AutoModelForMaskedLM.from_pretrained(
            name_or_path, dtype=torch.float32, use_safetensors=True, output_loading_info=True
        )
    trained = {name: weight for name, weight in model.state_dict().items() if name not in report["missing_keys"]}
    places = family(config).mlm_head
    for name, parameter in head.named_parameters():
        piece = name.split(".")[0]
        stored = name.replace(piece, places[piece], 1)
        if stored in trained:
            parameter.data.copy_(trained[stored])
    return head
