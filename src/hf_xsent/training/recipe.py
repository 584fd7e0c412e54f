"""Declare the settings of a recipe besides the model's: start, data, run and training. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass

from hf_xsent.settings.declaring import setting


@dataclass(frozen=True)
class StartSettings:
    """The encoder and the method."""

    model: str | None = setting(
        None, "Start from this encoder, or continue from this model: a Hub id such as xlm-roberta-base, or a folder."
    )
    method: str = setting(
        "alignment",
        "Train the model of this method, with its objectives: alignment (TR), dap, ppa, wacse or dual-pivot.",
    )


@dataclass(frozen=True)
class DataSettings:
    """The bitext: sources, cleaning and mixing."""

    data: list[str] | None = setting(
        None,
        "Read pairs from these: de=pairs.tsv fr=OPUS.en-fr.tmx, or train/{language}-en.tsv.xz for all at once.",
        named=True,
    )
    unpaired: list[str] | None = setting(
        None, "Dual pivot: read unpaired sentences, one file of each language: de.txt en.txt."
    )
    dev: list[str] | None = setting(None, "Choose the best checkpoint on these pairs, given like --data.", named=True)
    dev_pairs: int = setting(
        100, "Without --dev, hold this many pairs of each language out of the training data.", at_least=0
    )
    target_language: str = setting("en", "Language of the target side.")
    columns: list[str] | None = setting(
        None, "Names or numbers of the source and the target column, such as 0 1 or text_de text_en."
    )
    links: list[str] | None = setting(
        None,
        "Read word links of the pairs from these, given like --data: Pharaoh lines or JSONL of align-words.",
        named=True,
    )
    link_words: str = setting(
        "script",
        "Words that links count: those of align-words (script), or words between spaces.",
        choices=("script", "spaces"),
    )
    alpha: float = setting(
        0.5,
        "Sample languages in proportion to size^alpha: 1 keeps their sizes, 0 samples all equally.",
        at_least=0,
        at_most=1,
    )
    max_pairs: int | None = setting(None, "Read at most this many pairs of each language.")
    clean: bool = setting(True, "Apply the cleaning rules; false trains on every pair.")
    rules: list[str] | None = setting(
        None,
        "Set cleaning rules, such as max_characters=200 copied_share=null; data/cleaning/rules.py lists them.",
        named=True,
    )
    on_error: str = setting(
        "raise", "Stop at the first bad line (raise), or count and report bad lines (skip).", choices=("raise", "skip")
    )
    cache_dir: str | None = setting(None, "Folder of the cleaned, memory-mapped bitext.")
    features: str | None = setting(
        None,
        "Dual pivot: cache the frozen encoder's output in this folder, which runs may share; none runs the encoder in "
        "each step. Without it, OUTPUT_DIR/features.",
    )


@dataclass(frozen=True)
class RunSettings:
    """What to do with the output folder, and what to log."""

    resume: bool = setting(False, "Resume from the last checkpoint in the output folder.")
    overwrite: bool = setting(False, "Replace the run that the output folder holds.")
    dry_run: bool = setting(False, "Load everything, run three steps, and estimate what the whole run would take.")
    verbose: bool = setting(False, "Also log the messages of transformers and other libraries.")


@dataclass(repr=False, eq=False)
class TrainingSettings:
    """Settings that hf-xsent adds to TrainingArguments, and those whose defaults it changes."""

    per_device_train_batch_size: int = setting(
        64, "Pairs per step and process; in ranking, a batch holds the negatives."
    )
    logging_steps: float = setting(10, "Log losses every this many steps.")
    eval_strategy: str = setting("steps", "When to measure dev accuracy: no, steps or epoch.")
    eval_on_start: bool = setting(True, "Measure dev accuracy before the first step.")
    load_best_model_at_end: bool = setting(True, "End with the checkpoint that is best on dev.")
    metric_for_best_model: str | None = setting("accuracy", "Metric that decides which checkpoint is best.")
    save_total_limit: int | None = setting(2, "Number of checkpoints to retain besides the best.")
    warmup_steps: float = setting(0.1, "Warm-up steps; below 1, a fraction of all steps.")
    remove_unused_columns: bool = setting(False, "The collator needs the raw text.")
    one_language_batches: bool = setting(False, "Fill each batch, over all processes, with pairs of one language.")
    distinct_batches: bool = setting(
        False, "Sample no sentence twice into a batch, over all processes; other pairs of its language replace repeats."
    )
    pairs_per_chunk: int | None = setting(
        None,
        "Encode a batch in chunks of this many pairs, twice, so that it needs the memory of one chunk.",
        at_least=1,
    )
    head_learning_rate: float | None = setting(
        None, "Peak learning rate of the objectives' heads; without it, --learning_rate.", above=0
    )
    frozen_word_embeddings: bool = setting(False, "Freeze the word embeddings: less memory, faster steps.")
    frozen_layers: int = setting(
        0, "Freeze the embeddings and this many lowest layers: less memory, faster steps.", at_least=0
    )
    early_stopping_patience: int | None = setting(
        None, "Stop after this many dev measurements in a row without a better one.", at_least=1
    )
    compile_layers: bool = setting(False, "Compile the encoder's layers, once for all lengths; for GPUs.")
    share_of_start: float = setting(
        0.0,
        "Average the trained encoder with the one it started from: fraction of the starting weights to keep.",
        at_least=0,
        below=1,
    )
    ddp_find_unused_parameters: bool | None = setting(False, "Every weight takes part in every step.")
    ddp_broadcast_buffers: bool | None = setting(False, "Queues are equal in all processes already.")


SHOWN_TRAINING_ARGUMENTS = {  # fields of transformers' TrainingArguments that help lists first
    "output_dir": "Write checkpoints, metrics and the final model into this folder.",
    "max_steps": "Stop after this many steps (or give --num_train_epochs).",
    "learning_rate": "Peak learning rate; 5e-5 suits a base-size encoder.",
    "eval_steps": "Measure dev accuracy every this many steps; save_steps must be a multiple.",
    "save_steps": "Write a checkpoint every this many steps.",
    "bf16": "Compute in bfloat16 where the machine can; weights stay float32.",
    "seed": "Seed of weights, dropout and data order.",
    "report_to": "Also send metrics to tensorboard, wandb or trackio.",
}
HIDDEN_TRAINING_SETTINGS = ("remove_unused_columns", "ddp_find_unused_parameters", "ddp_broadcast_buffers")
