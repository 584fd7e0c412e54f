"""Fine-tune on natural language inference and measure XNLI in every language."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from transformers import AutoModelForSequenceClassification

from hf_xsent.data.benchmarks.inference import LABELS, load_inference, load_xnli
from hf_xsent.finetuning.arguments import XnliArguments
from hf_xsent.finetuning.code_switching import switch_inference
from hf_xsent.finetuning.pair_classification import PairClassification
from hf_xsent.finetuning.report import FineTuningReport
from hf_xsent.finetuning.running import alone, at_most, load_records, run, settings_of, tokenizer_of


def main(arguments: Sequence[str]) -> list[FineTuningReport]:
    """``[recipe.yaml] [--flag value …]``; all data is read and checked before anything is trained."""
    options, training = settings_of(XnliArguments, arguments)
    sources, records = load_records(options.train, load_inference)
    train = switch_inference(sources, records) if options.code_switching else alone(records)
    _, dev = load_records(options.dev, partial(load_inference, split="validation"))
    tests = {}
    if options.xnli is not None:
        tests["xnli"] = at_most(options.max_test, load_xnli(options.xnli, options.languages))
    tokenizer = tokenizer_of(options.model)
    return run(
        PairClassification(tokenizer, options.max_length),
        AutoModelForSequenceClassification,
        options,
        training,
        tokenizer,
        [*chain.from_iterable(at_most(options.max_train, train).values())],
        at_most(options.max_test, dev) or None,
        tests,
        num_labels=len(LABELS),
        id2label=dict(enumerate(LABELS)),
        label2id={label: number for number, label in enumerate(LABELS)},
    )
