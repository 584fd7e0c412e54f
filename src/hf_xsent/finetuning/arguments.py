"""What a fine-tuning run may say, beside transformers' own TrainingArguments. Free of torch, so that help is quick."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


def _flag(default: Any = None, *, help: str) -> Any:  # noqa: A002 - argparse's own word
    return field(default=default, metadata={"help": help})


_MAX_LENGTH = "Give a row, both texts together, so many tokens; default: 128 for xnli, windows of 384 for mlqa."


@dataclass
class FineTuneArguments:
    """Which encoder, on what, and where to."""

    model: str | None = _flag(
        help="Start from this encoder: a folder (ours, exported, plain) or a Hub id; without --train, a fine-tuned one."
    )
    train: list[str] | None = _flag(
        help="Train on these, by language: en=train.tsv alone (zero-shot), or de=… fr=… too (translate-train)."
    )
    dev: list[str] | None = _flag(
        help="Measure these during training, given like --train (of the Hub: the validation split)."
    )
    code_switching: bool = _flag(
        False, help="Exchange one text of each non-English pair for its English translation, both ways in one batch."
    )
    languages: list[str] | None = _flag(help="Measure these languages only, such as de, or de-en of G-XLT.")
    max_length: int = _flag(128, help=_MAX_LENGTH)
    max_train: int | None = _flag(help="Train on at most so many records a language, or switched pairs of them.")
    max_test: int | None = _flag(help="Measure at most so many records of each test set; for a look, not a result.")
    dropout: float | None = _flag(help="Set the encoder's dropout; default: as it comes.")
    resume: bool = _flag(False, help="Go on from the last checkpoint in the output folder.")
    overwrite: bool = _flag(False, help="Replace the run that the output folder holds.")
    verbose: bool = _flag(False, help="Log what the libraries underneath have to say, too.")


@dataclass
class XnliArguments(FineTuneArguments):
    """Natural language inference."""

    task: ClassVar[str] = "xnli"

    xnli: str | None = _flag(help="Measure XNLI at the end: a folder of files test-de.tsv, or facebook/xnli.")


@dataclass
class MlqaArguments(FineTuneArguments):
    """Extractive question answering."""

    task: ClassVar[str] = "mlqa"

    mlqa: str | None = _flag(
        help="Measure MLQA at the end: a folder of files test-context-de-question-de.json, or a Hub id."
    )
    mlqa_split: str = _flag("test", help="Measure this split of MLQA: test or dev.")
    generalized: bool = _flag(False, help="Measure questions and contexts of different languages, too (G-XLT).")
    xquad: str | None = _flag(help="Measure XQuAD at the end: a folder of files xquad.de.json, or google/xquad.")
    max_length: int = _flag(384, help=_MAX_LENGTH)
    doc_stride: int = _flag(128, help="Let windows of a long context overlap by so many tokens.")
    max_question_length: int = _flag(64, help="Cut questions after so many tokens.")
    max_answer_length: int = _flag(30, help="Find answers of at most so many tokens.")
