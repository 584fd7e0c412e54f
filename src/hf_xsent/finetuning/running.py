"""Run fine-tuning on any task: read settings and records, train, and measure every test set at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import yaml
from transformers import PreTrainedTokenizerBase, set_seed

from hf_xsent.errors import DataError, ModelError, OutputError, RecipeError, did_you_mean
from hf_xsent.files import create_folder, digest, is_local
from hf_xsent.finetuning.report import FineTuningReport, read_reports, write_reports
from hf_xsent.finetuning.trainer import FineTuner, FineTuningArguments, FineTuningTask, adapted_arguments
from hf_xsent.logs import configure_logging
from hf_xsent.models.families import family
from hf_xsent.models.loading import load_encoder_config, load_tokenizer, quiet_loading
from hf_xsent.models.task_model import task_model, without_padding
from hf_xsent.runs.checkpoints import RUN_STATE_FILE, checkpoints_of
from hf_xsent.runs.identity import deciding_settings, identify_files, identify_model
from hf_xsent.runs.run import Run
from hf_xsent.training.identity import identify_training
from hf_xsent.training.run_card import RECIPE_FILE, write_recipe

logger = logging.getLogger(__name__)

_OF_COMMAND = ("resume", "resume_with_changes", "overwrite", "verbose")  # not part of the recipe

Record = TypeVar("Record")
Sets = Mapping[str, Mapping[str, Sequence[Any]]]  # records by benchmark and test set


def check_settings(options: Any, training: FineTuningArguments) -> None:
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
    if not 8 <= options.max_length <= longest:
        raise RecipeError(f"max_length {options.max_length} does not fit: this encoder takes 8 to {longest} tokens")


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
            raise DataError(f"no test set {language!r}{did_you_mean(language, known)}: use {', '.join(known)}")
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
    folder = Path(str(training.output_dir))
    run = Run(folder, options.resume, options.resume_with_changes, options.overwrite, start=options.model)
    decides, finished = _identify(options), None
    if not train:
        _check_measurement(tests, folder)
    else:
        if training.should_save:
            run.check()
        finished = run.finished_at({**decides, **identify_training(adapted_arguments(training, task, dev))})
    recipe = {key: value for key, value in asdict(options).items() if key not in _OF_COMMAND}
    measured = {**recipe, "seed": training.seed, "test_data": digest(repr(tests))}
    if finished is not None:
        logger.info("the run in %s is finished, at step %d: it is not trained further", folder, finished)
        reports = read_reports(folder, measured | {"steps": finished}) if tests else []
        if reports is not None:
            return reports if training.should_save else []
    set_seed(training.seed)
    trains = bool(train) and finished is None
    if trains:
        model = _untrained(kind, options, config)
    else:
        model = without_padding(_fine_tuned(options.model if finished is None else str(folder), kind))
        task.check_model(model)
    tuner = FineTuner(model, training, task, train, dev, tokenizer, decides, {**recipe, "task": options.task})
    if trains:
        tuner.run, tuner.saves_run = run, True
        tuner.train()
    elif finished is None and training.should_save:
        write_recipe(create_folder(folder), f"finetune {options.task}", recipe, training)
    steps = tuner.state.global_step if finished is None else finished
    return _measure(tuner, tests, _setting(options), measured | {"steps": steps})


def _check_measurement(tests: Sets, folder: Path) -> None:
    """Check a run that only measures: it needs test sets, and an output folder that holds no model or its training."""
    if not tests:
        raise RecipeError("nothing to do: give --train, or test sets for a fine-tuned model")
    if checkpoints_of(folder) or any((folder / name).exists() for name in ("config.json", RUN_STATE_FILE)):
        raise OutputError(
            f"{folder} holds a model, whose recipe and state would be replaced, although nothing is trained: give "
            "another --output for the results, or repeat the command that trained the model, with --resume"
        )


def _measure(tuner: FineTuner, tests: Sets, setting: str, settings: Mapping[str, Any]) -> list[FineTuningReport]:
    """Measure the test sets in each process; only the process that saves writes and returns the reports."""
    reports = [FineTuningReport(name, setting, tuner.measure(sets)) for name, sets in tests.items()]
    if not tuner.args.should_save:
        return []
    if reports:
        write_reports(Path(str(tuner.args.output_dir)), reports, settings)
        logger.info("the results are in %s", tuner.args.output_dir)
    return reports


def _identify(options: Any) -> dict[str, Any]:
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


def _setting(options: Any) -> str:
    """Return zero-shot or translate-train, from the training languages of this run or of the model's recipe."""
    train, recipe = options.train, Path(options.model) / RECIPE_FILE
    if not train and recipe.is_file():
        train = yaml.safe_load(recipe.read_text(encoding="utf-8")).get("train")
    languages = {one.partition("=")[0] for one in train or ()}
    if not languages:
        return "unknown training"
    return "translate-train" if languages - {"en"} else "zero-shot"


def _untrained(kind: Any, options: Any, config: dict[str, Any]) -> Any:
    """Load the encoder and initialize the task's head."""
    if options.dropout is not None:
        config |= dict.fromkeys(family(load_encoder_config(options.model)).dropouts, options.dropout)
    return task_model(options.model, kind, **config)


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
