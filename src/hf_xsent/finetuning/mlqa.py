"""Fine-tune on extractive question answering and measure MLQA and XQuAD in every language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from transformers import AutoModelForQuestionAnswering

from hf_xsent.data.benchmarks.questions import QuestionSet, load_mlqa, load_questions, load_xquad
from hf_xsent.finetuning.arguments import MlqaArguments
from hf_xsent.finetuning.code_switching import switch_questions
from hf_xsent.finetuning.report import FineTuningReport
from hf_xsent.finetuning.running import (
    alone,
    at_most,
    load_records,
    only_languages,
    run,
    settings_of,
    tokenizer_of,
)
from hf_xsent.finetuning.span_extraction import SpanExtraction


def main(arguments: Sequence[str]) -> list[FineTuningReport]:
    """``[recipe.yaml] [--flag value …]``; all data is read and checked before anything is trained."""
    options, training = settings_of(MlqaArguments, arguments)
    sources, records = load_records(options.train, lambda path, _: load_questions(path))
    train = switch_questions(sources, records) if options.code_switching else alone(records)
    _, dev = load_records(options.dev, lambda path, _: load_questions(path, "validation"))
    sets: list[QuestionSet] = []
    if options.mlqa is not None:
        sets += load_mlqa(options.mlqa, options.mlqa_split, options.generalized)
    if options.xquad is not None:
        sets += load_xquad(options.xquad)
    tests: dict[str, dict[str, Any]] = {}
    for one in sets:
        kept = replace(one, questions=one.questions[: options.max_test])
        tests.setdefault(one.benchmark, {})[one.name] = [kept]
    chosen = only_languages(tests, options.languages)
    tokenizer = tokenizer_of(options.model)
    task = SpanExtraction(
        tokenizer,
        options.max_length,
        options.doc_stride,
        options.max_question_length,
        options.max_answer_length,
    )
    return run(
        task,
        AutoModelForQuestionAnswering,
        options,
        training,
        tokenizer,
        task.grouped_windows([*chain.from_iterable(at_most(options.max_train, train).values())]),
        {
            language: [QuestionSet("squad", language, language, some)]
            for language, some in at_most(options.max_test, dev).items()
        }
        or None,
        chosen,
    )
