"""Train a sentence encoder with any objectives: encode each batch of pairs once and add up their losses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import ModelOutput
from transformers.utils import can_return_tuple

from hf_xsent.errors import ModelError
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.families import backbone_of
from hf_xsent.models.input_shuffling import SIDES, shuffle_sides
from hf_xsent.models.last_layers import LastLayers
from hf_xsent.models.loading import build_encoder, load_tokenizer, token_ids
from hf_xsent.models.mlm_head import MLMHead, load_matching_heads, load_mlm_head, plain_head
from hf_xsent.models.sentence_encoder import SentenceEncoder, View
from hf_xsent.objectives.base import Objective, Parts, PretrainedWeights, TokenObjective, sentence_losses
from hf_xsent.objectives.pairs import PairTokens, SampledTargets, SentencePairs, TokenStates
from hf_xsent.objectives.registry import objective_class
from hf_xsent.tensors.gathering import mean_over_processes, sum_over_processes
from hf_xsent.tensors.packing import PackedSentences, hash_sentences, pack, pool
from hf_xsent.tensors.word_grid import WordLinks

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass
class AlignmentOutput(ModelOutput):
    """The weighted sum of all losses, and each unweighted loss by name."""

    loss: Tensor | None = None
    losses: dict[str, Tensor] | None = None


@dataclass(frozen=True)
class EncodedPairs:
    """The encoding of a batch of pairs, which all objectives share."""

    sentences: SentencePairs
    tokens: PairTokens
    states: TokenStates
    sampled: dict[str, Sequence[SampledTargets]]  # by token objective


@dataclass(frozen=True)
class CachedBatch:
    """Results of a large batch for one of its chunks, by gradient caching."""

    gradients: Tensor  # gradients of the sentence losses for the chunk's ``SentencePairs.trained``
    weights: Mapping[str, Tensor]  # in one of the chunks: gradients of the sentence losses for weights of objectives
    counts: dict[str, list[Tensor]]  # of each token objective: the tokens of each part, in all chunks and processes


class SentenceEncoderForPreTraining(SentenceEncoder):
    """A sentence encoder with training objectives: a paper's or any other combination."""

    config_class: Any = AlignmentConfig
    trains = True

    objectives: Any

    def __init__(self, config: AlignmentConfig, encoder: PreTrainedModel | None = None) -> None:
        config.check_objectives()
        super().__init__(config, encoder)
        self.objectives = self._new_objectives()
        width = config.encoder_config.hidden_size
        self.training_mlp = nn.Sequential(nn.Linear(width, width), nn.Tanh()) if config.training_mlp else None
        self.post_init()

    def _new_objectives(self) -> nn.ModuleDict:
        config = self.config
        parts = Parts(
            config.encoder_config,
            config.max_length,
            config.languages,
            config.mask_token_id,
            config.unknown_token_id,
            config.special_token_ids or (),
            encoder=partial(build_encoder, config.encoder_config),
            last_layers=partial(LastLayers, config.encoder_config),
            mlm_head=partial(MLMHead, config.encoder_config),
            random_input_shuffling=config.random_input_shuffling,
            linear_map=self.new_map,
        )
        return nn.ModuleDict(
            {name: objective_class(name)(settings, parts) for name, settings in config.objectives.items()}
        )

    @torch.no_grad()
    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embeddings; objectives keep weights of known tokens, and start new ones from the table."""
        super().set_input_embeddings(value)
        table: Any = value.weight
        trained = self.objectives.state_dict()
        self.objectives = self._new_objectives().to(table.device, table.dtype).train(self.training)
        for name, weight in self.objectives.state_dict().items():
            if weight.shape == trained[name].shape:
                weight.copy_(trained[name])
            else:
                known = min(len(weight), len(trained[name]))
                weight[:known] = trained[name][:known]
                weight[known:] = table[known:] if weight.ndim == 2 else 0

    @classmethod
    def _around(
        cls, encoder: PreTrainedModel, config: Any, source: str | None, hub: Mapping[str, Any], tokenizer: Any = None
    ) -> Self:
        """Add the special tokens, which objectives with masking need, to the config."""
        if config.needs.mask_token:
            config = config.copied(**token_ids(tokenizer or load_tokenizer(str(source), **hub)))
        return super()._around(encoder, config, source, hub, tokenizer)

    def start_weights(self, names: Collection[str]) -> None:
        """Initialize the objectives of these weights from the encoder and the checkpoint's own MLM head."""
        starting = {name.split(".")[1] for name in names if name.startswith("objectives.")}
        objectives = [objective for name, objective in self.objectives.items() if name in starting]
        if not objectives:
            return
        masks, config = any(objective.needs.mask_token for objective in objectives), self.config
        head = load_mlm_head(str(self._source), self._hub) if masks else plain_head(config.encoder_config)
        start = PretrainedWeights(self.encoder, self.backbone.word_embeddings.weight, head, config.mask_token_id or 0)
        for objective in objectives:
            objective.start(start)

    def load_matching(self, earlier: Mapping[str, Any], heads: Mapping[str, Tensor]) -> None:
        """Load the heads that this model shares with an earlier stage, and what the sentence encoder shares."""
        super().load_matching(earlier, heads)
        if objectives := earlier.get("objectives"):  # not of an export
            load_matching_heads(self.objectives, self.config.objectives, objectives, heads)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MLMHead):
            init.zeros_(module.bias)
        elif isinstance(module, Objective):
            tensors = dict(module.named_parameters(recurse=False)) | dict(module.named_buffers(recurse=False))
            for name, value in module.initial_tensors().items():
                init.copy_(tensors[name], value)

    @can_return_tuple
    def forward(  # pairs in training, single sentences at inference
        self,
        source_input_ids: Tensor,
        source_attention_mask: Tensor,
        target_input_ids: Tensor,
        target_attention_mask: Tensor,
        *,
        cached: CachedBatch | None = None,
        **batch: Tensor | None,
    ) -> Any:
        """Compute the losses of a batch of N pairs.

        Optional: ``language_ids`` (2N: all sources, then all targets); a teacher's embeddings (N × d), named by
        objective and side, such as ``distillation_teacher_target``; for objectives over words, ``source_words`` and
        ``target_words`` (the word number of each token, -1 for none) and ``links`` (N × L × 2 word numbers of
        translations, padded with -1); for mined negatives of a side, such as the target, ``target_negative_input_ids``,
        ``target_negative_attention_mask`` and ``target_negative_rows`` (the pair of each, ascending).

        With ``cached``, compute a chunk of a larger batch: the gradients of the larger batch's sentence losses
        enter through the chunk's embeddings and the objectives' own weights, and token losses are divided by the counts
        of the larger batch.
        """
        batch |= {"source_input_ids": source_input_ids, "source_attention_mask": source_attention_mask}
        batch |= {"target_input_ids": target_input_ids, "target_attention_mask": target_attention_mask}
        encoded = self.encode_pairs({name: values for name, values in batch.items() if values is not None})
        if cached is None:
            total, losses = self.sentence_loss(encoded.sentences, batch)
            counts = {
                name: [sum_over_processes(part.count) for part in parts] for name, parts in encoded.sampled.items()
            }
        else:
            embeddings = torch.cat([*encoded.sentences.trained().values()])
            total, losses, counts = (embeddings * cached.gradients).sum(), {}, cached.counts
            for name, gradient in cached.weights.items():
                total = total + (self.objectives.get_parameter(name) * gradient).sum()
        for name, parts in encoded.sampled.items():
            sums = [self.objectives[name].token_loss(encoded.tokens, encoded.states, part) for part in parts]
            means = [mean_over_processes(total, count) for total, count in zip(sums, counts[name], strict=True)]
            loss = torch.stack(means).mean()
            total = total + self.config.objectives[name].weight * loss
            losses[name] = losses.get(name, 0) + loss.detach()
        return AlignmentOutput(loss=total, losses={name: losses[name] for name in self.objectives if name in losses})

    def sentence_pairs(self, batch: Mapping[str, Any]) -> SentencePairs:
        """Embed both sides of a batch of ``forward``."""
        return self.encode_pairs(batch).sentences

    def train_critics(self, batch: Mapping[str, Any], learning_rate: float) -> Mapping[str, Any]:
        """Train the critics of objectives on a batch; return the batch for ``forward``."""
        for objective in self.objectives.values():
            objective.train_critic(partial(self.sentence_pairs, batch), learning_rate)
        return batch

    def end_step(self) -> None:
        """Update momentum encoders and queues; call this once after each optimizer step, as AlignmentTrainer does."""
        for objective in self.objectives.values():
            objective.end_step(self.encoder)

    def sentence_loss(self, pairs: SentencePairs, batch: Mapping[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weighted sum of the sentence losses, and each unweighted loss by name, without its gradient."""
        losses = sentence_losses(self.objectives, pairs, batch)
        total = sum(
            (self.config.objectives[name].weight * loss for name, loss in losses.items()), pairs.source.new_zeros(())
        )
        return total, {name: loss.detach() for name, loss in losses.items()}

    def encode_pairs(self, batch: Mapping[str, Tensor]) -> EncodedPairs:
        """Encode a batch of ``forward``; random choices precede the encoder, so that a second pass can repeat them."""
        if self.config.random_input_shuffling:
            batch = shuffle_sides(batch)
        ids, masks = ((batch[f"source_{what}"], batch[f"target_{what}"]) for what in ("input_ids", "attention_mask"))
        packed = pack(ids, masks)
        source_identity, target_identity = map(hash_sentences, ids, masks)
        language_ids, links = batch.get("language_ids"), None
        if "links" in batch:
            words = (batch["source_words"], batch["target_words"])
            flat = torch.cat([side[mask.bool()] for side, mask in zip(words, masks, strict=True)])
            links = WordLinks(flat[packed.token_order], batch["links"])
        pairs = PairTokens(packed, target_identity, language_ids, max(side.shape[1] for side in ids), links)
        sampled = {
            name: objective.sample(pairs)
            for name, objective in self.objectives.items()
            if isinstance(objective, TokenObjective)
        }
        states, vectors = self._encode_needed(packed, language_ids)
        source, target = vectors.chunk(2)
        sentences = SentencePairs(
            source=source,
            target=target,
            source_identity=source_identity,
            target_identity=target_identity,
            momentum_target=self._momentum_target(packed),
            **self._negatives(batch, source[:0]),
        )
        return EncodedPairs(sentences, pairs, states, sampled)

    def _encode_needed(self, packed: PackedSentences, language_ids: Tensor | None) -> tuple[TokenStates, Tensor]:
        """Return the hidden states that objectives read, and 2N × d embeddings: zero for sides that no objective reads.

        With [CLS] pooling, the last layer computes only [CLS] of sentences whose other hidden states are not read.
        """
        objectives = [*self.objectives.values()]
        states_read = frozenset[str]().union(*(objective.states_read for objective in objectives))
        sides = states_read.union(*(objective.needs.embeddings for objective in objectives))
        words = self.backbone.word_embeddings.weight
        if not sides:
            none = torch.empty_like(packed.first_tokens[:0])
            empty = words.new_zeros(len(packed.lengths), words.shape[1])
            return TokenStates(packed, empty[:0], none, self._encode, words, empty), empty
        part, extra = packed, self._language_vectors(packed, language_ids)
        rows = torch.tensor(["source" in sides, "target" in sides], device=words.device)
        rows = rows.repeat_interleave(len(packed.lengths) // 2)
        if len(sides) == 1:
            part, extra = packed.select(rows), None if extra is None else extra[packed.token_mask(rows)]
        tokens = None
        if self.config.pooling == "cls" and not sides <= states_read:
            tokens = _tokens_read(part, states_read)
        layers = frozenset[int]().union(*(objective.layers_read for objective in objectives))
        if layers:
            depth = len(self.backbone.layers)
            of_layers, tokens = self.backbone.encode_layers(part, layers | {depth}, extra), None
            hidden = of_layers[depth]
        else:
            hidden, of_layers = self.backbone.encode(part, None, tokens, extra), {}
        states = TokenStates(part, hidden, tokens, self._encode, words, hidden[:0], of_layers)
        vectors = self._sentence_vectors(states)
        if part is packed:
            return replace(states, embeddings=vectors), vectors
        indices = packed.token_mask(rows).nonzero().squeeze(1)
        both = vectors.new_zeros(len(packed.lengths), vectors.shape[1])
        both = both.index_copy(0, rows.nonzero().squeeze(1), vectors)
        read = indices if tokens is None else indices[tokens]
        return replace(states, packed=packed, tokens=read, embeddings=both), both

    def _negatives(self, batch: Mapping[str, Tensor], none: Tensor) -> dict[str, Any]:
        """Embed the mined negatives of the sides that objectives read; ``none`` (0 × d) if the batch has none.

        ``none`` has a gradient, so that all processes run the same backward passes of ``gather_rows``.
        """
        negatives: dict[str, Any] = {}
        for side in self.config.hard_negatives:
            if f"{side}_negative_input_ids" not in batch:
                raise ModelError(f"hard_negatives need {side}_negative_input_ids: use PairCollator(negatives=…)")
            ids, mask, rows = (batch[f"{side}_negative_{what}"] for what in ("input_ids", "attention_mask", "rows"))
            vectors = none
            if len(ids):
                packed, languages = pack([ids], [mask]), batch.get("language_ids")
                if languages is not None:
                    languages = languages.chunk(2)[SIDES.index(side)][rows]
                hidden = self.backbone.encode(packed, extra_embeddings=self._language_vectors(packed, languages))
                vectors = pool(hidden, packed, self.config.pooling)[packed.restore]
                vectors = self._finish(vectors if self.training_mlp is None else self.training_mlp(vectors))
            negatives[f"{side}_negatives"] = vectors
            negatives[f"{side}_negative_identity"] = hash_sentences(ids, mask)
            # Rows ascend: the number of a negative counts from the first one of its pair.
            negatives[f"{side}_negative_number"] = torch.arange(len(rows), device=rows.device) - torch.searchsorted(
                rows, rows
            )
        return negatives

    @torch.no_grad()
    def _momentum_target(self, packed: PackedSentences) -> Tensor | None:
        """Embed the targets by the momentum encoder; None if no objective has one."""
        objective = next((each for each in self.objectives.values() if each.needs.momentum_encoder), None)
        if objective is None:
            return None
        count = len(packed.lengths)
        targets = packed.select(torch.arange(count, device=packed.lengths.device) >= count // 2)
        own = View(self.default_layer, self.config.pooling)
        return self._embed_with(backbone_of(objective.key_encoder), targets, own)

    def _sentence_vectors(self, states: TokenStates) -> Tensor:
        packed = states.packed
        first = self.config.pooling == "cls"
        vectors = states.at(packed.first_tokens) if first else pool(states.states, packed, self.config.pooling)
        vectors = vectors[packed.restore]
        return self._finish(vectors if self.training_mlp is None else self.training_mlp(vectors))

    def _encode(self, packed: PackedSentences, tokens: Tensor | None, language_ids: Tensor | None) -> Tensor:
        extra = self.language_embeddings(cast(Tensor, language_ids)) if self.config.languages else None
        return self.backbone.encode(packed, tokens=tokens, extra_embeddings=extra)


def _tokens_read(packed: PackedSentences, sides: frozenset[str]) -> Tensor:
    """Return the ascending indices of [CLS] of every sentence and of all tokens of one side."""
    if not sides:
        return packed.first_tokens
    count = len(packed.lengths) // 2
    selected = torch.zeros_like(packed.lengths, dtype=torch.bool)
    selected[packed.restore[:count] if "source" in sides else packed.restore[count:]] = True
    read = torch.repeat_interleave(selected, packed.lengths)
    read[packed.first_tokens] = True
    return read.nonzero().squeeze(1)


class AlignmentForSentenceEmbedding(SentenceEncoder):
    """The encoder and its pooling after training with any objectives."""

    config_class = AlignmentConfig
