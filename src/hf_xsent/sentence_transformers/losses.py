"""Train any SentenceTransformer with our objectives over sentence embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor, nn

from hf_xsent.errors import DataError, ModelError, RecipeError
from hf_xsent.objectives.base import Parts, SentenceObjective, TokenObjective
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.registry import objective_class, read_objectives, write_objectives
from hf_xsent.tensors.packing import hash_sentences
from sentence_transformers import SentenceTransformer


class AlignmentLoss(nn.Module):
    """The weighted sum of our objectives, as a loss of SentenceTransformerTrainer.

    The training data has two columns, a sentence and its translation. Objectives that read only sentence embeddings can
    be used: translation_ranking, matryoshka, triplet_ranking, and distillation with the teacher's embeddings of the
    translations in a column ``label``. The others need AlignmentTrainer.

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
        if not hasattr(model, "get_embedding_dimension"):
            given = type(model).__name__
            raise ModelError(
                f"AlignmentLoss needs a SentenceTransformer, not {given}: open one with SentenceTransformer(…)"
            )
        self.model = model
        self.settings = read_objectives({"translation_ranking": 1.0} if objectives is None else objectives)
        config = SimpleNamespace(
            encoder_config=SimpleNamespace(hidden_size=model.get_embedding_dimension()), training_mlp=False
        )
        self.objectives = nn.ModuleDict()
        for name, settings in self.settings.items():
            kind = objective_class(name)
            if missing := _missing_needs(kind):
                raise RecipeError(
                    f"{name} needs {missing}, which SentenceTransformerTrainer lacks: train with AlignmentTrainer"
                )
            kind.check(settings, config)
            self.objectives[name] = kind(settings, cast(Parts, None))  # objectives over embeddings have no parameters

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor | dict[str, Tensor]:
        """Return the loss of a batch, or with several objectives the weighted loss of each, which the Trainer sums."""
        features = list(sentence_features)
        if len(features) != 2:
            raise DataError(f"the objectives train on pairs: give two columns of sentences, not {len(features)}")
        identities = [_identity(one) for one in features]
        source, target = (self.model(one)["sentence_embedding"] for one in features)
        teacher = labels if "distillation" in self.settings else None
        if teacher is None and "distillation" in self.settings:
            raise DataError("distillation needs a column label: the teacher's embeddings of the translations")
        pairs = SentencePairs(source, target, identities[0], identities[1], teacher)
        losses = {
            name: settings.weight * cast(SentenceObjective, self.objectives[name]).sentence_loss(pairs)
            for name, settings in self.settings.items()
        }
        return losses if len(losses) > 1 else next(iter(losses.values()))

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {"objectives": write_objectives(self.settings, recipe=True)}


def _missing_needs(kind: Any) -> str:
    """Name what an objective needs besides sentence embeddings and a teacher; empty if nothing."""
    needs = kind.needs
    if needs.links:
        return "word links"
    if needs.momentum_encoder:
        return "a momentum encoder"
    if needs.frozen_encoder:
        return "a frozen encoder"
    if needs.mask_token or needs.states or issubclass(kind, TokenObjective):
        return "tokens"
    return "" if issubclass(kind, SentenceObjective) else "more than sentence embeddings"


def _identity(features: Mapping[str, Tensor]) -> Tensor:
    """Return a hash of each sentence, or distinct numbers where the model has no padded token ids."""
    ids, mask = features.get("input_ids"), features.get("attention_mask")
    if ids is None or mask is None or ids.dim() != 2:
        count = next(len(one) for one in features.values() if isinstance(one, Tensor))
        return torch.arange(count)
    return hash_sentences(ids, mask)
