"""Run fine-tuning on any task: read settings and records, train, and measure every test set at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml
from transformers import PreTrainedTokenizerBase, set_seed

from hf_xsent.errors import DataError, ModelError, OutputError, RecipeError, did_you_mean
from hf_xsent.files import digest, file_digest, is_local
from hf_xsent.finetuning.report import RESULTS, TABLE, FineTuningReport, read_reports, write_reports
from hf_xsent.finetuning.trainer import FineTuner, FineTuningArguments, FineTuningTask
from hf_xsent.locks import lock_folder
from hf_xsent.logs import configure_logging
from hf_xsent.models.families import family
from hf_xsent.models.loading import load_encoder_config, load_tokenizer, quiet_loading
from hf_xsent.models.run_folder import RUN_STATE_FILE, checkpoints_of
from hf_xsent.models.task_model import task_model, without_padding
from hf_xsent.training.checkpoints import check_space, check_start_remains, choose_checkpoint, output_folder
from hf_xsent.training.identity import identify_name, identify_training, plain
from hf_xsent.training.resuming import resumed_state
from hf_xsent.training.run_card import RECIPE_FILE, write_recipe

logger = logging.getLogger(__name__)

_OF_COMMAND = ("resume", "resume_with_changes", "overwrite", "verbose")  # not part of the recipe
_OF_WEIGHTS = ("code_switching", "max_length", "max_train", "dropout", "doc_stride", "max_question_length")

Record = TypeVar("Record")
Sets = Mapping[str, Mapping[str, Sequence[Any]]]  # records by benchmark and test set


def check_settings(options: Any, training: FineTuningArguments) -> None:
    """Check the settings before any data is read."""
    configure_logging(options.verbose)
    if options.model is None:
        raise RecipeError("no encoder to start from: give --model, a Hub id such as xlm-roberta-base or a folder")
    if training.output_dir in (None, "trainer_output"):
        raise RecipeError("no output folder: give --output, a folder for this run")
    check_start_remains(options.model, str(training.output_dir), options.overwrite and bool(options.train))
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
    if not train:
        _check_measurement(tests, folder)
    checkpoint = choose_checkpoint(training, options.resumes, options.overwrite)
    identity = _identify(options, training)
    state = resumed_state(folder, checkpoint, identity, options.resumes, options.resume_with_changes)
    finished = state.finished_at_step
    stated = {key: value for key, value in asdict(options).items() if key not in _OF_COMMAND}
    measured = {**stated, "seed": training.seed, "test_data": digest(repr(tests))}
    if finished is not None:
        logger.info("the run in %s is finished, at step %d: it is not trained further", folder, finished)
        reports = read_reports(folder, measured | {"steps": finished}) if tests else []
        if reports is not None:
            return reports if training.should_save else []
    set_seed(training.seed)
    if train and finished is None:
        model = _untrained(kind, options, config)
        if checkpoint is None:
            check_space(folder, model, training)
    else:
        model = without_padding(_fine_tuned(options.model if finished is None else str(folder), kind))
        task.check_model(model)
    tuner = FineTuner(model, training, task, train, dev, tokenizer)
    tuner.accelerator.wait_for_everyone()  # until each process has read the state of the run
    if finished is not None:
        with lock_folder(folder) if training.should_save else nullcontext():
            return _measure(tuner, tests, _setting(options), measured | {"steps": finished})
    with output_folder(training, checkpoint, options.resumes, options.overwrite):
        if training.should_save:
            for name in (RESULTS, TABLE):  # results of an earlier run
                (folder / name).unlink(missing_ok=True)
            write_recipe(folder, f"finetune {options.task}", stated, training)
            if train:
                state.write(folder)
        if train:
            tuner.train(resume_from_checkpoint=checkpoint)
            tuner.save_model()
            if training.should_save:
                replace(state, finished_at_step=tuner.state.global_step).write(folder)
                logger.info("the fine-tuned model is in %s", folder)
        return _measure(tuner, tests, _setting(options), measured | {"steps": tuner.state.global_step})


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


def _identify(options: Any, training: FineTuningArguments) -> dict[str, Any]:
    """Return everything that determines the fine-tuned weights, as plain values by name."""
    identity: dict[str, Any] = {"task": options.task, "model": identify_name(str(options.model))}
    identity |= {name: getattr(options, name) for name in _OF_WEIGHTS if hasattr(options, name)}
    identity |= identify_training(training)
    batch = training.train_batch_size * training.world_size * training.gradient_accumulation_steps
    identity["records per step, over all processes"] = batch
    for what, named in (("training", options.train), ("dev", options.dev)):
        for number, (language, _, path) in enumerate(one.partition("=") for one in named or ()):
            content = file_digest(Path(path)) if is_local(path) else path  # a Hub id
            identity[f"{what} data {number + 1}"] = (
                f"{language} ({content})"  # numbered: the order of the files decides the order of the records
            )
    return plain(identity)


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
