"""Run fine-tuning on any task: read settings and records, train, and measure every test set at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import yaml
from transformers import PreTrainedTokenizerBase, set_seed

from hf_xsent.errors import DataError, ModelError, RecipeError, did_you_mean
from hf_xsent.files import is_local
from hf_xsent.finetuning.report import FineTuningReport, write_reports
from hf_xsent.finetuning.settings import FineTuningOptions
from hf_xsent.finetuning.trainer import FineTuner, FineTuningArguments, FineTuningTask, adapted_arguments
from hf_xsent.logs import configure_logging
from hf_xsent.models.families import family
from hf_xsent.models.loading import load_encoder_config, quiet_loading
from hf_xsent.models.task_model import task_model, without_padding
from hf_xsent.runs.identity import deciding_settings, identify_files, identify_model
from hf_xsent.runs.run import Run
from hf_xsent.training.identity import identify_training
from hf_xsent.training.run_card import RECIPE_FILE

logger = logging.getLogger(__name__)

_OF_COMMAND = ("resume", "resume_with_changes", "overwrite", "verbose")  # not part of the recipe

Record = TypeVar("Record")
Sets = Mapping[str, Mapping[str, Sequence[Any]]]  # records by benchmark and test set


def check_settings(options: FineTuningOptions, training: FineTuningArguments) -> None:
    """Check the settings before any data is read."""
    configure_logging(options.verbose)
    if options.model is None:
        raise RecipeError("no encoder to start from: give --model, a Hub id such as xlm-roberta-base or a folder")
    if training.output_dir in (None, "trainer_output"):
        raise RecipeError("no output folder: give --output, a folder for this run")
    if training.load_best_model_at_end and not options.dev:
        raise RecipeError("load_best_model_at_end needs dev data to measure: give --dev de=…")
    config = load_encoder_config(options.model)
    longest = family(config).max_length(config)
    if options.max_length > longest:
        raise RecipeError(f"max_length {options.max_length} does not fit: this encoder takes at most {longest} tokens")


def load_records(
    named: Sequence[str] | None, load: Callable[[str, str], list[Record]]
) -> tuple[dict[str, str], dict[str, list[Record]]]:
    """Load the records of ``en=path`` strings with ``load(path, language)``; return paths and records by language."""
    sources: dict[str, str] = {}
    records: dict[str, list[Record]] = {}
    for name in named or ():
        language, equals, path = name.partition("=")
        if not equals or not language or not path:
            raise DataError(f"{name!r} names no language: write en={name}")
        sources[language] = f"{sources[language]} and {path}" if language in sources else path
        records.setdefault(language, []).extend(load(path, language))
    return sources, records


def single_groups(records: Mapping[str, Sequence[Record]]) -> dict[str, list[tuple[Record, ...]]]:
    """Make a group of each record."""
    return {language: [(record,) for record in of_language] for language, of_language in records.items()}


def limit(count: int | None, by_language: Mapping[str, list[Record]]) -> dict[str, list[Record]]:
    """Return the first ``count`` records of each language, or all."""
    return {language: records[:count] for language, records in by_language.items()}


def select_tests(tests: Sets, languages: Sequence[str] | None) -> Sets:
    """Select the test sets of these languages."""
    if not languages:
        return tests
    known = sorted({name for sets in tests.values() for name in sets})
    for language in languages:
        if language not in known:
            raise DataError(f"no test set {language!r}{did_you_mean(language, known)}: use {', '.join(known)}")
    selected = {
        benchmark: {name: sets[name] for name in languages if name in sets} for benchmark, sets in tests.items()
    }
    return {benchmark: sets for benchmark, sets in selected.items() if sets}


def run(
    task: FineTuningTask,
    kind: Any,
    options: FineTuningOptions,
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
    folder = Path(str(training.output_dir))
    run = Run(folder, options.resume, options.resume_with_changes, options.overwrite, start=options.model)
    decides, finished = _identify(options), None
    if train:
        if training.should_save:
            run.check()
        finished = run.finished_at({**decides, **identify_training(adapted_arguments(training, task, dev))})
    elif not tests:
        raise RecipeError("nothing to do: give --train, or test sets for a fine-tuned model")
    set_seed(training.seed)
    trains = bool(train) and finished is None
    if trains:
        model = _untrained(kind, options, config)
    else:
        model = without_padding(_fine_tuned(str(folder if train else options.model), kind))
    recipe = {key: value for key, value in asdict(options).items() if key not in _OF_COMMAND}
    tuner = FineTuner(model, training, task, train, dev, tokenizer, decides, recipe)
    if trains:
        tuner.run, tuner.saves_run = run, True
        tuner.train()
    elif train:
        logger.info("the run in %s is finished, at step %d: it is not trained further", folder, finished)
    reports = [FineTuningReport(name, _setting(options), tuner.measure(sets)) for name, sets in tests.items()]
    if not training.should_save:
        return []
    if reports:
        write_reports(folder, reports, {**recipe, "seed": training.seed})
        logger.info("the results are in %s", folder)
    return reports


def _identify(options: FineTuningOptions) -> dict[str, Any]:
    """Return what determines the fine-tuned weights besides the training arguments, by name."""
    identity = {name: value for name, value in deciding_settings(options).items() if name not in ("train", "dev")}
    identity["model"] = identify_model(str(options.model))
    for what, named in (("training", options.train), ("dev", options.dev)):
        for number, (language, _, path) in enumerate(source.partition("=") for source in named or ()):
            content = identify_files([path]) if is_local(path) else path  # a Hub id
            identity[f"{what} data {number + 1}"] = (
                f"{language} ({content})"  # numbered: the order of the files decides the order of the records
            )
    return identity


def _setting(options: FineTuningOptions) -> str:
    """Return zero-shot or translate-train, from the training languages of this run or of the model's recipe."""
    train, recipe = options.train, Path(str(options.model)) / RECIPE_FILE
    if not train and recipe.is_file():
        train = yaml.safe_load(recipe.read_text(encoding="utf-8")).get("train")
    languages = {name.partition("=")[0] for name in train or ()}
    if not languages:
        return "unknown training"
    return "translate-train" if languages - {"en"} else "zero-shot"


def _untrained(kind: Any, options: FineTuningOptions, config: dict[str, Any]) -> Any:
    """Load the encoder and initialize the task's head."""
    if options.dropout is not None:
        config |= dict.fromkeys(family(load_encoder_config(str(options.model))).dropouts, options.dropout)
    return task_model(str(options.model), kind, **config)


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
