"""Fine-tune on extractive question answering, and measure MLQA and XQuAD (PPA, section 2.3).

The model scores each token of [CLS] question [SEP] context [SEP] as start and as end of the answer. A long context is
split into overlapping windows; the answer is the best span of all windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForQuestionAnswering, PreTrainedModel, PreTrainedTokenizerBase

from hf_xsent.data.benchmarks.questions import Question, QuestionSet, load_mlqa, load_questions, load_xquad
from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.question_answering import score_answers
from hf_xsent.finetuning.code_switching import switch_questions
from hf_xsent.finetuning.report import FineTuningReport
from hf_xsent.finetuning.running import limit, load_records, run, select_tests, single_groups
from hf_xsent.finetuning.trainer import FineTuningArguments, FineTuningTask, Scores, pad, predictions
from hf_xsent.logs import Progress
from hf_xsent.models.loading import check_offsets

_QUESTIONS_AT_ONCE = 1000


def finetune_mlqa(settings: FineTuningArguments, tokenizer: PreTrainedTokenizerBase) -> list[FineTuningReport]:
    """Read all data, then train and measure."""
    sources, records = load_records(settings.train, lambda path, _: load_questions(path))
    train = switch_questions(sources, records) if settings.code_switching else single_groups(records)
    _, dev = load_records(settings.dev, lambda path, _: load_questions(path, "validation"))
    sets: list[QuestionSet] = []
    if settings.mlqa is not None:
        sets += load_mlqa(settings.mlqa, settings.mlqa_split, settings.generalized)
    if settings.xquad is not None:
        sets += load_xquad(settings.xquad)
    tests: dict[str, dict[str, Any]] = {}
    for test in sets:
        tests.setdefault(test.benchmark, {})[test.name] = [replace(test, questions=test.questions[: settings.max_test])]
    selected = select_tests(tests, settings.languages)
    lengths = (settings.max_length, settings.doc_stride, settings.max_question_length, settings.max_answer_length)
    task = SpanExtraction(tokenizer, *lengths)
    dev_sets = {language: [QuestionSet("squad", language, language, questions)] for language, questions in dev.items()}
    groups = task.grouped_windows([*chain.from_iterable(limit(settings.max_train, train).values())])
    return run(task, AutoModelForQuestionAnswering, settings, tokenizer, groups, dev_sets or None, selected)


@dataclass(frozen=True)
class Window:
    """A question with a part of its context."""

    question: int  # index of the question
    features: dict[str, list[int]]
    context: range  # tokens of the context
    characters: npt.NDArray[np.int32]  # tokens × 2: where each starts and ends in the context
    span: tuple[int, int]  # first and last token of the answer; (0, 0), [CLS], where it is not in this window


class SpanExtraction(FineTuningTask):
    """Extract answers; the scores are F1 and exact match of the official scripts."""

    scores = ("f1", "exact_match")

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int = 384,
        doc_stride: int = 128,
        max_question_length: int = 64,
        max_answer_length: int = 30,
    ) -> None:
        check_offsets(tokenizer)
        room = max_length - max_question_length - tokenizer.num_special_tokens_to_add(pair=True)
        if not 0 <= doc_stride < room:
            raise RecipeError(
                f"doc_stride {doc_stride} does not fit: max_length {max_length} less max_question_length "
                f"{max_question_length} leaves {room} tokens for the context, which must exceed the stride"
            )
        self.tokenizer, self.max_length, self.doc_stride = tokenizer, max_length, doc_stride
        self.max_question_length, self.max_answer_length = max_question_length, max_answer_length

    def collate(self, examples: Sequence[Window]) -> dict[str, Tensor]:
        """Return a batch of rows, ``spans`` (N × 2), and ``allowed``: the tokens of the context and [CLS] (N × L)."""
        batch = pad([window.features for window in examples], int(self.tokenizer.pad_token_id))
        allowed = []
        for window in examples:
            tokens = torch.zeros(len(window.features["input_ids"]), dtype=torch.bool)
            tokens[0] = tokens[window.context.start : window.context.stop] = True
            allowed.append(tokens)
        batch["allowed"] = pad_sequence(allowed, batch_first=True)
        batch["spans"] = torch.tensor([window.span for window in examples])
        return batch

    def loss(self, outputs: Any, batch: Mapping[str, Tensor]) -> Tensor:
        """Average the cross entropies of start and end, with a softmax over the allowed tokens only."""
        logits = torch.stack((outputs.start_logits, outputs.end_logits), 1).float()  # N × 2 × L
        logits = logits.masked_fill(~batch["allowed"][:, None], -torch.inf)
        return F.cross_entropy(logits.flatten(0, 1), batch["spans"].flatten())

    def measure(self, model: PreTrainedModel, sets: Mapping[str, Sequence[Any]]) -> Scores:
        """Compute F1 and exact match of each set; a set is a list of one ``QuestionSet``."""
        scores = {}
        for name, (questions,) in sets.items():
            score = score_answers(questions, self.answers(model, questions))
            scores[name] = {"f1": score.f1, "exact_match": score.exact_match}
        return scores

    def answers(self, model: PreTrainedModel, questions: QuestionSet) -> list[str | None]:
        """Return the text of the best span of each question; None for one whose context is empty."""
        windows = self.windows(questions.questions)
        best: dict[int, tuple[float, str]] = {}
        rows, padding = [window.features for window in windows], int(self.tokenizer.pad_token_id)
        for numbers, outputs in predictions(model, rows, padding, f"measuring {questions.benchmark} {questions.name}"):
            starts, ends = (logits.float().cpu().numpy() for logits in (outputs.start_logits, outputs.end_logits))
            for number, start, end in zip(numbers, starts, ends, strict=True):
                window = windows[number]
                tokens = slice(window.context.start, window.context.stop)
                score, first, last = best_span(start[tokens], end[tokens], self.max_answer_length)
                if window.question not in best or score > best[window.question][0]:
                    context = questions.questions[window.question].context
                    text = context[window.characters[first][0] : window.characters[last][1]].strip()
                    best[window.question] = score, text
        return [best[number][1] if number in best else None for number in range(len(questions.questions))]

    def windows(self, questions: Sequence[Question]) -> list[Window]:
        """Pair each question with each window of its context."""
        windows: list[Window] = []
        for start in Progress(range(0, len(questions), _QUESTIONS_AT_ONCE), desc="tokenizing", delay=2):
            windows += self._windows_of(questions[start : start + _QUESTIONS_AT_ONCE], start)
        return windows

    def grouped_windows(self, groups: Sequence[tuple[Question, ...]]) -> list[tuple[Window, ...]]:
        """Put the windows of a group of questions into one group; each window of a single question is a group."""
        windows = self.windows([question for group in groups for question in group])
        owners = [number for number, group in enumerate(groups) for _ in group]
        grouped: dict[Any, list[Window]] = {}
        for number, window in enumerate(windows):
            owner = owners[window.question]
            grouped.setdefault(owner if len(groups[owner]) > 1 else (number,), []).append(window)
        return [tuple(group) for group in grouped.values()]

    def _windows_of(self, questions: Sequence[Question], first: int) -> list[Window]:
        encoded = self.tokenizer(
            [self._truncated(question.question) for question in questions],
            [question.context for question in questions],
            truncation="only_second",
            max_length=self.max_length,
            stride=self.doc_stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_attention_mask=False,
        )
        names = [name for name in ("input_ids", "token_type_ids") if name in encoded]
        windows = []
        for row, number in enumerate(encoded["overflow_to_sample_mapping"]):
            sides = encoded.sequence_ids(row)
            if 1 not in sides:
                continue  # the context is only spaces
            context = range(sides.index(1), len(sides) - sides[::-1].index(1))
            offsets = encoded["offset_mapping"][row][context.start : context.stop]
            characters = np.array(offsets, dtype=np.int32)
            start, text = questions[number].answers[0]
            span = _tokens_of(characters, start, start + len(text))
            windows.append(
                Window(
                    question=first + number,
                    features={name: encoded[name][row] for name in names},
                    context=context,
                    characters=characters,
                    span=(0, 0) if span is None else (context.start + span[0], context.start + span[1]),
                )
            )
        return windows

    def _truncated(self, question: str) -> str:
        """Return the text of the question's first tokens."""
        encoded = self.tokenizer(question, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        offsets = encoded["offset_mapping"]
        if len(offsets) <= self.max_question_length:
            return question
        return question[: offsets[self.max_question_length - 1][1]]


def best_span(start: npt.NDArray[np.float32], end: npt.NDArray[np.float32], longest: int) -> tuple[float, int, int]:
    """Return the highest sum of start and end scores over spans of at most ``longest`` tokens, and the span.

    >>> best_span(np.array([1.0, 5.0, 0.0]), np.array([9.0, 2.0, 4.0]), longest=2)
    (10.0, 0, 0)
    """
    sums = start[:, None] + end[None, :]
    lengths = np.arange(len(end))[None, :] - np.arange(len(start))[:, None]  # tokens of the span, minus 1
    sums = np.where((lengths >= 0) & (lengths < longest), sums, -np.inf)
    first, last = np.unravel_index(int(sums.argmax()), sums.shape)
    return float(sums[first, last]), int(first), int(last)


def _tokens_of(characters: npt.NDArray[np.int32], start: int, end: int) -> tuple[int, int] | None:
    """Return the first and last token of characters ``start`` to ``end``, or None if the window lacks some of them."""
    inside = np.nonzero((characters[:, 0] < end) & (characters[:, 1] > start))[0]
    if not len(inside) or start < characters[0, 0] or end > characters[-1, 1]:
        return None
    return int(inside[0]), int(inside[-1])
