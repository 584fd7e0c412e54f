"""Train from a recipe: check the settings, load data and model, train, save."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import set_seed

from hf_xsent.data.bitext import Bitext
from hf_xsent.data.sides import TextSides
from hf_xsent.logs import configure_logging
from hf_xsent.models import METHODS
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.settings.command import command
from hf_xsent.training.bitext import load_train_and_dev
from hf_xsent.training.conflicts import schedule_options
from hf_xsent.training.dual_pivot.features import FeatureCache
from hf_xsent.training.measuring import count_steps, forecast, readable_time, short_run
from hf_xsent.training.plan import Plan
from hf_xsent.training.recipe import Recipe, build_recipe, recipe_settings, recipe_types
from hf_xsent.training.teacher import load_teachers
from hf_xsent.training.trainer import AlignmentTrainer

logger = logging.getLogger(__name__)

_SENTENCES_OF_DRY_RUN = 256  # of each side of each language; a full run encodes all sentences before the first step


@command(Recipe, build_recipe, recipe_settings(), recipe_types())
def pretrain(recipe: Recipe) -> AlignmentTrainer | None:
    """Train from a recipe file, settings, or both (a setting replaces the recipe's value); return the trainer.

    Settings are the keys of recipes (docs/settings.md), among them every field of transformers' TrainingArguments. The
    output folder receives the model, its tokenizer, the recipe and the reports. Return None if the run to resume is
    finished. ``data`` and ``dev`` may be pairs in memory, such as a Dataset: they are written to files in the cache,
    which the recipe names.

    ```python
    from hf_xsent import pretrain

    trainer = pretrain(
        model="xlm-roberta-base", data={"de": "pairs.tsv"}, output_dir="runs/de", max_steps=1000,
        objectives={"translation_ranking": {"temperature": 0.05}},
    )
    ```
    """
    configure_logging(recipe.run.verbose)
    training = recipe.training
    plan = Plan.of(recipe)
    teachers = load_teachers(plan.recipe.config, training)  # before data is read, because names may be wrong
    parts: dict[str, Any] = {"processing_class": plan.tokenizer, "teachers": teachers}
    train, dev = load_train_and_dev(plan.recipe.data)  # one process fills the cache, the others wait
    plan = plan.with_data(train, dev)
    recipe = plan.recipe
    set_seed(training.seed)
    model = METHODS[recipe.start.method][1].from_backbone(plan.encoder, config=recipe.config)
    if recipe.run.dry_run:
        return dry_run(recipe, model, train, **parts)
    trainer = build_trainer(recipe, model, train_dataset=train, eval_dataset=dev, **parts)
    trainer.saves_run, trainer.stated_settings = True, recipe.to_dict()
    finished = plan.run.finished_at(trainer.identity())
    if finished is not None:
        logger.info("the run in %s is finished, at step %d: nothing to do", training.output_dir, finished)
        return None
    trainer.train(run=plan.run)
    return trainer


def build_trainer(recipe: Recipe, model: SentenceEncoderForPreTraining, **parts: Any) -> AlignmentTrainer:
    """Build the trainer of a recipe; over a frozen encoder whose features can be computed once, with their cache."""
    data = recipe.data
    parts |= {"alpha": data.alpha, "target_language": data.target_language}
    if model.config.caches_features and data.features != "none":
        folder = data.features or Path(str(recipe.training.output_dir)) / "features"
        encoder: Any = model
        parts["features"] = FeatureCache(folder, encoder, parts["processing_class"])
    return AlignmentTrainer(model, recipe.training, **parts)


def dry_run(
    recipe: Recipe,
    model: SentenceEncoderForPreTraining,
    train: Bitext | TextSides,
    **parts: Any,
) -> AlignmentTrainer:
    """Run a few steps without saving, and log the estimated time and memory of the full run."""
    training = recipe.training
    steps = count_steps(training, len(train))
    schedule_options(training, steps)
    encodes_first = model.config.caches_features and recipe.data.features != "none"
    rows: Any = TextSides.first(train, _SENTENCES_OF_DRY_RUN) if encodes_first else train
    with short_run(training) as short:
        data = replace(recipe.data, features=None) if encodes_first else recipe.data  # into the temporary folder
        recipe = replace(recipe, training=short, data=data)
        started = time.perf_counter()
        trainer = build_trainer(recipe, model, train_dataset=rows, **parts)
        if encodes_first:
            seconds = (time.perf_counter() - started) * len(train) / len(rows)
            logger.info("encoding features of all sentences, once: about %s", readable_time(seconds))
        trainer.train()
    logger.info("%s", forecast(training, steps, len(train), trainer.state.log_history))
    return trainer
