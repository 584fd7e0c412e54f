"""Declare the recipe settings of starting encoder, data, run and training, without importing torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hf_xsent.settings.declare import setting
from hf_xsent.settings.model import EncoderSettings, ExtractionSettings, PairSettings


@dataclass(frozen=True)
class StartSettings:
    """The starting encoder and the method."""

    model: str | None = setting(
        None, "Starting encoder, or a model to train further: a Hub id such as xlm-roberta-base, or a folder."
    )
    method: str = setting(
        "alignment",
        "Method, with its model and its objectives; alignment is translation ranking (TR).",
        choices=("alignment", "dap", "ppa", "wacse", "dual-pivot"),
    )


@dataclass(frozen=True)
class DataSettings:
    """The bitext: sources, cleaning and mixing."""

    data: list[str] | None = setting(
        None,
        "Training pairs by language: de=pairs.tsv fr=OPUS.en-fr.tmx, train/{language}-en.tsv.xz for all languages, or "
        "files named by their code: de.tsv tr-en.csv.",
        named=True,
        metavar="CODE=FILE",
    )
    unpaired: list[str] | None = setting(
        None, "Dual pivot: two files of unpaired sentences, one per language: de.txt en.txt.", metavar="FILE"
    )
    dev: list[str] | None = setting(
        None,
        "Dev pairs, which choose the best checkpoint, in the format of --data; of a data set, its split validation. "
        "(default: some of the training pairs)",
        named=True,
        metavar="CODE=FILE",
    )
    dev_pairs: int = setting(
        100, "Without --dev, hold out this many training pairs of each language as dev pairs.", at_least=0
    )
    dev_share: float | None = setting(
        None, "Hold out at most this fraction of a language's pairs, even if --dev_pairs is more.", above=0, below=1
    )
    target_language: str = setting("en", "Language of the target side.")
    columns: list[str] | None = setting(
        None,
        "Source column and target column, by name or number (from 0): 0 1 or text_de text_en. "
        "Per language or file: de=0,1 mined.tsv=source,target. (default: found by header or content)",
        named=True,
        metavar="COLUMN",
    )
    alpha: float = setting(
        0.5,
        "Sample languages in proportion to size^alpha: 1 is in proportion to their sizes, 0 samples all equally.",
        at_least=0,
        at_most=1,
    )
    max_pairs: int | None = setting(None, "Read at most this many training pairs of each language; without it, all.")
    max_pairs_choice: str = setting(
        "first",
        "Which pairs max_pairs keeps: the first, or a random choice, which is the same in every run.",
        choices=("first", "random"),
    )
    clean: bool = setting(True, "Apply the cleaning rules; false applies only those that --rules states.")
    rules: list[str] | None = setting(
        None,
        "Change cleaning rules: max_characters=200 sets a limit, copied_share=null turns that rule off, "
        "exclude=FILES removes pairs that have a sentence of these test sets; data/cleaning/rules.py lists all rules.",
        named=True,
        metavar="RULE=VALUE",
    )
    on_error: str = setting(
        "raise", "At a bad line, stop (raise), or skip, count and report it (skip).", choices=("raise", "skip")
    )
    cache_dir: str | None = setting(
        None,
        "Folder in which to cache the cleaned bitext, memory-mapped. (default: hf_xsent/bitext in HF_HOME)",
        metavar="FOLDER",
        results=False,
        local=True,
    )
    features: str | None = setting(
        None,
        "Dual pivot: cache the frozen encoder's layer sums in this folder, which runs may share; without it, "
        'OUTPUT_DIR/features. "none" disables the cache: the encoder runs in every step, as always with --variant '
        "authors or --pooling mean.",
        results=False,
        local=True,
    )


@dataclass
class FolderSettings:
    """What to do with the run in the output folder, and what to log."""

    resume: bool = setting(False, "Resume from the last checkpoint in the output folder.", results=False)
    resume_with_changes: bool = setting(
        False,
        "Resume although settings or data that decide the results have changed; run_state.json records them.",
        results=False,
    )
    overwrite: bool = setting(False, "Replace the earlier run in the output folder.", results=False)
    verbose: bool = setting(False, "Also log the messages of transformers and other libraries.", results=False)


@dataclass
class RunSettings(FolderSettings):
    """What to do with the output folder, and what to log."""

    dry_run: bool = setting(
        False,
        "Load everything, run at most three steps, and estimate the time and memory of the full run.",
        results=False,
    )


@dataclass(repr=False, eq=False)
class CommonTrainingSettings:
    """The fields of TrainingArguments that training and fine-tuning list in help, and those that both change."""

    output_dir: str | None = setting(
        None, "Write checkpoints, metrics and the final model into this folder; required.", metavar="FOLDER",
        aliases=("output", "o"), local=True,
    )  # fmt: skip
    max_steps: int = setting(-1, "Train for N steps; -1 trains for --num_train_epochs.")
    num_train_epochs: float = setting(3.0, "Train for N epochs, unless --max_steps is given.")
    learning_rate: float = setting(5e-5, "Peak learning rate; 5e-5 suits small and base-size encoders.", at_least=0)
    warmup_steps: float = setting(0.1, "Warm-up steps; below 1, a fraction of all steps.")
    bf16: bool | str = setting(
        False,
        "Compute in bfloat16; weights stay float32. auto: if that is faster on this device, which is measured.",
        metavar="true|false|auto",
    )
    save_steps: float = setting(500, "Write a checkpoint every N steps.", above=0)
    seed: int = setting(42, "Seed of new weights, dropout and data order.", at_least=0, at_most=2**32 - 1)
    logging_steps: float = setting(10, "Log the losses every N steps, and before each checkpoint.", results=False)
    report_to: str | list[str] | None = setting(
        "none", "Also send metrics to tensorboard, wandb or trackio.", results=False
    )
    remove_unused_columns: bool = setting(False, "The collator needs the raw text.", results=False, shown=False)
    disable_tqdm: bool | None = setting(False, "Hide the progress bar.", results=False, shown=False)
    ddp_find_unused_parameters: bool | None = setting(
        False, "Every step uses every weight.", results=False, shown=False
    )


@dataclass(repr=False, eq=False)
class TrainingSettings(CommonTrainingSettings):
    """Settings that hf-xsent adds to TrainingArguments, those whose defaults it changes, and common ones."""

    per_device_train_batch_size: int = setting(
        64,
        "Pairs per step and process; translation ranking takes its negatives from this batch, over all processes.",
        at_least=1,
    )
    eval_strategy: str = setting(
        "steps",
        "When to measure dev accuracy; no: never, and no pairs are held out (with share_of_start: before and after "
        "training).",
        choices=("no", "steps", "epoch"),
    )
    eval_steps: float | None = setting(
        None, "Measure dev accuracy every N steps; save_steps must be a multiple of it. (default: save_steps)"
    )
    eval_on_start: bool = setting(True, "Measure dev accuracy before the first step.", results=False)
    load_best_model_at_end: bool = setting(True, "At the end, load the checkpoint with the best dev accuracy.")
    metric_for_best_model: str | None = setting(
        "accuracy",
        "Dev metric that decides which checkpoint is best: accuracy, or beside (in a pool with the query's language).",
    )
    save_total_limit: int | None = setting(
        2,
        "Keep at most this many checkpoints, but always the best and, until the end, the latest; null: all.",
        at_least=1,
        results=False,
    )
    one_language_batches: bool = setting(False, "Fill each batch, over all processes, with pairs of one language.")
    pairs_per_chunk: int | None = setting(
        None,
        "Gradient caching: encode the batch in chunks of this many pairs, which needs the memory of one chunk and "
        "gives the gradients of the full batch; each chunk is encoded twice.",
        at_least=1,
        results=False,
    )
    head_learning_rate: float | None = setting(
        None, "Peak learning rate of the objectives' heads; without it, learning_rate.", above=0
    )
    frozen_word_embeddings: bool = setting(False, "Freeze the word embeddings: less memory, faster steps.")
    frozen_layers: int = setting(
        0, "Freeze the embeddings and the lowest N layers: less memory, faster steps; 0 freezes nothing.", at_least=0
    )
    early_stopping_patience: int | None = setting(
        None, "Stop after N consecutive dev measurements without a new best; without it, never stop early.", at_least=1
    )
    share_of_start: float | str = setting(
        0.0,
        "After training, average the weights with those of the starting encoder; this is the starting encoder's share, "
        "at least 0 and below 1. auto: the share from 0 to 0.5 with the highest sum of dev accuracy and the score of "
        "--retention.",
        metavar="X|auto",
    )
    retention: str | None = setting(
        None,
        "Measure the encoder within languages before and after training, on the data of this folder: sts17, xquad_r, "
        "or both. The model card states both scores.",
        metavar="FOLDER",
        results=False,
        local=True,
    )
    largest_drop: float | None = setting(
        None,
        "With --retention: end with an error, after the run is saved, if the score falls by more than N points.",
        at_least=0,
    )
    ddp_timeout: int = setting(
        600,
        "End the run with an error if a process waits this many seconds for another one.",
        at_least=1,
        results=False,
    )
    ddp_broadcast_buffers: bool | None = setting(False, "All processes hold equal queues.", results=False, shown=False)


@dataclass(frozen=True)
class ObjectivesHelp:
    """The losses to train with."""

    objectives: list[str] | None = setting(
        None,
        "Losses and their weights; hf-xsent pretrain --help objectives lists all of them with their settings. "
        "(default: those of --method)",
        metavar="NAME=WEIGHT",
    )


class PretrainHelp:
    """Train a model from a recipe, from flags, or from both (a flag replaces the recipe's value).

    hf-xsent pretrain mixed-small --model xlm-roberta-base --data de=pairs.tsv --output runs/search
    hf-xsent pretrain --model xlm-roberta-base --data de=pairs.tsv --output runs/de --max_steps 1000
    torchrun --nproc_per_node 8 trainer_scripts/run_pretrain.py recipe.yaml

    A method is a choice of objectives: --objectives translation_ranking=1.0 representation_translation=0.8. Set their
    settings by --objectives.translation_ranking.temperature 0.02, or --temperature 0.02 if only one of them has it.
    A recipe is a YAML file of such flags, or the name of one of the package's, listed by --help recipes.
    Every field of transformers' TrainingArguments is also a flag and a recipe key; common ones are listed below.
    """

    help_groups: ClassVar[dict[str, tuple[type, ...]]] = {
        "start": (StartSettings,),
        "objectives": (ObjectivesHelp,),
        "model": (EncoderSettings, PairSettings, ExtractionSettings),
        "data": (DataSettings,),
        "run": (RunSettings,),
        "training": (TrainingSettings,),
    }
    help_topics: ClassVar[dict[str, str]] = {
        "objectives": "objectives.registry:settings_by_objective",
        "recipes": "settings.recipes:recipes_help",
    }
