"""Run fine-tuning on any task: read settings and records, train, and measure every test set at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import yaml
from transformers import PreTrainedTokenizerBase, set_seed

from hf_xsent.data.languages import find_language, language_of_tag
from hf_xsent.errors import DataError, ModelError, RecipeError, did_you_mean
from hf_xsent.finetuning.report import FineTuningReport, write_reports
from hf_xsent.finetuning.settings import QuestionSettings
from hf_xsent.finetuning.trainer import FineTuner, FineTuningArguments, FineTuningTask, adapted_arguments, identify
from hf_xsent.logs import configure_logging
from hf_xsent.models.families import family
from hf_xsent.models.loading import check_tokenizer, load_encoder_config, load_tokenizer, quiet_loading
from hf_xsent.models.task_model import task_model, without_padding
from hf_xsent.runs.run import RECIPE_FILE, Run
from hf_xsent.settings.declare import default_of, settings_of
from hf_xsent.training.run_card import recipe_of

logger = logging.getLogger(__name__)

Record = TypeVar("Record")
Sets = Mapping[str, Mapping[str, Sequence[Any]]]  # records by benchmark and test set


def check_settings(settings: FineTuningArguments) -> PreTrainedTokenizerBase:
    """Check settings and model before any data is read; return the tokenizer."""
    configure_logging(settings.verbose)
    if settings.model is None:
        raise RecipeError("no encoder to start from: give --model, a Hub id such as xlm-roberta-base or a folder")
    if settings.output_dir in (None, "trainer_output"):
        raise RecipeError("no output folder: give --output_dir, a folder for this run")
    if settings.dev and not settings.train:
        raise RecipeError("dev has no effect without training data: give --train en=…, or drop --dev")
    if settings.load_best_model_at_end and not settings.dev:
        raise RecipeError("load_best_model_at_end needs dev data to measure: give --dev de=…")
    for name in ("xnli",) if settings.task == "mlqa" else (field.name for field in fields(QuestionSettings)):
        if getattr(settings, name) != default_of(settings_of(FineTuningArguments)[name]):
            raise RecipeError(f"{name} has no effect on the task {settings.task}: drop it")
    config = load_encoder_config(settings.model)
    tokenizer = load_tokenizer(settings.model)
    check_tokenizer(tokenizer, config)
    shortest, longest = tokenizer.num_special_tokens_to_add(pair=True) + 2, family(config).max_length(config)
    if not shortest <= settings.max_length <= longest:
        raise RecipeError(
            f"max_length {settings.max_length} does not fit: this encoder takes {shortest} to {longest} tokens a row"
        )
    return tokenizer


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
        find_language(language)  # raises an error for an unknown code
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
    if not (languages and tests):
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
    settings: FineTuningArguments,
    tokenizer: PreTrainedTokenizerBase,
    train: Sequence[tuple[Any, ...]],
    dev: Mapping[str, Sequence[Any]] | None,
    tests: Sets,
    **config: Any,
) -> list[FineTuningReport]:
    """Train a new head and the encoder (or load a fine-tuned model), save, measure, and write the results.

    Of several processes, only the one that writes the reports returns them.
    """
    folder = Path(str(settings.output_dir))
    run = Run(folder, settings.resume, settings.resume_with_changes, settings.overwrite, start=settings.model)
    finished = None
    if train:
        if settings.should_save:
            run.check()
        finished = run.finished_at(identify(adapted_arguments(settings, task, dev)))
    elif not tests:
        raise RecipeError("nothing to do: give --train, or test sets for a fine-tuned model")
    elif folder.resolve() != Path(settings.model).resolve():
        run.check_holds_no_run("results")
    set_seed(settings.seed)
    tokenizer.model_max_length = settings.max_length  # the saved one states the length of this model, not of its start
    trains = bool(train) and finished is None
    if trains:
        if settings.dropout is not None:
            config |= dict.fromkeys(family(load_encoder_config(settings.model)).dropouts, settings.dropout)
        model = task_model(settings.model, kind, **config)
    else:
        model = without_padding(_fine_tuned(str(folder if train else settings.model), kind))
    tuner = FineTuner(model, settings, task, train, dev, tokenizer)
    if trains:
        tuner.saves_run = True
        tuner.train(run=run)
    elif train:
        logger.info("the run in %s is finished, at step %d: it is not trained further", folder, finished)
    reports = [FineTuningReport(name, _setting(settings), tuner.measure(sets)) for name, sets in tests.items()]
    if not settings.should_save:
        return []
    if reports:
        write_reports(folder, reports, recipe_of(settings))
        logger.info("the results are in %s", folder)
    return reports


def _setting(settings: FineTuningArguments) -> str:
    """Return zero-shot or translate-train, from the training languages of this run and of those before it."""
    train, model, seen = [*(settings.train or ())], Path(settings.model).absolute(), set[Path]()
    while model not in seen and (model / RECIPE_FILE).is_file():
        seen.add(model)
        before = yaml.safe_load((model / RECIPE_FILE).read_text(encoding="utf-8")) or {}
        train += before.get("train") or ()
        starts = [folder / str(before.get("model")) for folder in (Path.cwd(), *model.parents)]  # a relative path
        model = next((start for start in starts if (start / RECIPE_FILE).is_file()), starts[0])
    languages = {language_of_tag(name.partition("=")[0]) for name in train}
    if not languages:
        return "unknown training"
    return "translate-train" if languages - {find_language("en")} else "zero-shot"


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
