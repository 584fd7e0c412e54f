"""What a recipe may say: the flags of a run, each with what to do about it. Free of torch, so that help is quick."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def _flag(default: Any = None, *, help: str) -> Any:  # noqa: A002 - argparse's own word
    return field(default=default, metadata={"help": help})


@dataclass
class ModelArguments:
    """Which encoder starts, and how its states become a sentence vector. Empty: the method's own default."""

    model: str | None = _flag(
        help="Start from this encoder, or go on from this model: a Hub id such as xlm-roberta-base, or a folder."
    )
    method: str = _flag("dap", help="Choose the method whose model is trained: dap, ppa, wacse or dual-pivot.")
    pooling: str | None = _flag(help="Make the sentence vector from the first token (cls), or by mean or max.")
    normalize: bool | None = _flag(help="Scale sentence vectors to length 1.")
    max_length: int | None = _flag(
        help="Cut sentences after this many tokens; 32 trains fastest, 128 keeps nearly all."
    )
    dropout: float | None = _flag(help="Set the encoder's dropout; 0 suits short runs, default: as it comes.")
    languages: list[str] | None = _flag(help="Give these languages (include the target's) an embedding of their own.")
    lora_rank: int | None = _flag(
        help="Freeze the encoder and train adapters of this rank in it (LoRA), merged at the end."
    )
    lora_alpha: float | None = _flag(help="Scale adapters by alpha / rank; default: alpha is twice the rank.")
    lora_targets: list[str] | None = _flag(
        help="Adapt linear layers of these names, such as query value; default: all."
    )
    objectives: list[str] | None = _flag(help="Mix these losses, by weight: translation_ranking=1.0 …")
    random_input_shuffling: bool | None = _flag(help="Let a coin for each pair exchange its source and target.")
    temperature: float | None = _flag(
        help="Divide cosines by this in translation ranking and momentum contrast; lower is sharper."
    )
    margin: float | None = _flag(help="Take this off the score of the right translation; 0.3 is LaBSE's.")
    margin_before_temperature: bool | None = _flag(help="Take the margin off the cosine, before the temperature.")
    symmetric: bool | None = _flag(help="Rank in both directions and average.")
    mask_repeated: bool | None = _flag(help="Do not count repeated sentences of a batch or queue as wrong answers.")
    matryoshka_dims: list[int] | None = _flag(
        help="Rank vectors cut to each of these widths, such as 384 256 128 64, so that users may cut them, too."
    )
    training_mlp: bool | None = _flag(help="Put a tanh layer over sentence vectors in training only, as DAP's code.")
    moco_queue_size: int | None = _flag(help="Keep so many keys of earlier batches as wrong answers.")
    moco_momentum: float | None = _flag(help="Keep this share of the momentum encoder in each step; 0.999 is slow.")
    moco_projection: int | None = _flag(help="Give queries and keys so many numbers.")
    teacher: str | None = _flag(
        help="Let distillation make both sides like this model's vectors of the target: a Hub id or a folder."
    )
    distillation_measure: str | None = _flag(help="Measure the distance from the teacher by mse or cosine.")
    rtl_layers: int | None = _flag(help="Give the RTL head so many layers, started from the encoder's last.")
    rtl_direction: str | None = _flag(
        help="Rebuild targets from sources (source_to_target), target_to_source, or both on half a batch each."
    )
    rtl_ratio: float | None = _flag(help="Mask this share of the wanted tokens; the others are shown to the RTL head.")
    rtl_positions: str | None = _flag(
        help="Number wanted tokens from max_length (fixed), or from the batch's longest sentence (padded, DAP's code)."
    )
    rtl_languages: list[str] | None = _flag(
        help="Tell these languages apart in the RTL head; default for other directions: all of the data."
    )
    rtl_vocabulary: str | None = _flag(
        help="Project onto these word pieces: those in a file of hf-xsent vocabulary, of the data (auto), or all."
    )
    rtl_missing: str = _flag(
        "unknown", help="Count word pieces of the data that --rtl_vocabulary lacks as unknown, or extend it by them."
    )
    awp_share: float | None = _flag(help="Mask the linked words of this share of the sentences in each step.")
    wtr_temperature: float | None = _flag(help="Divide cosines of words by this in word translation ranking.")
    masked_share: float | None = _flag(help="Mask this share of the word pieces in MLM and TLM.")
    tlm_reset_positions: bool | None = _flag(help="Count positions of the translation from 0 again in TLM.")
    tlm_own_words: bool | None = _flag(help="Give the TLM head a word table of its own, as DAP's code.")
    layers: list[int] | None = _flag(help="Let dual pivot mix these hidden states, 0 are the embeddings; default: all.")
    layer_mix: bool | None = _flag(help="Train the weights of dual pivot's mix of layers; else it is their average.")
    linear_map: bool | None = _flag(help="Train dual pivot's linear map.")
    triplet_margin: float | None = _flag(help="Want a translation this much closer than another sentence.")
    triplet_negatives: int | None = _flag(
        help="Compare with so many others of the batch, the hardest and random ones, in triplet ranking."
    )
    critic_steps: int | None = _flag(help="Train the critic so many steps for each of the encoder.")
    critic_clip: float | None = _flag(help="Keep the critic's weights within this of zero; default: they are free.")
    critic_penalty: float | None = _flag(help="Weigh the critic's gradient penalty by this; default: there is none.")
    vocabulary_sample: int | None = _flag(help="Take the softmax over so many random word pieces and the right ones.")
    vocabulary_bf16: bool | None = _flag(help="Compute vocabulary projections in bfloat16.")


@dataclass
class DataArguments:
    """The bitext: what to read, what to drop, how to mix."""

    data: list[str] | None = _flag(
        help="Read pairs from these: de=pairs.tsv fr=OPUS.en-fr.tmx, or train/{language}-en.tsv.xz for all at once."
    )
    unpaired: list[str] | None = _flag(
        help="Read one file of sentences of each language, no translations, for dual pivot: de.txt en.txt."
    )
    dev: list[str] | None = _flag(help="Choose the best checkpoint on these pairs, given like --data.")
    dev_pairs: int = _flag(100, help="Without --dev, hold this many pairs of each language back; 0 for none.")
    target_language: str = _flag("en", help="Name the language of the target side.")
    columns: list[str] | None = _flag(
        help="Name or number the source and the target column, such as 0 1 or text_de text_en."
    )
    links: list[str] | None = _flag(
        help="Read word links of the pairs from these, given like --data: Pharaoh lines or JSONL of align-words."
    )
    link_words: str = _flag(
        "script", help="Take links as counting the words that align-words splits (script), or words between spaces."
    )
    alpha: float = _flag(0.5, help="Draw languages in proportion to size^alpha: 1 as they come, 0 all alike.")
    max_pairs: int | None = _flag(help="Read at most this many pairs a language.")
    clean: bool = _flag(True, help="Apply the cleaning rules; --clean false keeps every pair.")
    rules: list[str] | None = _flag(
        help="Set cleaning rules, such as max_characters=200 copied_share=null; data/cleaning.py explains them."
    )
    on_error: str = _flag("raise", help="Stop at the first bad line (raise), or count and report it (skip).")
    cache_dir: str | None = _flag(help="Keep the cleaned, memory-mapped bitext here.")
    features: str | None = _flag(
        help="Keep what dual pivot's encoder makes of each sentence in this folder, for other runs, too; "
        "none: run the encoder in each step. Default: OUTPUT_DIR/features."
    )
    features_dtype: str = _flag("float16", help="Keep features as float16 or float32.")


@dataclass
class RunArguments:
    """The run as a whole."""

    resume: bool = _flag(False, help="Go on from the last checkpoint in the output folder.")
    overwrite: bool = _flag(False, help="Replace the run that the output folder holds.")
    dry_run: bool = _flag(False, help="Load everything, run three steps, and tell what the whole run would take.")
    verbose: bool = _flag(False, help="Log what the libraries underneath have to say, too.")


COMMON_TRAINING_FLAGS = {
    "output_dir": "Write checkpoints, metrics and the final model into this folder.",
    "max_steps": "Stop after this many steps (or give --num_train_epochs).",
    "per_device_train_batch_size": "Pairs a step and process; the other pairs of a batch are the wrong answers.",
    "frozen_layers": "Leave the embeddings and so many lowest layers as they are.",
    "early_stopping_patience": "Stop after so many dev measurements in a row without a better one.",
    "learning_rate": "Peak learning rate; 5e-5 for a base-size encoder.",
    "warmup_steps": "Steps of rising learning rate; below 1, a share of all steps.",
    "eval_steps": "Measure dev accuracy every so many steps; save_steps must be a multiple.",
    "save_steps": "Write a checkpoint every so many steps.",
    "logging_steps": "Log losses every so many steps.",
    "compile_layers": "Compile the encoder's layers, once for all lengths; for GPUs.",
    "bf16": "Compute in bfloat16 where the machine can (weights stay float32).",
    "seed": "Seed of weights, dropout and data order.",
    "report_to": "Send metrics to tensorboard, wandb or trackio as well.",
}
