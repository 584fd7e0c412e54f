"""Windows, the loss and the decoding against slow computations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer
from transformers.modeling_outputs import QuestionAnsweringModelOutput

from hf_xsent.data.benchmarks.questions import Question, QuestionSet
from hf_xsent.errors import RecipeError
from hf_xsent.finetuning.mlqa import SpanExtraction, best_span

CONTEXT = "The dog sleeps in the garden. We eat bread. She lives in Paris. The train arrives late. My sister plays."


def _question(answer: str, question: str = "Where is the dog?") -> Question:
    return Question(f"id of {answer}", question, CONTEXT, ((CONTEXT.index(answer), answer),))


def _task(folder: Path, **lengths: int) -> SpanExtraction:
    lengths = {"max_length": 24, "doc_stride": 4, "max_question_length": 6} | lengths
    return SpanExtraction(AutoTokenizer.from_pretrained(folder), **lengths)


@pytest.mark.parametrize("answer", ["The", "the garden.", "Paris", "eat bread. She", "sister plays.", "leep"])
def test_windows_cover_the_context_and_know_where_the_answer_is(tiny_encoders: Path, answer: str) -> None:
    task, question = _task(tiny_encoders), _question(answer)
    windows = task.windows([question])
    assert len(windows) > 1
    assert windows[0].characters[0][0] == 0
    assert windows[-1].characters[-1][1] == len(CONTEXT)
    found = []
    for window, after in zip(windows, [*windows[1:], None], strict=True):
        assert len(window.features["input_ids"]) <= 24
        assert len(window.characters) == len(window.context)
        if after is not None:  # windows overlap
            assert after.characters[0][0] < window.characters[-1][1]
        if window.span != (0, 0):
            first, last = (token - window.context.start for token in window.span)
            found.append(CONTEXT[window.characters[first][0] : window.characters[last][1]].strip())
    assert found
    assert all(answer in text and len(text) < len(answer) + 8 for text in found)  # whole pieces


def test_long_questions_are_cut(tiny_encoders: Path) -> None:
    task = _task(tiny_encoders)
    (window, *_) = task.windows([_question("Paris", "Where is the dog and the cat and the train and the bread?")])
    ids = window.features["input_ids"][: window.context.start]
    assert len(ids) <= 6 + 3


def test_the_loss_is_over_context_and_cls_alone(encoder_folders: dict[str, Path]) -> None:
    task = _task(encoder_folders["bert"])
    windows = task.windows([_question("Paris"), _question("bread", "a")])
    batch = task.collate(windows)
    start, end = torch.randn(2, *batch["input_ids"].shape)
    expected = torch.zeros(())
    for row, window in enumerate(windows):
        places = [0, *window.context]
        for scores, wanted in ((start, window.span[0]), (end, window.span[1])):
            expected = expected - scores[row][places].log_softmax(0)[places.index(wanted)] / (2 * len(windows))
    outputs = SimpleNamespace(start_logits=start, end_logits=end)
    torch.testing.assert_close(task.loss(outputs, batch), expected)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 1000))
def test_the_best_span_is_the_best_of_all(length: int, longest: int, seed: int) -> None:
    start, end = np.random.default_rng(seed).normal(size=(2, length)).astype(np.float32)
    spans = [(float(start[a] + end[b]), a, b) for a in range(length) for b in range(a, min(length, a + longest))]
    assert best_span(start, end, longest) == max(spans)


def test_the_answer_is_the_text_of_the_best_span_of_all_windows(encoder_folders: dict[str, Path]) -> None:
    """A model that knows where one word is finds it in whatever window it stands."""
    folder = encoder_folders["bert"]
    task = _task(folder)
    wanted = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("Paris")

    class Knows(torch.nn.Module):
        device = torch.device("cpu")

        def forward(self, input_ids: torch.Tensor, **_: torch.Tensor) -> QuestionAnsweringModelOutput:
            scores = (input_ids == wanted).float()
            return QuestionAnsweringModelOutput(start_logits=scores, end_logits=scores)

    questions = QuestionSet("mlqa", "en", "en", [_question("Paris"), replace(_question("bread"), id="id of Paris")])
    found = task.answers(Knows(), questions)  # type: ignore[arg-type]
    assert found == ["Paris", "Paris"]
    assert task.measure(Knows(), {"en": [questions]}) == {"en": {"f1": 50.0, "exact_match": 50.0}}  # type: ignore[arg-type]


def test_questions_that_belong_together_stay_in_one_group(encoder_folders: dict[str, Path]) -> None:
    task = _task(encoder_folders["bert"])
    one, other, third = _question("Paris"), _question("bread"), _question("dog")
    alone = task.windows([one])
    groups = task.grouped_windows([(one, other), (third,)])
    assert len(groups) == 1 + len(alone)
    assert {window.question for window in groups[0]} == {0, 1}
    assert all(len(group) == 1 for group in groups[1:])


def test_a_stride_that_would_not_move_on_is_refused(encoder_folders: dict[str, Path]) -> None:
    with pytest.raises(RecipeError, match="doc_stride 15 does not fit"):
        _task(encoder_folders["bert"], doc_stride=15)
