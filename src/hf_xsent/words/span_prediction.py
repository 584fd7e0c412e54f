"""Align words by question answering: predict the span that translates a marked word (WSPAlign, Wu et al., 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForQuestionAnswering, PreTrainedModel, PreTrainedTokenizerBase

from hf_xsent.data.words.links import Link, best_first
from hf_xsent.data.words.splitting import Words
from hf_xsent.errors import ModelError
from hf_xsent.models.batching import batches_by_length
from hf_xsent.models.loading import check_offsets, load_tokenizer, quiet_loading
from hf_xsent.models.precision import compute_dtype

if TYPE_CHECKING:
    from typing_extensions import Self

MARK = " ¶ "
THRESHOLD = 0.9
_MAX_ANSWER = 15  # word pieces
_CHARACTERS_PER_BATCH = 16384
_MAX_LENGTH = 384  # word pieces of question and context


class SpanAligner:
    """An aligner that predicts, for each word of either side, the span of the other side that translates it.

    The score of a link is the sum of both directions' probabilities, at most 2; a span of several words divides its
    probability among them. As in WSPAlign's code, only the predictions for source words create links; those
    for target words raise the scores of these links. The default of ``threshold`` is that of the paper on WACSE
    (arXiv:2404.02490).
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, threshold: float = THRESHOLD
    ) -> None:
        check_offsets(tokenizer)
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.threshold = threshold

    @classmethod
    def from_pretrained(
        cls, name_or_path: str, threshold: float = THRESHOLD, device: str = "cpu", precision: str = "float32"
    ) -> Self:
        """Load a question answering checkpoint such as qiyuw/WSPAlign-xlm-base."""
        options = {"dtype": compute_dtype(precision, device), "output_loading_info": True}
        tokenizer = load_tokenizer(name_or_path)
        with quiet_loading():
            model, report = AutoModelForQuestionAnswering.from_pretrained(name_or_path, **options)
        if report["missing_keys"]:
            raise ModelError(f"{name_or_path!r} was not trained to answer questions: use a WSPAlign checkpoint")
        return cls(model.to(device), tokenizer, threshold)

    @property
    def identity(self) -> tuple[Any, ...]:
        """All that decides the links besides sentences and weights."""
        return (self.threshold, str(self.model.dtype))

    def align(self, sources: Sequence[Words], targets: Sequence[Words]) -> list[list[Link]]:
        """Return the links of each pair."""
        scores: list[dict[Link, float]] = [{} for _ in sources]
        for backward, (marked, translations) in enumerate(((sources, targets), (targets, sources))):
            words = [(pair, word) for pair, sentence in enumerate(marked) for word in range(len(sentence))]
            questions = [_question(marked[pair], word) for pair, word in words]
            spans = self._predict_spans(questions, [translations[pair].text for pair, _ in words])
            for (pair, word), (start, end, probability) in zip(words, spans, strict=True):
                inside = [k for k, (a, b) in enumerate(translations[pair].spans) if start <= a and b <= end]
                for translation in inside:
                    link = (translation, word) if backward else (word, translation)
                    if not backward or link in scores[pair]:
                        scores[pair][link] = scores[pair].get(link, 0.0) + probability / len(inside)
        return [
            best_first({link: score for link, score in of_pair.items() if score >= self.threshold})
            for of_pair in scores
        ]

    @torch.inference_mode()
    def _predict_spans(self, questions: Sequence[str], contexts: Sequence[str]) -> list[tuple[int, int, float]]:
        """Return start, end and probability of each answer in its context."""
        answers = [(0, 0, 0.0)] * len(questions)
        lengths = [len(question) + len(context) for question, context in zip(questions, contexts, strict=True)]
        for numbers in batches_by_length(lengths, _CHARACTERS_PER_BATCH):
            encoded = self.tokenizer(
                [questions[number] for number in numbers],
                [contexts[number] for number in numbers],
                truncation=True,
                max_length=_MAX_LENGTH,
                padding=True,
                return_offsets_mapping=True,
                return_tensors="pt",
            )
            offsets = encoded.pop("offset_mapping")
            inputs = {name: tensor.to(self.model.device) for name, tensor in encoded.items()}
            output = self.model(**inputs)
            in_context = torch.tensor(
                [[part == 1 for part in encoded.sequence_ids(row)] for row in range(len(offsets))]
            )
            allowed = in_context | (encoded["input_ids"] == self.tokenizer.cls_token_id)  # [CLS]: no answer
            start, end = (
                logits.float().cpu().masked_fill(~allowed, -torch.inf).softmax(1) * in_context
                for logits in (output.start_logits, output.end_logits)
            )
            spans = (start[:, :, None] * end[:, None]).triu().tril(_MAX_ANSWER - 1)
            best = spans.flatten(1).max(1)
            width = spans.shape[2]
            for row, (probability, place) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
                first, last = offsets[row, place // width, 0], offsets[row, place % width, 1]
                answers[numbers[row]] = int(first), int(last), probability
        return answers


def _question(words: Words, number: int) -> str:
    start, end = words.spans[number]
    return f"{words.text[:start]}{MARK}{words.text[start:end]}{MARK}{words.text[end:]}"
