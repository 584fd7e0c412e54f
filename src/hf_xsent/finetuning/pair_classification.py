"""Natural language inference: a classifier over [CLS] premise [SEP] hypothesis [SEP] (PPA, section 2.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_xsent.data.benchmarks.inference import LABELS, InferencePair
from hf_xsent.errors import ModelError
from hf_xsent.finetuning.trainer import Scores, Task, pad, predictions


class PairClassification(Task):
    """Accuracy of the label with the highest score, as XNLI counts it."""

    main_score = "accuracy"

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length

    def collate(self, examples: Sequence[InferencePair]) -> dict[str, Tensor]:
        """Rows and ``labels``."""
        labels = torch.tensor([example.label for example in examples])
        return pad(self.rows(examples), self._padding) | {"labels": labels}

    def loss(self, outputs: Any, batch: Mapping[str, Tensor]) -> Tensor:
        """Cross entropy."""
        return F.cross_entropy(outputs.logits.float(), batch["labels"])

    def measure(self, model: PreTrainedModel, sets: Mapping[str, Sequence[InferencePair]]) -> Scores:
        """Accuracy of each set."""
        scores, label_of_output = {}, torch.tensor(_labels_of_outputs(model))
        for name, pairs in sets.items():
            right = 0
            for numbers, outputs in predictions(model, self.rows(pairs), self._padding, f"measuring {name}"):
                labels = torch.tensor([pairs[number].label for number in numbers])
                right += int((label_of_output[outputs.logits.argmax(1).cpu()] == labels).sum())
            scores[name] = {"accuracy": 100 * right / len(pairs)}
        return scores

    def check_model(self, model: PreTrainedModel) -> None:
        """Its labels must be ours, in whatever order."""
        _labels_of_outputs(model)

    def rows(self, pairs: Sequence[InferencePair]) -> list[dict[str, list[int]]]:
        """Tokens of both texts; the longer one is cut where they are too long."""
        encoded = self.tokenizer(
            [pair.premise for pair in pairs],
            [pair.hypothesis for pair in pairs],
            truncation=True,
            max_length=self.max_length,
            return_attention_mask=False,
        )
        return [{name: encoded[name][row] for name in encoded} for row in range(len(pairs))]

    @property
    def _padding(self) -> int:
        return int(self.tokenizer.pad_token_id)


def _labels_of_outputs(model: PreTrainedModel) -> list[int]:
    """The number into ``LABELS`` of each of the model's outputs, which ``id2label`` names."""
    names = [str(name).lower() for _, name in sorted((model.config.id2label or {}).items())]
    if sorted(names) != sorted(LABELS):
        raise ModelError(
            f"{model.name_or_path!r} tells {', '.join(names)} apart, not {', '.join(LABELS)}: name its outputs so in "
            "id2label of its config.json"
        )
    return [LABELS.index(name) for name in names]
