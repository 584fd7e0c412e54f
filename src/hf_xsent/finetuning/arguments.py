"""What a fine-tuning run may say, beside transformers' own TrainingArguments. Free of torch, so that help is quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hf_xsent.settings.declaring import setting

_MAX_LENGTH = "Give a row, both texts together, so many tokens; default: 128 for xnli, windows of 384 for mlqa."


@dataclass
class FineTuneArguments:
    """Which encoder, on what, and where to."""

    model: str | None = setting(
        None,
        "Start from this encoder: a folder (ours, exported, plain) or a Hub id; without --train, a fine-tuned one.",
    )
    train: list[str] | None = setting(
        None,
        "Train on these, by language: en=train.tsv alone (zero-shot), or de=… fr=… too (translate-train).",
        named=True,
    )
    dev: list[str] | None = setting(
        None, "Measure these during training, given like --train (of the Hub: the validation split).", named=True
    )
    code_switching: bool = setting(
        False, "Exchange one text of each non-English pair for its English translation, both ways in one batch."
    )
    languages: list[str] | None = setting(None, "Measure these languages only, such as de, or de-en of G-XLT.")
    max_length: int = setting(128, _MAX_LENGTH)
    max_train: int | None = setting(None, "Train on at most so many records a language, or switched pairs of them.")
    max_test: int | None = setting(None, "Measure at most so many records of each test set; for a look, not a result.")
    dropout: float | None = setting(None, "Set the encoder's dropout; default: as it comes.")
    resume: bool = setting(False, "Go on from the last checkpoint in the output folder.")
    overwrite: bool = setting(False, "Replace the run that the output folder holds.")
    verbose: bool = setting(False, "Log what the libraries underneath have to say, too.")


@dataclass
class XnliArguments(FineTuneArguments):
    """Natural language inference."""

    task: ClassVar[str] = "xnli"

    xnli: str | None = setting(None, "Measure XNLI at the end: a folder of files test-de.tsv, or facebook/xnli.")


@dataclass
class MlqaArguments(FineTuneArguments):
    """Extractive question answering."""

    task: ClassVar[str] = "mlqa"

    mlqa: str | None = setting(
        None, "Measure MLQA at the end: a folder of files test-context-de-question-de.json, or a Hub id."
    )
    mlqa_split: str = setting("test", "Measure this split of MLQA: test or dev.")
    generalized: bool = setting(False, "Measure questions and contexts of different languages, too (G-XLT).")
    xquad: str | None = setting(None, "Measure XQuAD at the end: a folder of files xquad.de.json, or google/xquad.")
    max_length: int = setting(384, _MAX_LENGTH)
    doc_stride: int = setting(128, "Let windows of a long context overlap by so many tokens.")
    max_question_length: int = setting(64, "Cut questions after so many tokens.")
    max_answer_length: int = setting(30, "Find answers of at most so many tokens.")
