"""Train dual pivot's extraction, the layers that compute an embedding from a frozen encoder's hidden states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TrainingArguments
from transformers.trainer_utils import TrainOutput

from hf_xsent.data.bitext import Bitext
from hf_xsent.data.sides import TextSides
from hf_xsent.errors import RecipeError, TrainingError
from hf_xsent.models.dual_pivot import DualPivotForPreTraining
from hf_xsent.models.encode_interface import SupportsEncode
from hf_xsent.tensors.gathering import process_count
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.bitext import as_bitext
from hf_xsent.training.dual_pivot.features import CachedEncoder, FeatureCache, FeatureRows
from hf_xsent.training.trainer import AlignmentTrainer

CRITIC_FILE = "critic_optimizer.pt"


class Critic:
    """The critic with its Adam optimizer: κ steps per training step, on that step's sentences.

    Its weights have requires_grad False, so DDP ignores them; ``step`` averages their gradients over processes.
    """

    def __init__(self, objective: Any, steps: int, learning_rate: float) -> None:
        self.objective, self.steps = objective, steps
        self.weights: dict[str, Tensor] = dict(objective.critic.requires_grad_(False).named_parameters())
        self.optimizer = torch.optim.Adam(self.weights.values(), lr=learning_rate)

    def step(self, source: Tensor, target: Tensor) -> None:
        """Take one step of the critic on these embeddings, without gradients for the embeddings."""
        weights = {name: one.detach().requires_grad_() for name, one in self.weights.items()}
        loss = self.objective.critic_loss(source, target, weights)
        gradients = torch.autograd.grad(loss, [*weights.values()])
        for weight, gradient in zip(self.weights.values(), gradients, strict=True):
            if process_count() > 1:
                dist.all_reduce(gradient)
                gradient /= process_count()
            weight.grad = gradient
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.objective.clip_critic()


class DualPivotTrainer(AlignmentTrainer):
    """Train the extraction on bitext or unpaired text.

    If no objective needs pairs, the two sides of bitext are shuffled independently; ``paired_rows`` keeps the pairs.
    With ``features``, each sentence is encoded once, before the first step; without, the encoder runs in every step.
    """

    def __init__(
        self,
        model: DualPivotForPreTraining,
        args: TrainingArguments | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        features: FeatureCache | None = None,
        **kwargs: Any,
    ) -> None:
        args = AlignmentTrainingArguments.of(args)
        train_dataset = as_bitext(train_dataset, str(kwargs.get("target_language", "en")))
        if args.pairs_per_chunk is not None:
            raise RecipeError(
                "pairs_per_chunk saves no memory over a frozen encoder, which stores no activations: drop it"
            )
        if args.deepspeed or args.fsdp:
            raise RecipeError("dual pivot trains too few weights to shard: drop --fsdp and --deepspeed, use DDP")
        adversarial = [one for one in model.objectives.values() if one.critic_steps]
        if adversarial and args.gradient_accumulation_steps > 1:
            raise RecipeError(
                "the critic does not support gradient_accumulation_steps: drop it, and use a larger batch"
            )
        self.critic = Critic(adversarial[0], adversarial[0].critic_steps, args.learning_rate) if adversarial else None
        self.features = features
        rows: Any = train_dataset
        if isinstance(train_dataset, Bitext):
            keeps_pairs = model.config.needs.pairs or model.config.paired_rows
            rows = TextSides.from_bitext(train_dataset, shuffle_independently=not keeps_pairs, seed=args.seed)
        if rows is not None and model.config.needs.pairs and getattr(rows, "shuffle_independently", False):
            raise RecipeError(
                "only the objectives adversarial and cycle train on unpaired files: give --data for others"
            )
        if rows is not None and features is not None:
            encoding: Any = features.embedder.model
            encoding.to(args.device)
            rows = FeatureRows(rows, features, model.config.needs.teacher)
            kwargs["data_collator"] = _uncollated
        self._extraction = model
        self._threads = torch.get_num_threads()
        super().__init__(model, args, rows, eval_dataset, processing_class, **kwargs)

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """Train; with cached features on one thread, which is faster for these small steps."""
        with _threads(self._threads if self.features is None else 1):
            return super().train(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Measure dev accuracy with all threads, because dev sentences may be encoded."""
        with _threads(self._threads):
            return super().evaluate(*args, **kwargs)

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        """Train the critic first, then the extraction; each step of the critic samples dropout again."""
        if self.critic is not None:
            model.train()
            inputs = self._prepare_inputs(inputs)
            with torch.no_grad(), self.compute_loss_context_manager():
                inputs = self._extraction.encoded(inputs)
            for _ in range(self.critic.steps):
                with torch.no_grad(), self.compute_loss_context_manager():
                    pairs = self._extraction.sentence_pairs(inputs)
                self.critic.step(*(one.to(self._extraction.dtype) for one in (pairs.source, pairs.target)))
        return super().training_step(model, inputs, *args, **kwargs)

    def _dev_encoder(self, model: Any) -> SupportsEncode:
        return super()._dev_encoder(model) if self.features is None else CachedEncoder(self.features, model)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.critic is not None and self.args.should_save:
            torch.save(self.critic.optimizer.state_dict(), Path(output_dir) / CRITIC_FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if self.critic is not None and checkpoint is not None:
            state = torch.load(Path(checkpoint) / CRITIC_FILE, map_location="cpu", weights_only=True)
            settings = {"param_groups": self.critic.optimizer.state_dict()["param_groups"]}  # of this run
            self.critic.optimizer.load_state_dict(state | settings)  # on the weights' device

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        """Compute the norm over the trained weights only, not the encoder's."""
        if grad_norm is None:
            weights = self._extraction.trained_weights()
            grad_norm = torch.nn.utils.get_total_norm([one.grad for one in weights if one.grad is not None])
        return super()._get_grad_norm(model, grad_norm)

    def _step_error(self, what: str) -> TrainingError:
        if "source_input_ids" in self._batch:
            return super()._step_error(what)
        return TrainingError(
            f"step {self.state.global_step + 1}: {what}: lower the learning rate, or clip the critic's weights "
            "(--clip 0.01), and continue from the last checkpoint with --resume_with_changes"
        )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _uncollated(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return batch
