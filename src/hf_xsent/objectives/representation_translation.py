"""Representation translation learning (RTL): predict a sentence from its translation's hidden states (DAP).

    g([enc(x); m_1 … m_n]) → p(y_j | x),    m_j = [MASK] embedding + position j                (eq. 4)
    L_RTL = -1/n Σ_j log p(y_j | x)                                                            (eq. 6)

g is K transformer layers and a vocabulary projection. Its input has no [CLS], of x or of y; [SEP] of y is predicted.
Each position attends to all source tokens and all [MASK]s; all tokens of y are predicted in parallel. Gradients reach
the encoder through enc(x).

As in the authors' code, enc(x) and m pass through a copy of the encoder's embedding module before the layers. It adds
position and type embeddings and applies LayerNorm. So m_j gets two position embeddings: j (eq. 4), and j plus an
offset. All pairs of a batch have the same offset: max_length, or the padded length of the batch (setting
``positions``). Eq. 6 is averaged over all predicted tokens of the batch. With ``direction: both``, each pair has one of
the two directions, and each direction has its own average; the loss is the mean of the two. The head's input for one
pair, where [CLS] has the id 0:

>>> x, y = torch.tensor([[0, 5, 2]]), torch.tensor([[0, 7, 8, 2]])
>>> packed = pack([x, y], [torch.ones_like(x), torch.ones_like(y)])
>>> pairs = PairTokens(packed, torch.zeros(1), None, padded_length=4)
>>> rows = translation_rows(pairs, known=torch.tensor([0]), predicted=torch.tensor([1]), start=10)
>>> rows.labels.tolist(), rows.masked.tolist(), rows.packed.positions.tolist()
([7, 8, 2], [False, False, True, True, True], [1, 2, 11, 12, 13])
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor, nn

from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.objectives.base import Needs, Parts, PretrainedWeights, Sentences, TokenObjective
from hf_xsent.objectives.pairs import PairTokens, SampledTargets, TokenStates
from hf_xsent.objectives.settings import VocabularySettings
from hf_xsent.settings.declare import derived, setting
from hf_xsent.tensors.gathering import max_over_processes
from hf_xsent.tensors.packing import PackedSentences, join, pack  # noqa: F401 - pack for the docstring

logger = logging.getLogger(__name__)

_SENTENCES_AT_ONCE = 4096  # in a call of the tokenizer


@dataclass(frozen=True)
class RepresentationTranslationSettings(VocabularySettings):
    """The settings of representation translation learning."""

    head_layers: int = setting(
        2, "Layers of the RTL head (K in the paper), copied from the encoder's last layers.", at_least=1
    )
    direction: str = setting(
        "source_to_target",
        "Which side to predict. source_to_target: targets from sources. target_to_source: sources from targets. both: "
        "one direction per pair, chosen by a hash of its target.",
        choices=("source_to_target", "target_to_source", "both"),
    )
    masked_share: float = setting(
        1.0,
        "Fraction of the predicted sentence's tokens that are replaced by [MASK] and predicted. For the other tokens, "
        "the head gets the encoder's hidden states.",
        above=0,
        at_most=1,
    )
    positions: str = setting(
        "fixed",
        "Offset of the positions of the predicted sentence: max_length (fixed), or the padded length of the batch "
        "(padded, as in DAP's authors' code).",
        choices=("fixed", "padded"),
    )
    predicted_languages: list[str] | None = setting(
        None,
        "Languages for which the head has an embedding. Where it predicts sources, it adds the embedding of the "
        "predicted sentence's language to each [MASK]; with random_input_shuffling, also where it predicts targets. "
        "Default: the languages that have an embedding in the encoder or, if none has, all languages of the data, "
        "which a model that is made in Python does not know: list them.",
    )
    restrict_vocabulary: bool = setting(
        True,
        "Predict only word pieces that occur on the predicted side of the training data, not the full vocabulary. A "
        "model that is made in Python does not know the data: AlignmentTrainer predicts the full vocabulary.",
    )
    vocabulary_size: int | None = derived()  # of a restricted vocabulary; None: all tokens
    vocabulary_ids: tuple[int, ...] | None = derived(saved=False)  # its ids; a buffer of the head, not in config.json

    @property
    def predicts_sources(self) -> bool:
        """Whether the head predicts source sentences, which may be in several languages."""
        return self.direction != "source_to_target"

    @property
    def embedded_languages(self) -> list[str] | None:
        """The languages for which the head has an embedding."""
        return self.predicted_languages


@dataclass(frozen=True)
class TranslationRows:
    """The input of the head (eq. 4), as packed rows: each has the states of a known sentence, then predicted tokens."""

    packed: PackedSentences  # T tokens with the head's positions
    masked: Tensor  # T: whether the head sees [MASK] here, not the encoder's hidden state
    visible: Tensor  # of the tokens that are not masked: their indices in the batch
    own_positions: Tensor  # of the masked tokens: their positions in their own sentence
    languages: Tensor | None  # of the masked tokens; None without language embeddings
    labels: Tensor  # of the masked tokens: their word pieces


def translation_rows(
    pairs: PairTokens, known: Tensor, predicted: Tensor, start: int, share: float = 1.0, masked: Tensor | None = None
) -> TranslationRows:
    """Build rows that predict sentence ``predicted[i]`` from sentence ``known[i]``.

    Both are indices of sentences in the batch, which has all sources before all targets. The position of a
    predicted token is ``start`` + its position in its own sentence. ``masked`` has a flag per token of the batch: a
    token is masked if its flag is true and its sentence is predicted. Without flags, each token of a predicted sentence
    is masked with probability ``share``.
    """
    rows = join(pairs.packed, known, predicted, skip=(1, 1))
    own = pairs.packed.positions[rows.origin]
    hidden = rows.in_second
    if masked is not None:
        hidden = hidden & masked[rows.origin]
    elif share < 1:
        hidden = hidden & (torch.rand(len(hidden), device=hidden.device) < share)
    languages = None
    if pairs.language_ids is not None:
        joined = pairs.language_ids[predicted][torch.argsort(rows.packed.restore)]
        languages = torch.repeat_interleave(joined, rows.packed.lengths)[hidden]
    return TranslationRows(
        packed=rows.packed.with_positions(own + start * rows.in_second),
        masked=hidden,
        visible=rows.origin[~hidden],
        own_positions=own[hidden],
        languages=languages,
        labels=rows.packed.input_ids[hidden],
    )


def word_pieces(sentences: Iterable[str], tokenizer: Any) -> tuple[int, ...]:
    """Return the ascending ids of all tokens of the sentences and of the special tokens."""
    ids, waiting = {*tokenizer.all_special_ids}, iter(sentences)
    while block := list(islice(waiting, _SENTENCES_AT_ONCE)):
        for pieces in tokenizer(block, add_special_tokens=False)["input_ids"]:
            ids.update(pieces)
    return tuple(sorted(ids))


class RepresentationTranslation(TokenObjective):
    """Predict a sentence from its translation's hidden states by a head of K layers, the RTL head (DAP).

    The head is initialized from the encoder's last layers and the checkpoint's MLM head. It skips padding and [CLS],
    and its last layer computes only masked positions.
    """

    Settings = RepresentationTranslationSettings
    needs = Needs(mask_token=True)

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        self.layers = parts.last_layers(settings.head_layers)
        self.prediction = parts.mlm_head(
            size=settings.vocabulary_size or parts.encoder_config.vocab_size,
            restricted=settings.vocabulary_size is not None,
            unknown_id=parts.unknown_token_id,
            sample=settings.sampled_pieces,
        )
        languages = (settings.predicted_languages or parts.languages) if settings.predicts_sources else ()
        if languages is None:
            raise RecipeError(
                f"direction {settings.direction} predicts several languages: list them as "
                "objectives.representation_translation.predicted_languages"
            )
        width = parts.encoder_config.hidden_size
        self.language_embeddings = nn.Embedding(len(languages), width) if languages else None
        self.max_length = parts.max_length
        self.shuffled = parts.random_input_shuffling

    @classmethod
    def check(cls, settings: Any, config: Any) -> None:
        """Raise an error if the head does not fit the encoder, or input shuffling mixes the sides."""
        if config.random_input_shuffling and settings.direction != "both":
            raise RecipeError(
                "representation_translation predicts only one side, and random_input_shuffling swaps the sides: set "
                "random_input_shuffling: false or direction: both"
            )
        if config.languages and settings.predicted_languages and config.languages != settings.predicted_languages:
            raise RecipeError(
                "languages and predicted_languages are different lists: give both settings the same list, or remove "
                "one of them"
            )
        depth, longest = config.encoder_config.num_hidden_layers, config.max_positions // 2
        if settings.head_layers > depth:
            raise RecipeError(
                f"head_layers {settings.head_layers} does not fit: this encoder has {depth} layers to copy"
            )
        if config.max_length > longest:
            raise RecipeError(
                f"max_length {config.max_length} leaves the RTL head too few positions for both sentences: use at most "
                f"{longest}"
            )

    @classmethod
    def fit(cls, settings: Any, config: Any, languages: Collection[str], sentences: Sentences, tokenizer: Any) -> Any:
        """Add the languages of the data and the ids of its tokens, if the settings need them."""
        if settings.predicts_sources and not (settings.predicted_languages or config.languages):
            settings = replace(settings, predicted_languages=sorted(languages))
        if not settings.restrict_vocabulary:
            return settings
        predicted = settings.direction.rpartition("_")[2]
        sides = ("source", "target") if predicted == "both" else (predicted,)
        texts = (config.default_prompt + text for text in chain.from_iterable(map(sentences, sides)))
        ids = word_pieces(texts, tokenizer)
        logger.info("the RTL head projects onto %d of %d word pieces", len(ids), len(tokenizer))
        return replace(settings, vocabulary_size=len(ids), vocabulary_ids=ids)

    @classmethod
    def continues(cls, settings: Any, earlier: Any) -> bool:
        """Return whether the earlier stage's RTL head has the same number of layers and the same languages."""
        keys = ("head_layers", "predicted_languages")
        return all(getattr(settings, key) == getattr(earlier, key) for key in keys)

    @property
    def states_read(self) -> frozenset[str]:
        """The known side, and the predicted one if some of its tokens are visible."""
        if self.settings.direction == "both" or self.settings.masked_share < 1:
            return frozenset(("source", "target"))
        return frozenset(("target" if self.settings.predicts_sources else "source",))

    def start(self, pretrained: PretrainedWeights) -> None:
        """Copy the encoder's embedding module, its last K layers and its MLM head."""
        self.layers.start_from(pretrained.encoder, pretrained.mask_token_id)
        ids = self.settings.vocabulary_ids
        vocabulary = None if ids is None else torch.tensor(ids)
        self.prediction.start_from(pretrained.mlm_head, pretrained.word_embeddings, vocabulary)

    def sample(self, pairs: PairTokens) -> Sequence[SampledTargets]:
        """Build the head's rows; with direction both, a hash of the target sentence chooses each pair's direction."""
        source, target = torch.arange(len(pairs.packed.lengths), device=pairs.packed.lengths.device).chunk(2)
        # Known and predicted sentences, and whether the predicted ones may be in several languages.
        parts = [(source, target, self.shuffled)]
        if self.settings.direction == "both":
            forward = pairs.target_identity % 2 == 0
            parts = [
                (source[forward], target[forward], self.shuffled),
                (target[~forward], source[~forward], True),
            ]
        elif self.settings.predicts_sources:
            parts = [(target, source, True)]
        if self.language_embeddings is not None and pairs.language_ids is None:
            raise ModelError("the RTL head has language embeddings: pass language_ids")
        start = self.max_length
        if self.settings.positions == "padded":  # as in one process; all have as many batches and chunks
            start = max_over_processes(pairs.padded_length, source.device)
        share, unnamed = self.settings.masked_share, replace(pairs, language_ids=None)
        rows = []
        for known, predicted, several in parts:
            named = pairs if several else unnamed
            if len(known):
                rows.append(translation_rows(named, known, predicted, start, share))
            else:  # run the head on a pair without predictions, so that all processes run it equally often
                rows.append(translation_rows(named, source[:1], target[:1], start, share=0))
        return [SampledTargets(part, torch.tensor(len(part.labels), device=source.device)) for part in rows]

    def token_loss(self, pairs: PairTokens, states: TokenStates, sampled: SampledTargets) -> Tensor:
        """Sum the cross entropy of one direction's masked tokens (eq. 6)."""
        rows: TranslationRows = sampled.rows
        masks = self.layers.mask_embeddings(rows.packed.with_positions(rows.own_positions))
        if self.language_embeddings is not None and rows.languages is not None:
            masks = masks + self.language_embeddings(rows.languages)
        order = torch.cat(((~rows.masked).nonzero(), rows.masked.nonzero())).squeeze(1).argsort()
        row = torch.cat((states.at(rows.visible), masks))[order]  # [enc(x); m]
        hidden = self.layers(row, rows.packed, rows.masked.nonzero().squeeze(1))
        loss: Tensor = self.prediction(hidden, rows.labels)
        return loss
