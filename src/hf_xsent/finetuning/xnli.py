"""Fine-tune a classifier over [CLS] premise [SEP] hypothesis [SEP] (PPA, section 2.3), and measure XNLI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from hf_xsent.data.benchmarks.inference import LABELS, InferencePair, load_inference, load_xnli
from hf_xsent.errors import ModelError
from hf_xsent.finetuning.code_switching import switch_inference
from hf_xsent.finetuning.report import FineTuningReport
from hf_xsent.finetuning.running import limit, load_records, run, single_groups
from hf_xsent.finetuning.trainer import FineTuningArguments, FineTuningTask, Scores, pad, predictions


def finetune_xnli(settings: FineTuningArguments, tokenizer: PreTrainedTokenizerBase) -> list[FineTuningReport]:
    """Read all data, then train and measure."""
    sources, records = load_records(settings.train, load_inference)
    train = switch_inference(sources, records) if settings.code_switching else single_groups(records)
    _, dev = load_records(settings.dev, partial(load_inference, split="validation"))
    tests = {}
    if settings.xnli is not None:
        tests["xnli"] = limit(settings.max_test, load_xnli(settings.xnli, settings.languages or None))
    return run(
        PairClassification(tokenizer, settings.max_length),
        AutoModelForSequenceClassification,
        settings,
        tokenizer,
        [*chain.from_iterable(limit(settings.max_train, train).values())],
        dev or None,
        tests,
        num_labels=len(LABELS),
        id2label=dict(enumerate(LABELS)),
        label2id={label: number for number, label in enumerate(LABELS)},
    )


class PairClassification(FineTuningTask):
    """Classify pairs of texts; the score is XNLI's accuracy."""

    scores = ("accuracy",)

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
        self.tokenizer, self.max_length = tokenizer, max_length
        self._padding = int(tokenizer.pad_token_id)

    def collate(self, examples: Sequence[InferencePair]) -> dict[str, Tensor]:
        """Return a batch of rows and ``labels``."""
        labels = torch.tensor([example.label for example in examples])
        return pad(self.rows(examples), self._padding) | {"labels": labels}

    def loss(self, outputs: Any, batch: Mapping[str, Tensor]) -> Tensor:
        """Compute the cross entropy."""
        return F.cross_entropy(outputs.logits.float(), batch["labels"])

    def measure(self, model: PreTrainedModel, sets: Mapping[str, Sequence[InferencePair]]) -> Scores:
        """Compute the accuracy of each set."""
        scores, label_of_output = {}, torch.tensor(_labels_of_outputs(model))
        for name, pairs in sets.items():
            correct = 0
            for numbers, outputs in predictions(model, self.rows(pairs), self._padding, f"measuring {name}"):
                labels = torch.tensor([pairs[number].label for number in numbers])
                correct += int((label_of_output[outputs.logits.argmax(1).cpu()] == labels).sum())
            scores[name] = {"accuracy": 100 * correct / len(pairs)}
        return scores

    def rows(self, pairs: Sequence[InferencePair]) -> list[dict[str, list[int]]]:
        """Tokenize both texts together, and truncate the longer one."""
        encoded = self.tokenizer(
            [pair.premise for pair in pairs],
            [pair.hypothesis for pair in pairs],
            truncation=True,
            max_length=self.max_length,
            return_attention_mask=False,
        )
        return [{name: encoded[name][row] for name in encoded} for row in range(len(pairs))]


def _labels_of_outputs(model: PreTrainedModel) -> list[int]:
    """Return the index into ``LABELS`` of each output of the model, as its ``id2label`` names them."""
    names = [str(name).lower() for _, name in sorted((model.config.id2label or {}).items())]
    if sorted(names) != sorted(LABELS):
        raise ModelError(
            f"{model.name_or_path!r} has the labels {', '.join(names)}, not {', '.join(LABELS)}: set these names in "
            "id2label of its config.json"
        )
    return [LABELS.index(name) for name in names]
