"""One training run from a recipe: everything is checked first, then loaded, trained and saved."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import PreTrainedConfig, PreTrainedTokenizerBase, set_seed

from hf_xsent.data.bitext import Bitext, load_bitext, resolve_sources
from hf_xsent.data.cleaning import CleaningRules
from hf_xsent.data.mixing import mixing_probabilities
from hf_xsent.errors import RecipeError, nearest
from hf_xsent.evaluation.report import write_json
from hf_xsent.logs import quiet_logs
from hf_xsent.models import METHODS
from hf_xsent.models.adapters import check_adapters
from hf_xsent.models.backbone import check_frozen_layers
from hf_xsent.models.loading import load_config, load_encoder, load_tokenizer
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.models.vocabulary import RestrictedVocabulary
from hf_xsent.training.arguments import Recipe, read_recipe
from hf_xsent.training.dry_run import StepTimes, forecast, rehearsal, whole_steps
from hf_xsent.training.output_folder import RECIPE_FILE, check_space, prepare_output_folder, remove_old_run
from hf_xsent.training.recipe import DataArguments, ModelArguments
from hf_xsent.training.teacher import Teacher, check_teacher
from hf_xsent.training.trainer import NO_DEV_TO_STOP_BY, AlignmentTrainer

logger = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> AlignmentTrainer:
    """``[recipe.yaml] [--flag value …]``; raises one of our errors before anything is trained."""
    recipe = read_recipe(arguments)
    quiet_logs(recipe.run.verbose)
    return pretrain(recipe)


def pretrain(recipe: Recipe) -> AlignmentTrainer:
    """Train, and leave the best model, its tokenizer, the recipe and the reports in the output folder."""
    training = recipe.training
    settings, tokenizer, checkpoint, vocabulary = check(recipe)
    teacher = None
    if recipe.model.teacher is not None:
        teacher = Teacher.load(recipe.model.teacher, load_config(str(recipe.model.model)).hidden_size, training.device)
    with training.main_process_first(desc="reading bitext"):
        train, dev = load_train_and_dev(recipe.data)
    _check_links(recipe.model.method, settings, train)
    mixing_probabilities(list(train.languages.values()), recipe.data.alpha)  # a wrong alpha is told here
    languages = {*train.languages, *(dev.languages if dev else ()), recipe.data.target_language}
    if settings.get("rtl_direction", "source_to_target") != "source_to_target" and not settings.get("languages"):
        settings.setdefault("rtl_languages", sorted(languages))
    for key in ("languages", "rtl_languages"):
        if without := languages - set(settings.get(key) or languages):
            raise RecipeError(f"language {min(without)!r} has no embedding: list it under {key} in the recipe")
    vocabulary = restricted_vocabulary(recipe.model, train, tokenizer, vocabulary)
    set_seed(training.seed)
    start = str(recipe.model.model)
    model = METHODS[recipe.model.method][1].from_backbone(start, vocabulary=vocabulary, **settings)
    if recipe.run.dry_run:
        return rehearse(recipe, model, train, tokenizer, teacher)
    if training.should_save:
        prepare(recipe, train, model, anew=checkpoint is None)
    if checkpoint is not None:
        training.eval_on_start = False  # that checkpoint was measured when it was written
    trainer = AlignmentTrainer(
        model=model,
        args=training,
        train_dataset=train,
        eval_dataset=dev,
        processing_class=tokenizer,
        alpha=recipe.data.alpha,
        target_language=recipe.data.target_language,
        teacher=teacher,
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    model.merge_adapters()
    if training.start_share:
        average_with_start(model, start, training.start_share)
        if dev is not None:
            trainer.evaluate()
    trainer.save_model()
    if training.should_save:
        folder = Path(str(training.output_dir))
        logger.info("the trained model is in %s", folder)
    return trainer


def rehearse(
    recipe: Recipe,
    model: SentenceEncoderForPreTraining,
    train: Bitext,
    tokenizer: PreTrainedTokenizerBase,
    teacher: Teacher | None,
) -> AlignmentTrainer:
    """A few steps that leave nothing behind, and what the whole run would take."""
    training, times = recipe.training, StepTimes()
    steps = whole_steps(training, len(train))
    with rehearsal(training):
        trainer = AlignmentTrainer(
            model,
            training,
            train,
            None,
            tokenizer,
            recipe.data.alpha,
            recipe.data.target_language,
            teacher,
            callbacks=[times],
        )
        trainer.train()
    logger.info("%s", forecast(training, steps, times))
    return trainer


def check(
    recipe: Recipe,
) -> tuple[dict[str, Any], PreTrainedTokenizerBase, str | None, RestrictedVocabulary | None]:
    """All that can be told before data is read: settings, tokenizer, checkpoint to go on from, vocabulary."""
    if recipe.model.model is None:
        raise RecipeError("no encoder to start from: give --model, a Hub id such as xlm-roberta-base or a folder")
    if not recipe.data.data:
        raise RecipeError("no bitext to train on: give --data, such as de=pairs.tsv")
    if recipe.training.output_dir in (None, "trainer_output"):
        raise RecipeError("no place for the result: give --output_dir, a folder for this run")
    checkpoint = prepare_output_folder(recipe.training.output_dir, recipe.run.resume, recipe.run.overwrite)
    settings = model_settings(recipe.model)
    encoder_config = load_config(recipe.model.model)
    config = METHODS[recipe.model.method][0](encoder_config=encoder_config, **settings)
    config.check_objectives()
    check_teacher(recipe.model.teacher, config.objectives)
    if recipe.model.lora_rank is not None:
        check_adapters(recipe.model.lora_targets, encoder_config)
        if recipe.training.fsdp:
            raise RecipeError("adapters are merged into whole weights, which FSDP splits: use DDP or ZeRO-2")
    check_frozen_layers(recipe.training.frozen_layers, encoder_config)
    if recipe.training.early_stopping_patience is not None and not (recipe.data.dev or recipe.data.dev_pairs):
        raise RecipeError(NO_DEV_TO_STOP_BY)
    tokenizer = load_tokenizer(recipe.model.model)
    _check_tokenizer(tokenizer, encoder_config, recipe.model.model)
    vocabulary = None
    if recipe.model.rtl_missing not in ("unknown", "extend"):
        raise RecipeError(f"unknown rtl_missing {recipe.model.rtl_missing!r}: use unknown or extend")
    if recipe.model.rtl_vocabulary not in (None, "all", "auto"):
        vocabulary = RestrictedVocabulary.read(recipe.model.rtl_vocabulary, tokenizer)
    cleaning_rules(recipe.data.rules)
    options: Any = {"target_language": recipe.data.target_language, "columns": _columns(recipe.data.columns)}
    resolve_sources(recipe.data.data, links=recipe.data.links, link_words=recipe.data.link_words, **options)
    if recipe.data.dev:
        resolve_sources(recipe.data.dev, **options)
    return settings, tokenizer, checkpoint, vocabulary


def prepare(recipe: Recipe, train: Bitext, model: SentenceEncoderForPreTraining, anew: bool) -> None:
    """Write what describes the run into its folder, which an older run leaves where this one starts ``anew``."""
    folder = Path(str(recipe.training.output_dir))
    folder.mkdir(parents=True, exist_ok=True)
    if anew:
        remove_old_run(folder)
        check_space(folder, model.num_parameters() * 4, recipe.training)
    save_recipe(recipe, folder / RECIPE_FILE)
    write_json(folder / "bitext.json", train.report.to_dict())


@torch.no_grad()
def average_with_start(model: SentenceEncoder, start: str, share: float) -> None:
    """Keep ``share`` of the starting encoder's weights, as Wortsman et al. (2022): a little of what it knew returns."""
    started = dict(load_encoder(start).named_parameters())
    for name, weight in model.encoder.named_parameters():
        weight.lerp_(started[name].to(weight), share)


def model_settings(arguments: ModelArguments) -> dict[str, Any]:
    """Those settings of the method's config that the recipe states."""
    if arguments.method not in METHODS:
        raise RecipeError(
            f"unknown method {arguments.method!r}: use {', '.join(METHODS)}" + nearest(arguments.method, METHODS)
        )
    not_settings = ("model", "method", "teacher", "rtl_vocabulary", "rtl_missing")
    stated = {key: value for key, value in asdict(arguments).items() if value is not None and key not in not_settings}
    if "objectives" in stated:
        stated["objectives"] = parse_weights(stated["objectives"])
    known = METHODS[arguments.method][0].setting_names()
    for key in stated:
        if key not in known:
            raise RecipeError(f"the method {arguments.method} has no setting {key!r}" + nearest(key, known))
    return stated


def restricted_vocabulary(
    arguments: ModelArguments, bitext: Bitext, tokenizer: PreTrainedTokenizerBase, known: RestrictedVocabulary | None
) -> RestrictedVocabulary | None:
    """The word pieces that the RTL head tells apart: those ``known``, and if asked for all those of the data."""
    if arguments.rtl_vocabulary in (None, "all") or not (known is None or arguments.rtl_missing == "extend"):
        return known
    both, wanted = ("source", "target"), (arguments.rtl_direction or "source_to_target").rsplit("_", 1)[-1]
    sentences = chain.from_iterable(bitext.sentences(side) for side in both if wanted in (side, "both"))
    vocabulary = RestrictedVocabulary.of(sentences, tokenizer, () if known is None else known.ids)
    logger.info("the RTL head projects onto %d of %d word pieces", len(vocabulary.ids), len(tokenizer))
    return vocabulary


def parse_weights(weights: Mapping[str, float] | Sequence[str]) -> dict[str, float]:
    """``{name: weight}`` from a recipe's mapping or from ``name=weight`` flags; a bare name weighs 1."""
    pairs = weights.items() if isinstance(weights, Mapping) else [one.partition("=")[::2] for one in weights]
    try:
        return {name: float(weight) if weight != "" else 1.0 for name, weight in pairs}
    except (TypeError, ValueError) as error:
        raise RecipeError(f"objectives take numbers as weights, such as translation_ranking=1.0 ({error})") from error


def cleaning_rules(stated: Sequence[str] | None) -> CleaningRules:
    """The default rules with those that ``name=value`` strings change; ``null`` switches a rule off."""
    types = {field.name: str(field.type) for field in fields(CleaningRules)}
    changed = {}
    for one in stated or []:
        name, equals, text = one.partition("=")
        if name not in types:
            raise RecipeError(f"unknown cleaning rule {name!r}: use {', '.join(types)}" + nearest(name, types))
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = text
        kind = "None" if value is None else type(value).__name__
        if not equals or kind not in types[name].replace("float", "float | int"):
            raise RecipeError(f"cleaning rule {name} takes {types[name]}, not {text!r}")
        changed[name] = value
    return CleaningRules(**changed)


def load_train_and_dev(arguments: DataArguments) -> tuple[Bitext, Bitext | None]:
    """The bitext to train on, and the one to choose checkpoints by: given, or held back from the first."""
    options: dict[str, Any] = {
        "target_language": arguments.target_language,
        "columns": _columns(arguments.columns),
        "on_error": arguments.on_error,
        "cache_dir": arguments.cache_dir,
    }
    train = load_bitext(
        arguments.data or [],
        cleaning=cleaning_rules(arguments.rules) if arguments.clean else None,
        max_pairs=arguments.max_pairs,
        links=arguments.links,
        link_words=arguments.link_words,
        **options,
    )
    if arguments.dev:
        return train, load_bitext(arguments.dev, cleaning=None, **options)
    if arguments.dev_pairs == 0:
        return train, None
    return train.train_dev_split(arguments.dev_pairs)


def save_recipe(recipe: Recipe, path: Path) -> None:
    """All that was stated or chosen for this run, in a file that starts the same run again."""
    stated: dict[str, Any] = {}
    for part in (recipe.model, recipe.data):
        stated |= {field.name: getattr(part, field.name) for field in fields(part)}
    for field in fields(recipe.training):
        value = getattr(recipe.training, field.name, None)
        if field.init and value != field.default and isinstance(value, str | int | float):
            stated[field.name] = getattr(value, "value", value)
    text = yaml.safe_dump({key: value for key, value in stated.items() if value is not None}, sort_keys=False)
    path.write_text(f"# hf-xsent pretrain {path.name}\n{text}", encoding="utf-8")


def _columns(columns: Sequence[str] | None) -> tuple[int | str, int | str] | None:
    """Two names or numbers."""
    if columns is None:
        return None
    if len(columns) != 2:
        raise RecipeError(f"columns takes two names or numbers, source and target, not {len(columns)}")
    source, target = (int(column) if str(column).isdecimal() else column for column in columns)
    return source, target


def _check_links(method: str, settings: Mapping[str, Any], train: Bitext) -> None:
    """Objectives over words would train nothing where no pair has links; pairs without train on the others alone."""
    if not METHODS[method][0](**settings).needs_links:
        return
    if not train.linked:
        raise RecipeError(
            "the objectives learn from word links, but no pair has any: make them with hf-xsent align-words, "
            "and give its JSONL as --data or its lines as --links"
        )
    logger.info("%d of %d pairs have word links", train.linked, len(train))


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, name: str) -> None:
    """A tokenizer with more pieces than the encoder has embeddings would fail in the middle of a run."""
    if len(tokenizer) > config.vocab_size:
        raise RecipeError(
            f"the tokenizer of {name!r} has {len(tokenizer)} pieces but its encoder only {config.vocab_size} "
            "embeddings: they do not belong together"
        )
    if tokenizer.pad_token is None:
        raise RecipeError(f"the tokenizer of {name!r} has no padding token: set pad_token and save it again")
