"""Define the interface of objectives: their needs, and the parts to build them from.

The file of an objective has the paper's equation, and the objective's settings, needs, trained parameters and loss;
``registry.py`` lists it. Sentence objectives compare the sentence embeddings of the global batch (all processes). Token
objectives return sums, which are divided by counts of the whole batch, so that a batch can be split into chunks.
Gradients averaged over processes equal those of one process with all pairs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from hf_xsent.errors import RecipeError
from hf_xsent.objectives.pairs import PairTokens, SampledTargets, SentencePairs, TokenStates
from hf_xsent.objectives.settings import ObjectiveSettings

SIDES = frozenset(("source", "target"))


@dataclass(frozen=True)
class Needs:
    """What an objective needs from the encoder, the data and the model."""

    embeddings: frozenset[str] = frozenset()  # the sides whose sentence embeddings it reads
    states: frozenset[str] = frozenset()  # the sides whose last hidden states it reads
    pairs: bool = True  # rows are translations of each other
    links: bool = False  # word alignments of the pairs
    teacher: frozenset[str] = frozenset()  # the sides whose embeddings by another model it learns from
    mask_token: bool = False  # the tokenizer's mask and other special ids, and the checkpoint's MLM head if any
    momentum_encoder: bool = False  # a moving average of the encoder
    critic: bool = False  # separate steps on each batch, before the step of the other weights
    frozen_encoder: bool = False  # a frozen encoder, then a learned weighted sum of its layers and a linear map

    def __or__(self, other: Needs) -> Needs:
        """Return the combined needs of two objectives."""
        return Needs(**{name: getattr(self, name) | getattr(other, name) for name in self.__dataclass_fields__})


@dataclass(frozen=True)
class Parts:
    """Sizes, token ids and module factories of the model that an objective belongs to."""

    encoder_config: Any
    max_length: int
    languages: list[str] | None  # the languages that have a language embedding in the encoder
    tokenizer_mask_id: int | None
    unknown_token_id: int | None
    special_token_ids: Sequence[int]
    encoder: Callable[[], nn.Module]  # another encoder of this config
    last_layers: Callable[..., Any]  # ``models.last_layers.LastLayers`` with the config filled in
    mlm_head: Callable[..., Any]  # ``MLMHead`` with the config filled in
    random_input_shuffling: bool  # source and target of a pair may be swapped
    linear_map: Callable[[int], nn.Module]  # from sentence embeddings to vectors of this width

    @property
    def mask_token_id(self) -> int:
        """The tokenizer's mask token id, or an error if the config has none."""
        if self.tokenizer_mask_id is None:
            raise RecipeError("masking needs mask_token_id in the config: set it to tokenizer.mask_token_id")
        return self.tokenizer_mask_id


@dataclass(frozen=True)
class PretrainedWeights:
    """The pretrained weights from which an objective can initialize its own."""

    encoder: Any
    word_embeddings: Tensor  # V × d
    mlm_head: Any
    mask_token_id: int


Sentences = Callable[[str], Iterable[str]]  # all sentences of one side of the training data, source or target


class Objective(nn.Module):
    """A loss with settings; subclass SentenceObjective, TokenObjective or both."""

    Settings: ClassVar[type[ObjectiveSettings]] = ObjectiveSettings
    needs: ClassVar[Needs] = Needs()

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__()
        self.settings = settings

    @classmethod
    def check(cls, settings: Any, config: Any) -> None:
        """Raise an error if these settings do not fit the model's config."""

    @classmethod
    def teacher(cls, settings: Any) -> str | None:
        """Return the Hub id or folder of the teacher that the objective needs; None: the model before training."""
        return None

    @classmethod
    def fit(cls, settings: Any, config: Any, languages: Collection[str], sentences: Sentences, tokenizer: Any) -> Any:
        """Return the settings, completed from the training data; ``languages`` are those of both sides."""
        return settings

    @classmethod
    def continues(cls, settings: Any, earlier: Any) -> bool:
        """Return whether this objective can load weights that an earlier stage trained with settings ``earlier``."""
        return True

    @property
    def states_read(self) -> frozenset[str]:
        """The sides whose last hidden states are read."""
        return self.needs.states

    @property
    def layers_read(self) -> frozenset[int]:
        """The layers whose hidden states the loss needs, in addition to ``states_read``."""
        return frozenset()

    def start(self, pretrained: PretrainedWeights) -> None:
        """Initialize new weights from pretrained ones."""

    def initial_tensors(self) -> Mapping[str, Tensor]:
        """Return initial values of weights and buffers that Hugging Face's initialization does not set."""
        return {}

    def train_critic(self, embed: Callable[[], SentencePairs], learning_rate: float) -> None:
        """Train a critic on a batch, which ``embed`` embeds, before the step of the other weights."""

    def begin_training(self) -> None:
        """Discard what an interrupted step of an earlier training left."""

    def end_step(self, encoder: nn.Module) -> None:
        """Update state once after each optimizer step."""


class SentenceObjective(Objective, ABC):
    """A loss over the sentence embeddings of the whole batch."""

    needs: ClassVar[Needs] = Needs(embeddings=SIDES)

    @abstractmethod
    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Return the loss of the batch."""


def sentence_losses(objectives: Any, pairs: SentencePairs, batch: Mapping[str, Any]) -> dict[str, Tensor]:
    """Compute each unweighted sentence loss of a ``ModuleDict`` of objectives.

    The embeddings of an objective's teacher are in ``batch``, named like ``distillation_teacher_target``.
    """
    losses = {}
    for name, objective in objectives.items():
        if isinstance(objective, SentenceObjective):
            teacher = {side: batch.get(f"{name}_teacher_{side}") for side in sorted(objective.needs.teacher)}
            losses[name] = objective.sentence_loss(pairs.taught(name, teacher))
    return losses


class TokenObjective(Objective, ABC):
    """A loss over sampled tokens, in one or more parts, such as one per direction or side.

    For each part, the sum of the token losses over all processes is divided by the sum of ``SampledTargets.count`` over
    all processes. The objective's loss is the mean over its parts.

    A part may be empty, such as in a batch without word links. Its loss is 0, but it still runs the encoder and the
    head. Each process must call the same layers and have a gradient (possibly zero) for each trained weight, because
    the processes wait for each other to average the gradients.
    """

    @abstractmethod
    def sample(self, pairs: PairTokens) -> Sequence[SampledTargets]:
        """Make all random choices here, so that both passes of gradient caching share them; return an item per part."""

    @abstractmethod
    def token_loss(self, pairs: PairTokens, states: TokenStates, sampled: SampledTargets) -> Tensor:
        """Return the sum of the losses of one part's tokens."""
