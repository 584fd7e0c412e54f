"""One training run from a recipe: everything is checked first, then loaded, trained and saved."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, set_seed

from hf_xsent.data.bitext import Bitext
from hf_xsent.data.sides import TextSides
from hf_xsent.files import write_json
from hf_xsent.logs import quiet_logs
from hf_xsent.models import METHODS
from hf_xsent.models.dual_pivot import DualPivotForPreTraining
from hf_xsent.models.loading import load_encoder
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.training.bitext import load_train_and_dev
from hf_xsent.training.checkpoints import check_space, remove_old_run, write_recipe
from hf_xsent.training.dual_pivot.features import FeatureCache
from hf_xsent.training.dual_pivot.trainer import DualPivotTrainer
from hf_xsent.training.measuring import StepTimes, forecast, rehearsal, whole_steps
from hf_xsent.training.plan import Plan
from hf_xsent.training.reading import Recipe, read_recipe
from hf_xsent.training.teacher import Teacher
from hf_xsent.training.trainer import AlignmentTrainer

logger = logging.getLogger(__name__)

_SENTENCES_REHEARSED = 256  # of each side of a language, where all would be encoded before the first step


def main(arguments: Sequence[str]) -> AlignmentTrainer:
    """``[recipe.yaml] [--flag value …]``; raises one of our errors before anything is trained."""
    recipe = read_recipe(arguments)
    quiet_logs(recipe.run.verbose)
    return pretrain(recipe)


def pretrain(recipe: Recipe) -> AlignmentTrainer:
    """Train, and leave the best model, its tokenizer, the recipe and the reports in the output folder."""
    training = recipe.training
    plan = Plan.of(recipe)
    teacher = None
    if plan.recipe.config.teacher is not None:
        width = plan.recipe.config.encoder_config.hidden_size
        teacher = Teacher.load(plan.recipe.config.teacher, width, training.device)
    train, dev = load_train_and_dev(recipe.data)  # of several processes one reads each file, the others wait
    plan = plan.fitted(train, dev)
    recipe = plan.recipe
    set_seed(training.seed)
    model = METHODS[recipe.start.method][1].from_backbone(plan.start, config=recipe.config)
    if recipe.run.dry_run:
        return rehearse(recipe, model, train, plan.tokenizer, teacher)
    if training.should_save:
        prepare(recipe, train, model, fresh=plan.checkpoint is None)
    if plan.checkpoint is not None:
        training.eval_on_start = False  # that checkpoint was measured when it was written
    trainer = trainer_of(
        recipe,
        model=model,
        train_dataset=train,
        eval_dataset=dev,
        processing_class=plan.tokenizer,
        teacher=teacher,
    )
    trainer.train(resume_from_checkpoint=plan.checkpoint)
    model.merge_adapters()
    if training.share_of_start:
        average_with_start(model, plan.start, training.share_of_start)
        if dev is not None:
            trainer.evaluate()
    trainer.save_model()
    if training.should_save:
        logger.info("the trained model is in %s", training.output_dir)
    return trainer


def trainer_of(recipe: Recipe, model: SentenceEncoderForPreTraining, **parts: Any) -> AlignmentTrainer:
    """The method's trainer, with what the recipe says of the data."""
    data = recipe.data
    parts |= {"alpha": data.alpha, "target_language": data.target_language}
    if not isinstance(model, DualPivotForPreTraining):
        return AlignmentTrainer(model, recipe.training, **parts)
    features = None
    if data.features != "none":
        folder = data.features or Path(str(recipe.training.output_dir)) / "features"
        features = FeatureCache(folder, model, parts["processing_class"])
    return DualPivotTrainer(model, recipe.training, features=features, **parts)


def rehearse(
    recipe: Recipe,
    model: SentenceEncoderForPreTraining,
    train: Bitext | TextSides,
    tokenizer: PreTrainedTokenizerBase,
    teacher: Teacher | None,
) -> AlignmentTrainer:
    """A few steps that leave nothing behind, and what the whole run would take."""
    training, times = recipe.training, StepTimes()
    steps = whole_steps(training, len(train))
    encoded = isinstance(model, DualPivotForPreTraining) and recipe.data.features != "none"
    some: Any = TextSides.first(train, _SENTENCES_REHEARSED) if encoded else train
    with rehearsal(training):
        started = time.perf_counter()
        trainer = trainer_of(
            recipe,
            model=model,
            train_dataset=some,
            processing_class=tokenizer,
            teacher=teacher,
            callbacks=[times],
        )
        if encoded:
            hours = (time.perf_counter() - started) / 3600 * len(train) / len(some)
            logger.info("features of all sentences, which are made once: about %.1f hours", hours)
        trainer.train()
    logger.info("%s", forecast(training, steps, times))
    return trainer


def prepare(recipe: Recipe, train: Bitext | TextSides, model: SentenceEncoderForPreTraining, fresh: bool) -> None:
    """Write what describes the run into its folder; a ``fresh`` run first removes an older one."""
    folder = Path(str(recipe.training.output_dir))
    folder.mkdir(parents=True, exist_ok=True)
    if fresh:
        check_space(folder, model, recipe.training)
        remove_old_run(folder)
    write_recipe(folder, "pretrain", recipe.stated(), recipe.training)
    write_json(folder / "bitext.json", train.report.to_dict())


@torch.no_grad()
def average_with_start(model: SentenceEncoder, start: str, share: float) -> None:
    """Average the trained encoder with its start; ``share`` is the start's weight (Wortsman et al., 2022)."""
    started = dict(load_encoder(start).named_parameters())
    for name, weight in model.encoder.named_parameters():
        weight.lerp_(started[name].to(weight), share)
