"""Declare the settings of fine-tuning, without importing torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hf_xsent.settings.declare import setting
from hf_xsent.training.settings import CommonTrainingSettings, FolderSettings


@dataclass(repr=False, eq=False)
class FineTuningSettings:
    """The encoder and the data."""

    task: str | None = setting(
        None,
        "Natural language inference, or question answering.",
        positional=True,
        required=True,
        choices=("xnli", "mlqa"),
    )
    model: str = setting(
        None,
        "Start from this encoder (a folder or a Hub id); without --train, measure this fine-tuned model.",
    )
    train: list[str] | None = setting(
        None,
        "Train on these files, by language: en=train.tsv alone (zero-shot), or also de=… fr=… (translate-train).",
        named=True,
        metavar="CODE=FILE",
    )
    dev: list[str] | None = setting(
        None,
        "Evaluate on these files during training, in the format of --train (from the Hub: the validation split).",
        named=True,
        metavar="CODE=FILE",
    )
    code_switching: bool = setting(
        False,
        "Code-switch: train on two copies of each non-English record, each with one text in English; needs en=…",
    )
    languages: list[str] | None = setting(
        None,
        "Evaluate only these languages, such as de, or de-en for G-XLT; without it, all.",
        metavar="CODE",
        results=False,
    )
    max_length: int = setting(
        None, "Truncate each row, both texts together, to this many tokens. (default: 128, for mlqa 384)"
    )
    max_train: int | None = setting(
        None, "Train on at most this many records of each language; without it, all.", at_least=1
    )
    max_test: int | None = setting(
        None,
        "For trials: measure at most this many records of each test set; without it, all.",
        at_least=1,
        results=False,
    )
    dropout: float | None = setting(None, "Dropout of the encoder; default: the checkpoint's.", at_least=0, below=1)
    xnli: str | None = setting(
        None, "Measure XNLI at the end: a folder of files test-de.tsv, or facebook/xnli.", results=False
    )


@dataclass(repr=False, eq=False)
class QuestionSettings:
    """Extractive question answering."""

    mlqa: str | None = setting(
        None, "Measure MLQA at the end: a folder of files test-context-de-question-de.json, or a Hub id.", results=False
    )
    mlqa_split: str = setting("test", "Measure this split of MLQA.", choices=("test", "dev"), results=False)
    generalized: bool = setting(
        False, "Also measure questions and contexts of different languages (G-XLT).", results=False
    )
    xquad: str | None = setting(
        None, "Measure XQuAD at the end: a folder of files xquad.de.json, or google/xquad.", results=False
    )
    doc_stride: int = setting(128, "Overlap of the windows of a long context, in tokens.")
    max_question_length: int = setting(64, "Truncate questions to this many tokens.", at_least=1)
    max_answer_length: int = setting(30, "Find answers of at most this many tokens.", at_least=1, results=False)


@dataclass(repr=False, eq=False)
class FineTuningTrainingSettings(CommonTrainingSettings):
    """The fields of TrainingArguments whose defaults fine-tuning changes, and common ones."""

    num_train_epochs: float = setting(2.0, "Train for N epochs, unless --max_steps is given.")
    per_device_train_batch_size: int = setting(
        32,
        "Records, of mlqa windows of contexts, per step and process; a code-switched record is two rows.",
        at_least=1,
    )
    eval_strategy: str = setting(
        "epoch", "Evaluate on --dev; steps: every --eval_steps.", choices=("no", "steps", "epoch")
    )
    save_total_limit: int | None = setting(1, "Number of checkpoints to retain.", at_least=1, results=False)


class FineTuneHelp:
    """Fine-tune an encoder on a task in English, or in several languages, and measure every language.

    hf-xsent finetune xnli --model runs/mine --train en=multinli.train.tsv --xnli data/xnli --output runs/mine-xnli
    hf-xsent finetune mlqa --model runs/mine --train en=train-v1.1.json --mlqa data/mlqa --xquad data/xquad --output …
    hf-xsent finetune xnli xnli-translate-train --model runs/mine --train en=… de=… fr=…

    Every field of transformers' TrainingArguments is also a flag and a recipe key; common ones are listed below. The
    results are in results.json and results.txt of the output folder, next to the published ones.
    """

    help_groups: ClassVar[dict[str, tuple[type, ...]]] = {
        "encoder and data": (FineTuningSettings,),
        "question answering (mlqa)": (QuestionSettings,),
        "run": (FolderSettings,),
        "training": (FineTuningTrainingSettings,),
    }
