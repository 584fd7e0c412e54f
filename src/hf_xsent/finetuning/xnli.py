"""Fine-tune on natural language inference and measure XNLI in every language."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from transformers import AutoModelForSequenceClassification

from hf_xsent.data.inference import LABELS, load_inference, load_xnli
from hf_xsent.finetuning.arguments import XnliArguments
from hf_xsent.finetuning.code_switching import switch_inference
from hf_xsent.finetuning.pair_classification import PairClassification
from hf_xsent.finetuning.report import FineTuningReport
from hf_xsent.finetuning.running import load_records, run, settings_of, tokenizer_of


def main(arguments: Sequence[str]) -> list[FineTuningReport]:
    """``[recipe.yaml] [--flag value …]``; all data is read and checked before anything is trained."""
    options, training = settings_of(XnliArguments, arguments)
    sources, records = load_records(options.train, load_inference, options.max_train)
    train: list[tuple[Any, ...]] = [(pair,) for pair in chain.from_iterable(records.values())]
    if options.code_switching:
        train = [*switch_inference(sources, records)]
    _, dev = load_records(options.dev, load_inference, options.max_test)
    tests = {}
    if options.xnli is not None:
        found = load_xnli(options.xnli, options.languages)
        tests["xnli"] = {language: pairs[: options.max_test] for language, pairs in found.items()}
    tokenizer = tokenizer_of(options.model)
    return run(
        PairClassification(tokenizer, options.max_length),
        AutoModelForSequenceClassification,
        options,
        training,
        tokenizer,
        train,
        dev or None,
        tests,
        num_labels=len(LABELS),
        id2label=dict(enumerate(LABELS)),
        label2id={label: number for number, label in enumerate(LABELS)},
    )
