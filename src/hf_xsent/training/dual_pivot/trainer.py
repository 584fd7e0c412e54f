"""Train over a frozen encoder: batches of features, and a critic with an optimizer of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from transformers.trainer_utils import TrainOutput

from hf_xsent.data.bitext import Bitext
from hf_xsent.data.sides import TextSides
from hf_xsent.errors import RecipeError, TrainingError
from hf_xsent.models.dual_pivot import DualPivotForPreTraining
from hf_xsent.models.encodes import SupportsEncode
from hf_xsent.tensors.gathering import process_count
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.dual_pivot.features import CachedEncoder, FeatureCache, FeatureRows
from hf_xsent.training.trainer import AlignmentTrainer

CRITIC_FILE = "critic_optimizer.pt"


class Critic:
    """Train the critic κ steps for each step of the encoder, by an Adam of its own, on that step's vectors.

    The data-parallel wrapper never sees the critic's weights as trainable, so its gradients are averaged here.
    """

    def __init__(self, objective: Any, steps: int, learning_rate: float) -> None:
        self.objective, self.steps = objective, steps
        self.weight = objective.critic.weight.requires_grad_(False)
        self.optimizer = torch.optim.Adam([self.weight], lr=learning_rate)

    def train(self, source: Tensor, target: Tensor) -> None:
        """Take κ steps on these vectors, without gradients for them."""
        for _ in range(self.steps):
            weight = self.weight.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.objective.critic_loss(source, target, weight), weight)
            if process_count() > 1:
                dist.all_reduce(gradient)
                gradient /= process_count()
            self.weight.grad = gradient
            self.optimizer.step()
            self.objective.clip_critic()
        self.weight.grad = None


class DualPivotTrainer(AlignmentTrainer):
    """Train the extraction on bitext, or on its sides shuffled independently where no objective needs pairs.

    With ``features`` each sentence is encoded once, before the first step; without, the encoder runs in each step.
    """

    def __init__(
        self,
        model: DualPivotForPreTraining,
        args: AlignmentTrainingArguments,
        train_dataset: Bitext | TextSides | None = None,
        eval_dataset: Bitext | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        features: FeatureCache | None = None,
        **kwargs: Any,
    ) -> None:
        if args.pairs_per_chunk is not None:
            raise RecipeError("a frozen encoder keeps no activations, chunks spare nothing: leave out pairs_per_chunk")
        if args.deepspeed or args.fsdp:
            raise RecipeError("dual pivot trains less than a layer: there is nothing to shard, use DDP")
        adversarial = [one for one in model.objectives.values() if one.critic_steps]
        if adversarial and args.gradient_accumulation_steps > 1:
            raise RecipeError(
                "the critic learns from whole batches: enlarge them, leave out gradient_accumulation_steps"
            )
        self.critic = Critic(adversarial[0], adversarial[0].critic_steps, args.learning_rate) if adversarial else None
        self.features = features
        rows: Any = train_dataset
        if isinstance(train_dataset, Bitext):
            rows = TextSides.of_bitext(
                train_dataset, shuffle_independently=not model.config.needs.pairs, seed=args.seed
            )
        if rows is not None and model.config.needs.pairs and getattr(rows, "shuffle_independently", False):
            raise RecipeError("unpaired files train adversarial and cycle alone: triplet_ranking needs bitext (--data)")
        if rows is not None and features is not None:
            encoding: Any = features.embedder.model
            encoding.to(args.device)
            rows = FeatureRows(rows, features)
            kwargs["data_collator"] = _as_it_is
        self._extraction = model
        self._threads = torch.get_num_threads()
        super().__init__(model, args, rows, eval_dataset, processing_class, **kwargs)

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """Train; over features on one thread, because a second one slows such small steps down."""
        with _threads(self._threads if self.features is None else 1):
            return super().train(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Measure on dev with all threads, which the encoder can use."""
        with _threads(self._threads):
            return super().evaluate(*args, **kwargs)

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        """Train the critic first, then the extraction."""
        if self.critic is not None:
            inputs = self._prepare_inputs(inputs)
            with torch.no_grad(), self.compute_loss_context_manager():
                pairs = self._extraction.sentence_pairs(inputs)
            self.critic.train(pairs.source.float(), pairs.target.float())
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
            state: Mapping[str, Any] = torch.load(Path(checkpoint) / CRITIC_FILE, weights_only=True)
            self.critic.optimizer.load_state_dict(dict(state))

    def _get_grad_norm(self, model: torch.nn.Module, grad_norm: Any = None) -> Any:
        """Take the norm over the few trained weights alone, without a look at the encoder's."""
        if grad_norm is None:
            weights = self._extraction.trained_weights()
            grad_norm = torch.nn.utils.get_total_norm([one.grad for one in weights if one.grad is not None])
        return super()._get_grad_norm(model, grad_norm)

    def _broken(self, what: str) -> TrainingError:
        if "source_input_ids" in self._batch:
            return super()._broken(what)
        return TrainingError(
            f"step {self.state.global_step + 1}: {what}: lower the learning rate, or keep the critic within bounds "
            "(--clip 0.01), and --resume the last checkpoint"
        )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _as_it_is(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    return batch
