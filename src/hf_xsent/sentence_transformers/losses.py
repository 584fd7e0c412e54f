"""Train any SentenceTransformer with our objectives over sentence embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig

from hf_xsent.errors import DataError, RecipeError
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.objectives.base import SentenceObjective, TokenObjective, sentence_losses
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.registry import objective_class, write_objectives
from hf_xsent.tensors.gathering import process_number
from hf_xsent.tensors.packing import hash_sentences
from sentence_transformers import SentenceTransformer


class AlignmentLoss(nn.Module):
    """The weighted sum of our objectives, as a loss of SentenceTransformerTrainer.

    The training data has two columns, a sentence and its translation. With ``hard_negatives: N``, N columns follow,
    each with a sentence in the translation's language that is not the translation. A teacher's embeddings of the
    translations are in a column ``label``. Objectives that read more than sentence embeddings need AlignmentTrainer.

    ```python
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from hf_xsent import AlignmentLoss

    model = SentenceTransformer("xlm-roberta-base")
    pairs = Dataset.from_dict({"source": ["Ein Hund.", "Eine Katze."], "target": ["A dog.", "A cat."]})
    loss = AlignmentLoss(model, {"translation_ranking": {"temperature": 0.02}})
    SentenceTransformerTrainer(model, train_dataset=pairs, loss=loss).train()
    ```
    """

    def __init__(self, model: SentenceTransformer, objectives: Mapping[str, Any] | None = None) -> None:
        """Build the objectives, given like those of a recipe: ``{name: weight}`` or ``{name: {setting: value}}``."""
        super().__init__()
        if not isinstance(model, SentenceTransformer):
            raise RecipeError(
                f"AlignmentLoss takes a SentenceTransformer: train {type(model).__name__} by AlignmentTrainer"
            )
        self.model = model
        with model.truncate_embeddings(None):  # only encode truncates
            width: Any = model.get_embedding_dimension()
        weighted: Any = objectives or {"translation_ranking": 1.0}
        # The trainer's model over an empty encoder builds and checks the objectives.
        empty = BertConfig(vocab_size=1, hidden_size=width, num_hidden_layers=0, num_attention_heads=1)
        config = AlignmentConfig(objectives=weighted, encoder_config=empty)
        for name in config.objectives:
            if not _reads_sentences_only(objective_class(name)):
                raise RecipeError(f"{name} needs more than sentence embeddings: train with AlignmentTrainer")
        if "source" in config.hard_negatives:
            raise RecipeError(
                "symmetric ranks negatives of both sides, but the columns after the pair are those of one: train with "
                "AlignmentTrainer, or drop symmetric or hard_negatives"
            )
        self.settings = config.objectives
        self.negatives = config.hard_negatives.get("target", 0)
        self.objectives = SentenceEncoderForPreTraining(config).objectives

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor | dict[str, Tensor]:
        """Return the loss of a batch, or with several objectives the weighted loss of each, which the Trainer sums."""
        columns = list(sentence_features)
        if len(columns) != 2 + self.negatives:
            more = f" and {self.negatives} of negatives" if self.negatives else ""
            raise DataError(f"the objectives train on pairs: give two columns of sentences{more}, not {len(columns)}")
        identities = [_identity(features) for features in columns]  # before the model changes its features
        vectors = [self.model(features)["sentence_embedding"] for features in columns]
        count = len(vectors[0])
        rows = torch.arange(count, device=vectors[0].device)
        different = [(process_number() << 40) + (column << 32) + rows for column in range(len(columns))]
        known = [other if identity is None else identity for identity, other in zip(identities, different, strict=True)]
        pairs = SentencePairs(source=vectors[0], target=vectors[1], source_identity=known[0], target_identity=known[1])
        if self.negatives:
            numbers = torch.arange(self.negatives, device=rows.device).repeat_interleave(count)
            pairs = replace(
                pairs,
                target_negatives=torch.cat(vectors[2:]),
                target_negative_identity=torch.cat(known[2:]),
                target_negative_number=numbers,
            )
        taught = [name for name in self.settings if objective_class(name).needs.teacher]
        if taught and labels is None:
            raise DataError(f"{taught[0]} needs a column label: the teacher's embeddings of the translations")
        losses = sentence_losses(self.objectives, pairs, {f"{name}_teacher_target": labels for name in taught})
        weighted = {name: self.settings[name].weight * loss for name, loss in losses.items()}
        return weighted if len(weighted) > 1 else next(iter(weighted.values()))

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {"objectives": write_objectives(self.settings, recipe=True)}


def _reads_sentences_only(kind: Any) -> bool:
    """Return whether an objective needs nothing but sentence embeddings and a teacher of translations."""
    needs = kind.needs
    more = needs.links or needs.momentum_encoder or needs.frozen_encoder or "source" in needs.teacher
    return issubclass(kind, SentenceObjective) and not issubclass(kind, TokenObjective) and not more


def _identity(features: Mapping[str, Tensor]) -> Tensor | None:
    """Return a hash of each sentence; None if the model reads no token ids."""
    ids, mask = features.get("input_ids"), features.get("attention_mask")
    if ids is None:
        return None
    starts = features.get("offsets")
    if "cu_seq_lens_q" in features:
        starts = features["cu_seq_lens_q"][:-1]
    if starts is not None:  # the sentences follow each other without padding
        sentences = list(ids.flatten().tensor_split(starts[1:].tolist()))
        ids = pad_sequence(sentences, batch_first=True)
        mask = pad_sequence([torch.ones_like(sentence) for sentence in sentences], batch_first=True)
    return None if mask is None else hash_sentences(ids, mask)
