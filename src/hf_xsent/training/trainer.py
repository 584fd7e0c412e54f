"""Extend transformers' Trainer with objectives over pairs, temperature sampling and retrieval accuracy on dev."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, TrainingArguments
from transformers.trainer_utils import IntervalStrategy, TrainOutput

from hf_xsent.data.readers.in_memory import target_language_of
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.data.sampling.mixing import ProcessBatches, TemperatureSampler
from hf_xsent.errors import DataError, ModelError, RecipeError
from hf_xsent.evaluation.pairs import retrieval_by_language
from hf_xsent.evaluation.task import Metrics
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import check_tokenizer
from hf_xsent.models.pretraining import AlignmentOutput, SentenceEncoderForPreTraining
from hf_xsent.training.arguments import AlignmentTrainingArguments, check_trainer
from hf_xsent.training.bitext import as_bitexts, check_has_what_objectives_read, training_rows
from hf_xsent.training.callbacks import CostCounter, DevBeforeTraining, EndOfStep, StartOfEpoch, outlive_sigterm
from hf_xsent.training.conflicts import AUTO
from hf_xsent.training.dual_pivot.features import CachedEncoder, FeatureCache, collate_features, threads
from hf_xsent.training.large_batch import cached_loss
from hf_xsent.training.resuming import stops_early
from hf_xsent.training.retention import Retention, average_with_start, choose_share, starting_weights
from hf_xsent.training.run_trainer import RunTrainer
from hf_xsent.training.teacher import Teachers, copy_of_start, load_teachers

logger = logging.getLogger(__name__)


class AlignmentTrainer(RunTrainer):
    """Train any model whose forward returns ``loss`` and ``losses`` for pairs.

    Languages of ``train_dataset`` are sampled in proportion to size^alpha. ``eval_dataset``, the dev bitext, gives
    retrieval accuracy@1: ``eval_accuracy_forward`` (source to target), ``eval_accuracy_backward`` (target to source),
    ``eval_accuracy``, their mean, the same mean per language, such as ``eval_accuracy_de``, and ``eval_beside``: the
    translation is nearer than the other sentences of the query's side, too. Without dev, the run ends with its last
    weights. Teachers of objectives are loaded by the names in the objectives' settings, unless ``teachers`` gives them:
    ``{"distillation": other}``, a model, its ``encode`` or its name, or ``{}`` if batches have all teachers'
    embeddings. If no objective needs pairs, the two sides of the data are shuffled independently. Over a frozen
    encoder, ``features`` encodes each sentence once, before the first step; without, the encoder runs in every step.
    ``model`` may be a SentenceTransformer of transformer and pooling: its encoder trains by translation ranking.

    A dataset is what ``load_bitext`` returns, or anything that it reads, such as a DataFrame or a list of pairs, which
    is not cleaned, with its arguments ``target_language`` (by default that of a bitext) and ``columns``. ``args`` may
    be plain TrainingArguments. At the end of ``train``, the output folder has the model, which AutoModel and
    SentenceTransformer open, its tokenizer, recipe.yaml, metrics.jsonl and the model card. ``save_strategy="no"``
    writes only metrics.jsonl, and replaces an earlier one. The folder must be new or empty: see ``train``.

    ```python
    from hf_xsent import AlignmentTrainer, SentenceEncoderForPreTraining
    from transformers import TrainingArguments

    model = SentenceEncoderForPreTraining.from_pretrained("xlm-roberta-base")
    arguments = TrainingArguments("runs/mine", max_steps=100, per_device_train_batch_size=8)
    pairs = {"de": [("Ein Hund.", "A dog."), ("Eine Katze.", "A cat.")]}
    AlignmentTrainer(model, arguments, pairs).train()
    ```
    """

    args: AlignmentTrainingArguments
    # A batch's loss is its mean: the Trainer must average the gradients of accumulated batches.
    loss_is_scaled_for_ga = False

    def __init__(
        self,
        model: SentenceEncoderForPreTraining,
        args: TrainingArguments | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        alpha: float = 0.5,
        target_language: str | None = None,
        teachers: Mapping[str, Any] | None = None,
        features: FeatureCache | None = None,
        columns: Any = None,
        data_collator: Any = None,
        callbacks: list[Any] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
    ) -> None:
        if any(kind.__name__ == "SentenceTransformer" for kind in type(model).__mro__):
            model = SentenceEncoderForPreTraining.from_sentence_transformer(model)
        if SentenceEncoderForPreTraining not in type(model).__mro__:
            raise ModelError(
                f"{type(model).__name__} has no objectives to train: make the model by "
                "SentenceEncoderForPreTraining.from_pretrained"
            )
        processing_class = processing_class or model.find_tokenizer()
        if processing_class is None:
            raise DataError("the model's folder has no tokenizer: pass one as processing_class")
        check_tokenizer(processing_class, model.config.encoder_config, model.config.needs.links)
        args = AlignmentTrainingArguments.of(args)
        self.target_language = str(target_language or target_language_of(train_dataset, "en"))
        train_dataset, eval_dataset = as_bitexts(train_dataset, eval_dataset, self.target_language, columns)
        check_trainer(args, model, train_dataset, eval_dataset)
        if args.head_learning_rate is not None and optimizers[0] is not None:
            raise RecipeError("head_learning_rate has no effect on a given optimizer: give it a group with this rate")
        if eval_dataset is None:
            args = copy(args)  # which another trainer may share
            args.eval_strategy = IntervalStrategy.NO
            args.eval_on_start = args.load_best_model_at_end = False
        config: Any = model.config
        check_has_what_objectives_read(train_dataset, eval_dataset, config, self.target_language)
        if features is not None:
            encoder: Any = features.embedder.model
            encoder.to(args.device)
            data_collator = collate_features
        train_dataset = training_rows(train_dataset, config, features, args.seed)
        collator = data_collator or PairCollator(
            processing_class, config.max_length, config.embedded_languages, self.target_language,
            texts=config.needs.teacher, links=config.needs.links, negatives=config.hard_negatives,
            prompt=config.default_prompt,
        )  # fmt: skip
        model.freeze(args.frozen_layers, args.frozen_word_embeddings)
        if not any(weight.requires_grad for weight in model.parameters()):
            raise RecipeError("all weights are frozen: lower frozen_layers, or unfreeze some by requires_grad_(True)")
        data: Any = (train_dataset, eval_dataset)
        super().__init__(model, args, collator, *data, processing_class, callbacks=callbacks, optimizers=optimizers)
        model.tokenizer = processing_class
        self._lora_rank = config.lora_rank
        self.add_callback(EndOfStep)
        self.add_callback(DevBeforeTraining)
        self._retention = None if args.retention is None else Retention(args.retention)
        self._epochs = StartOfEpoch()
        self.add_callback(self._epochs)
        self.tokenizer = processing_class
        self.alpha = float(alpha)  # a number of numpy or torch
        self.columns = columns
        self.features = features
        self.teachers = Teachers(load_teachers(config, self.args, teachers), model, self.args)
        self._sums: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=self.args.device))
        self._batches = self._pairs = 0
        self._threads = torch.get_num_threads()
        self._cost = CostCounter()
        self.add_callback(self._cost)

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """Train, and save the model with its last or best weights, as the arguments choose.

        The arguments are those of `SavingTrainer.train`, which says when a run is resumed or replaced.
        """
        if self.train_dataset is None:
            raise DataError("no pairs to train on: pass them as train_dataset")
        if self.model.config.lora_rank != self._lora_rank:
            raise RecipeError("an earlier call of train has merged the adapters: open the model again, and train it")
        self.model.freeze(self.args.frozen_layers, self.args.frozen_word_embeddings)  # another trainer may have since
        # With cached features, a step is so small that one thread is fastest.
        with threads(None if self.features is None else 1):
            return super().train(*args, **kwargs)

    def identity(self) -> dict[str, Any]:
        """Add teachers in memory."""
        return super().identity() | self.teachers.identity()

    def before_training(self) -> None:
        """Copy and measure the start; no checkpoint is loaded yet."""
        super().before_training()
        self._sums.clear()  # of an interrupted training
        self._batches = self._pairs = 0
        for objective in self.model.objectives.values():
            objective.begin_training()
        needs: dict[str, Callable[[], Any]] = {}
        if self.args.share_of_start:
            needs["share_of_start"] = partial(starting_weights, self.model)
        if self.teachers.need_start:
            needs["interpolation"] = partial(copy_of_start, self.model, self.args)
        if self._retention is not None:
            needs["retention"] = self._score_within_languages
        start = self.start.values_of(needs)
        self._start, self.teachers.start = start.get("share_of_start", {}), start.get("interpolation")
        if self._retention is not None:
            self._retention.before = start["retention"]

    def after_training(self, folder: str | None) -> None:
        """Average the weights with those of the start, merge adapters, and measure the result."""
        model = self.model
        share: Any = self.args.share_of_start
        if share == AUTO:
            dev = partial(self._measure_dev, self.eval_dataset)
            share = choose_share(model, self._start, lambda: dev()["accuracy"], self._score_within_languages)
        if share:
            average_with_start(model, self._start, share)
            self.log({"share_of_start": share})
        model.merge_adapters()
        if self.eval_dataset is not None and self.args.share_of_start:
            self.evaluate()
        if self._retention is not None:
            self._retention.after = self._score_within_languages()
            self.log({"retention_before": self._retention.before, "retention": self._retention.after})
        super().after_training(folder)

    def problem(self) -> str | None:
        """Return a sentence if the score within languages fell by more than ``largest_drop``."""
        if self._retention is None:
            return None
        return self._retention.problem(self.args.largest_drop, str(self.args.output_dir) if self.saves_run else None)

    def _score_within_languages(self) -> float:
        assert self._retention is not None
        with self._cost.not_counted(), self.accelerator.autocast(), threads(self._threads):
            return self._retention.score(SentenceEmbedder(self.model, self.tokenizer))

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor | tuple[Tensor, AlignmentOutput]:
        """Compute the weighted sum of the objectives, and add each loss to the sums for the log."""
        inputs = self.teachers(inputs, self.args.device)
        if self.model.config.needs.critic:
            with self.accelerator.autocast():
                inputs = self.model.train_critics(inputs, self.args.learning_rate)
        chunk = self.args.pairs_per_chunk
        if chunk is not None and chunk < self.args.train_batch_size:  # batch size per process, equal in all processes
            outputs: Any = cached_loss(self, model, inputs, chunk)
        else:
            outputs = model(**inputs)
        if not outputs.loss.isfinite():
            each = ", ".join(f"{name} {loss.item():g}" for name, loss in outputs.losses.items())
            raise self.not_finite(f"loss is NaN or infinite ({each})", self.state.global_step + 1)
        for name, loss in outputs.losses.items():
            self._sums[name] += loss
        self._batches += 1
        self._pairs += len(inputs.get("source_input_ids", inputs.get("source_identity", ())))
        return (outputs.loss, outputs) if return_outputs else outputs.loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add each objective's mean since the last log, pairs per second of all processes, and this process's cost."""
        if "loss" in logs and self._batches:
            for name, total in self._sums.items():
                logs[f"loss_{name}"] = self.accelerator.gather(total / self._batches).mean().item()
            logs["pairs_per_second"] = self._pairs * self.args.world_size / self._cost.lap()
            self._sums.clear()
            self._batches = self._pairs = 0
        if "loss" in logs or "train_loss" in logs:
            logs |= self._cost.so_far()
        super().log(logs, start_time)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Measure dev retrieval accuracy@1: of each language, and the mean over languages and directions."""
        given: Any = self.eval_dataset if eval_dataset is None else eval_dataset
        _, dev = as_bitexts(None, given, self.target_language, self.columns, others=True)
        if dev is None:
            raise DataError("no dev pairs to evaluate on: pass them as eval_dataset")
        self.use_averaged_weights()
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in self._measure_dev(dev).items()}
        self.log(metrics)
        if eval_dataset is not None:
            self.state.log_history.pop()  # from which the model card takes the accuracy on the run's own dev pairs
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        self.control.should_training_stop |= stops_early(self.state, self.args)
        return metrics

    def _measure_dev(self, dev: Any) -> dict[str, float]:
        model, cache = self.model, self.features
        encoder: Any = SentenceEmbedder(model, self.tokenizer) if cache is None else CachedEncoder(cache, model)
        target = self.target_language if model.config.languages else None
        with self._cost.not_counted(), self.accelerator.autocast(), threads(self._threads):
            pairs = {language: dev.pairs(language) for language in dev.languages}
            try:
                return _metrics(retrieval_by_language(encoder, pairs, target_language=target))
            except DataError as error:
                if not self.state.global_step:
                    raise
                raise self.not_finite("embeddings of dev pairs are NaN or infinite", self.state.global_step) from error

    def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
        """Build the Trainer's optimizer, with a separate learning rate for the objectives' heads."""
        if self.optimizer is not None:  # DeepSpeed calls this twice
            return self.optimizer
        optimizer = super().create_optimizer(model)
        rate = self.args.head_learning_rate
        if rate is not None:
            trained: Any = self.model if model is None else model
            heads = {weight for name, weight in trained.named_parameters() if "objectives." in name}
            if not heads:  # as of a recipe whose objectives are replaced
                logger.warning("head_learning_rate has no effect, because the objectives have no weights")
            for group in list(optimizer.param_groups):
                of_heads = [weight for weight in group["params"] if weight in heads]
                group["params"] = [weight for weight in group["params"] if weight not in heads]
                if of_heads:
                    optimizer.add_param_group({**group, "params": of_heads, "lr": rate})
        return optimizer

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        """Return the norm of the gradients, of a frozen encoder without a slow walk over its weights."""
        if grad_norm is None and self.model.config.freezes_encoder:
            weights = self.model.trained_weights()
            grad_norm = torch.nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])
        return super()._get_grad_norm(model, grad_norm)

    def train_sampler(self) -> TemperatureSampler:
        """Return the sampler of the rows of an epoch, the same on all processes."""
        dataset: Any = self.train_dataset
        batch = self.args.train_batch_size * self.args.world_size
        if len(dataset) < batch and self.args.world_size > 1:
            raise RecipeError(
                f"{len(dataset)} training pairs are fewer than one batch of {batch} pairs over {self.args.world_size} "
                "processes: lower per_device_train_batch_size"
            )
        group = batch if self.args.one_language_batches else 1
        step = batch * self.args.gradient_accumulation_steps
        step = step if step <= len(dataset) else batch
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return TemperatureSampler(dataset.ranges, self.alpha, seed, group=group, batch=step)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the batches of this process; a resumed run skips those before its checkpoint in constant time."""
        args = self.args
        batches: Any = ProcessBatches(self.train_sampler(), args.train_batch_size, args.process_index, args.world_size)
        self._epochs.batches = batches
        return DataLoader(
            self.train_dataset,  # type: ignore[arg-type]
            batch_sampler=batches,
            collate_fn=self.data_collator,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory,
            prefetch_factor=args.dataloader_prefetch_factor,
            worker_init_fn=outlive_sigterm,
        )


def _metrics(results: Mapping[str, Metrics]) -> dict[str, float]:
    names = {"accuracy": "mean", "beside": "beside", "accuracy_forward": "forward", "accuracy_backward": "backward"}
    means = {name: sum(of[key] for of in results.values()) / len(results) for name, key in names.items()}
    return means | {f"accuracy_{language}": of_language["mean"] for language, of_language in results.items()}
