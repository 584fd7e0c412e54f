"""Run fine-tuning on any task: read settings and records, train, and measure every test set at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import yaml
from transformers import PreTrainedTokenizerBase, set_seed

from hf_xsent.errors import DataError, ModelError, RecipeError, nearest
from hf_xsent.finetuning.report import RESULTS, TABLE, FineTuningReport, write_reports
from hf_xsent.finetuning.trainer import FineTuner, FineTuningArguments, FineTuningTask
from hf_xsent.logs import quiet_logs
from hf_xsent.models.families import family
from hf_xsent.models.loading import load_encoder_config, load_tokenizer, quiet_loading
from hf_xsent.models.task_model import task_model, without_padding
from hf_xsent.training.checkpoints import output_folder, prepare_output_folder
from hf_xsent.training.reading import read_dataclasses
from hf_xsent.training.run_card import RECIPE_FILE, write_recipe

logger = logging.getLogger(__name__)

Record = TypeVar("Record")
Sets = Mapping[str, Mapping[str, Sequence[Any]]]  # records by benchmark and test set


def read_settings(kind: type[Any], arguments: Sequence[str]) -> tuple[Any, FineTuningArguments]:
    """Read recipe and flags, and check them before any data is read."""
    options, training = read_dataclasses(arguments, [kind, FineTuningArguments])
    quiet_logs(options.verbose)
    if options.model is None:
        raise RecipeError("no encoder to start from: give --model, a Hub id such as xlm-roberta-base or a folder")
    if training.output_dir in (None, "trainer_output"):
        raise RecipeError("no output folder: give --output, a folder for this run")
    for name in ("max_train", "max_test", "max_question_length", "max_answer_length"):
        most = getattr(options, name, None)
        if most is not None and most < 1:
            raise RecipeError(f"{name} {most} is not positive: drop it, or give 1 or more")
    if options.dropout is not None and not 0 <= options.dropout < 1:
        raise RecipeError(f"dropout {options.dropout} is not a probability below 1")
    if training.load_best_model_at_end and not options.dev:
        raise RecipeError("load_best_model_at_end needs dev data to measure: give --dev de=…")
    config = load_encoder_config(options.model)
    longest = family(config).max_length(config)
    if not 8 <= options.max_length <= longest:
        raise RecipeError(f"max_length {options.max_length} does not fit: this encoder takes 8 to {longest} tokens")
    return options, training


def tokenizer_of(name_or_path: str) -> PreTrainedTokenizerBase:
    """Load the encoder's tokenizer, which must have a padding token."""
    tokenizer = load_tokenizer(name_or_path)
    if tokenizer.pad_token_id is None:
        raise ModelError(f"the tokenizer of {name_or_path!r} has no padding token: set pad_token and save it again")
    return tokenizer


def load_records(
    named: Sequence[str] | None, load: Callable[[str, str], list[Record]]
) -> tuple[dict[str, str], dict[str, list[Record]]]:
    """Load the records of ``en=path`` strings with ``load(path, language)``; return paths and records by language."""
    sources: dict[str, str] = {}
    records: dict[str, list[Record]] = {}
    for one in named or ():
        language, equals, path = one.partition("=")
        if not equals or not language or not path:
            raise DataError(f"{one!r} names no language: write en={one}")
        sources[language] = f"{sources[language]} and {path}" if language in sources else path
        records.setdefault(language, []).extend(load(path, language))
    return sources, records


def single_groups(records: Mapping[str, Sequence[Record]]) -> dict[str, list[tuple[Record, ...]]]:
    """Make a group of each record."""
    return {language: [(record,) for record in some] for language, some in records.items()}


def limit(count: int | None, by_language: Mapping[str, list[Record]]) -> dict[str, list[Record]]:
    """Return the first ``count`` records of each language, or all."""
    return {language: some[:count] for language, some in by_language.items()}


def select_tests(tests: Sets, languages: Sequence[str] | None) -> Sets:
    """Select the test sets of these languages."""
    if not languages:
        return tests
    known = sorted({name for sets in tests.values() for name in sets})
    for language in languages:
        if language not in known:
            raise DataError(f"no test set {language!r}{nearest(language, known)}: use {', '.join(known)}")
    chosen = {name: {one: sets[one] for one in languages if one in sets} for name, sets in tests.items()}
    return {name: sets for name, sets in chosen.items() if sets}


def run(
    task: FineTuningTask,
    kind: Any,
    options: Any,
    training: FineTuningArguments,
    tokenizer: PreTrainedTokenizerBase,
    train: Sequence[tuple[Any, ...]],
    dev: Mapping[str, Sequence[Any]] | None,
    tests: Sets,
    **config: Any,
) -> list[FineTuningReport]:
    """Train a new head and the encoder (or load a fine-tuned model), save, measure, and write the results.

    Of several processes, only the one that writes the reports returns them.
    """
    if not train and not tests:
        raise RecipeError("nothing to do: give --train, or test sets for a fine-tuned model")
    checkpoint = prepare_output_folder(str(training.output_dir), options.resume, options.overwrite)
    set_seed(training.seed)
    if train:
        if options.dropout is not None:
            config |= dict.fromkeys(family(load_encoder_config(options.model)).dropouts, options.dropout)
        model = task_model(options.model, kind, **config)
    else:
        model = without_padding(_fine_tuned(options.model, kind))
        task.check_model(model)
    tuner = FineTuner(model, training, task, train, dev, tokenizer)
    folder, setting = Path(str(training.output_dir)), _setting(options)
    tuner.accelerator.wait_for_everyone()  # until each process has checked the folder
    with output_folder(training, checkpoint, options.resume, options.overwrite):
        if training.should_save:
            if checkpoint is None:
                for name in (RESULTS, TABLE):
                    (folder / name).unlink(missing_ok=True)
            not_stated = ("resume", "overwrite", "verbose")
            stated = {key: value for key, value in asdict(options).items() if key not in not_stated}
            write_recipe(folder, f"finetune {options.task}", stated, training)
        if train:
            tuner.train(resume_from_checkpoint=checkpoint)
            tuner.save_model()
        reports = [FineTuningReport(name, setting, tuner.measure(sets)) for name, sets in tests.items()]
        if not training.should_save:
            return []
        if reports:
            settings = {**asdict(options), "seed": training.seed, "steps": tuner.state.global_step}
            write_reports(folder, reports, settings)
            logger.info("the results are in %s", folder)
        return reports


def _setting(options: Any) -> str:
    """Name the setting by the languages of the training data, now or in the recipe of the model's folder."""
    train, recipe = options.train, Path(options.model) / RECIPE_FILE
    if not train and recipe.is_file():
        train = yaml.safe_load(recipe.read_text(encoding="utf-8")).get("train")
    languages = {one.partition("=")[0] for one in train or ()}
    if not languages:
        return "unknown training"
    return "translate-train" if languages - {"en"} else "zero-shot"


def _fine_tuned(name_or_path: str, kind: Any) -> Any:
    """Load a model of this kind whose head is trained."""
    untrained = f"{name_or_path!r} is not fine-tuned for this task: give --train"
    with quiet_loading():
        try:
            model, info = kind.from_pretrained(name_or_path, use_safetensors=True, output_loading_info=True)
        except ValueError as error:  # transformers has no such head for this encoder
            raise ModelError(untrained) from error
    if info["missing_keys"]:
        raise ModelError(untrained)
    return model
