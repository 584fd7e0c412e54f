"""Train and measure one run in a separate process: ``python -m hf_xsent.comparison.process FOLDER``."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
import time

import torch

from hf_xsent.comparison.run import Run
from hf_xsent.errors import HfXsentError
from hf_xsent.evaluation.opened import describe
from hf_xsent.evaluation.registry import load_task
from hf_xsent.evaluation.report import Measurement
from hf_xsent.evaluation.task import ModelEncoder, Start
from hf_xsent.evaluation.word_alignment import WordAlignmentTask
from hf_xsent.logs import configure_logging
from hf_xsent.models.dual_pivot import DualPivotConfig, DualPivotForSentenceEmbedding
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import load_tokenizer
from hf_xsent.runs.claim import claim
from hf_xsent.runs.identity import identify_model
from hf_xsent.training.dual_pivot.features import CachedEncoder, FeatureCache
from hf_xsent.training.pretrain import pretrain
from hf_xsent.training.recipe import build_recipe

logger = logging.getLogger(__name__)


def main(folder: str) -> int:
    """Train and measure a run, and return the exit code; a failure is the last line on standard error."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        configure_logging()
        run = Run.read(folder)
        with claim(run.folder / "lock"):  # the process of a killed comparison may still be saving
            if not run.has_model and not run.finished:
                train(run)
            measure(run)
    except HfXsentError as error:
        logger.error("hf-xsent: %s", error)
        return error.exit_code
    return 0


def train(run: Run) -> None:
    """Train with the run's recipe, from its last checkpoint if it has one; delete its checkpoints at the end."""
    pretrain(**run.settings(), resume=True)
    for checkpoint in run.training.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)


def measure(run: Run) -> None:
    """Score the run on each task that has no scores yet."""
    missing = [task for task in run.tasks if run.scores.missing([run.scores_file(task)])]
    if not missing:
        return
    embedder = open_embedder(run)
    encoder = with_features(run, embedder)
    described = describe(embedder, run.model if run.seed is None else run.training) | {"pooling": run.pooling}
    for name in missing:
        task = load_task(name, run.tasks[name], run.folder.parents[1] / "cache")
        if task.needs_start:
            task = task.beside(Start(identify_model(run.model), ModelEncoder(open_start(run))))
        encode = ModelEncoder(embedder if isinstance(task, WordAlignmentTask) else encoder)
        measured = Measurement.of(task, described, task.score(encode), encode)
        run.scores.compute(run.scores_file(name), measured.write)


def open_embedder(run: Run) -> SentenceEmbedder:
    """Load the trained model, or the starting encoder of an untrained method."""
    if run.seed is None:
        return open_start(run)
    return SentenceEmbedder.from_pretrained(str(run.training), precision=_precision(run))


def open_start(run: Run) -> SentenceEmbedder:
    """Load the starting encoder with the pooling, length and prompts of the run."""
    recipe = build_recipe([run.settings()])
    config = recipe.config
    if isinstance(config, DualPivotConfig):
        average = config.replaced(layer_mix=False, linear_map=False)
        pivot = DualPivotForSentenceEmbedding.from_backbone(run.model, config=average)
        module: torch.nn.Module = pivot
        module.to("cuda" if torch.cuda.is_available() else "cpu")
        return SentenceEmbedder(pivot, load_tokenizer(run.model))
    embedder = SentenceEmbedder.from_pretrained(run.model, run.pooling, config.max_length, precision=_precision(run))
    config = config.following(embedder.config.saved_settings(), recipe.stated | {"max_length"})
    embedder.config.prompts, embedder.prompt = config.prompts, config.default_prompt
    return embedder


def _precision(run: Run) -> str:
    """Return bfloat16 for methods with bf16, except an untrained dual pivot, auto for those with bf16: auto or fp16."""
    half = run.recipe.get("bf16") or run.recipe.get("fp16")
    return "bfloat16" if run.recipe.get("bf16") is True else "auto" if half else "float32"


def with_features(run: Run, embedder: SentenceEmbedder) -> SentenceEmbedder:
    """Return an encoder that reads cached features if a dual pivot's recipe names a ``features`` folder."""
    folder, model = run.recipe.get("features"), embedder.model
    if folder in (None, "none") or not isinstance(model, DualPivotForSentenceEmbedding):
        return embedder
    return CachedEncoder(FeatureCache(folder, model, embedder.tokenizer), model)


def _end_with_parent(parent: int) -> None:
    """Send SIGTERM to this process when its parent ends, so that training saves and stops."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
