"""Align words by the similarity of standardized hidden states, after SimAlign (Jalili Sabet et al., 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from hf_xsent.data.words.links import Link, best_first
from hf_xsent.data.words.splitting import Words, offsets_after_prompt, pieces_of_natural_text, words_of_pieces
from hf_xsent.errors import ModelError
from hf_xsent.models.batching import batches_by_length, pad_rows
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.families import family
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.tensors.packing import pack, unpack
from hf_xsent.tensors.word_grid import standardize_pairs

if TYPE_CHECKING:
    from typing_extensions import Self

_LINKED_FACTOR = 0.9  # round two: factor of similarities with one linked piece (0 with two), which only outrank links


class EmbeddingAligner:
    """An aligner that links words whose pieces are mutual nearest neighbours in a middle layer.

    The method ``itermax`` links the remaining pieces in a second round, ``argmax`` does not. Unlike in SimAlign, hidden
    states are standardized, and a linked piece gets no second link: both lower the alignment error rate
    (benchmarks/README.md, word alignment). The model's default prompt precedes each sentence, as in training.
    """

    needs_all_pairs = False

    def __init__(
        self,
        model: SentenceEncoder,
        tokenizer: PreTrainedTokenizerBase,
        layer: int | None = None,
        method: str = "itermax",
    ) -> None:
        depth = len(model.backbone.layers)
        self.layer = round(0.6 * depth) if layer is None else layer
        if not 0 <= self.layer <= depth:
            raise ModelError(f"layer {layer} does not exist: this encoder has layers 0 (embeddings) to {depth}")
        if not tokenizer.is_fast:
            raise ModelError("aligning words needs the offsets of word pieces: use a model with a fast tokenizer")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.rounds = {"argmax": 1, "itermax": 2}[method]
        self.prompt: str = model.config.default_prompt
        self.tokens_per_batch = 8192
        self.max_length = family(model.config.encoder_config).max_length(model.config.encoder_config)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str,
        layer: int | None = None,
        method: str = "itermax",
        device: str | None = None,
        precision: str = "float32",
    ) -> Self:
        """Load any supported encoder that has no language embeddings."""
        embedder = SentenceEmbedder.from_pretrained(name_or_path, precision=precision, device=device)
        if embedder.model.config.languages:
            raise ModelError(
                f"{name_or_path!r} has language embeddings, which the embedding aligner does not support: use another "
                "model"
            )
        return cls(embedder.model, embedder.tokenizer, layer, method)

    @torch.inference_mode()
    def align(self, sources: Sequence[Words], targets: Sequence[Words]) -> list[list[Link]]:
        """Return the links of each pair; batch pairs of similar length."""
        if not sources:
            return []
        sides = [_Pieces(self.tokenizer, side, self.max_length, self.prompt) for side in (sources, targets)]
        links: list[list[Link]] = [[] for _ in sources]
        lengths = [2 * max(len(a), len(b)) for a, b in zip(sides[0].ids, sides[1].ids, strict=True)]
        for rows in batches_by_length(lengths, self.tokens_per_batch):
            similarities, is_pair = self._similarities(sides, rows)
            linked = mutual_links(similarities, is_pair, self.rounds)
            found: list[dict[Link, float]] = [{} for _ in rows]
            scores = similarities[linked].tolist()
            for (number, source, target), score in zip(linked.nonzero().tolist(), scores, strict=True):
                for i in sides[0].words[rows[number]][source]:
                    for j in sides[1].words[rows[number]][target]:
                        found[number][i, j] = max(score, found[number].get((i, j), -1.0))
            for row, of_pair in zip(rows, found, strict=True):
                links[row] = best_first(of_pair)
        return links

    def _similarities(self, sides: Sequence[_Pieces], rows: list[int]) -> tuple[Tensor, Tensor]:
        """Return N × S × T cosines of source and target pieces, and a mask that is true where both belong to words."""
        ids = [side.ids[row] for side in sides for row in rows]
        of_words = [[len(words) > 0 for words in side.words[row]] for side in sides for row in rows]
        (padded, mask), (in_word, _) = pad_rows(ids), pad_rows(of_words)
        padded, mask, in_word = (one.to(self.model.device) for one in (padded, mask.long(), in_word.bool()))
        packed = pack([padded], [mask])
        states = standardize_pairs(self.model.backbone.encode(packed, self.layer), packed)
        source, target = unpack(F.normalize(states, dim=-1), packed, mask).chunk(2)
        return source @ target.transpose(1, 2), in_word[: len(rows), :, None] & in_word[len(rows) :, None]


class _Pieces:
    """The word pieces of sentences, and the words that each belongs to."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Words], max_length: int, prompt: str
    ) -> None:
        texts = [prompt + words.text for words in sentences]
        encoded = tokenizer(texts, truncation=True, max_length=max_length, return_offsets_mapping=True)
        self.ids: list[list[int]] = []
        self.words: list[list[range]] = []
        for words, ids, of_text in zip(sentences, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            offsets = offsets_after_prompt(of_text, prompt)
            pieces = pieces_of_natural_text(words.text, offsets)
            self.ids.append([ids[piece] for piece in pieces])
            self.words.append(words_of_pieces(words, [offsets[piece] for piece in pieces]))


def mutual_links(similarities: Tensor, is_pair: Tensor, rounds: int) -> Tensor:
    """Return N × S × T flags of mutual nearest neighbours; later rounds link pieces that have no link yet."""
    linked = torch.zeros_like(is_pair)
    for _ in range(rounds):
        free = [~linked.any(axis, keepdim=True) for axis in (2, 1)]
        factor = _LINKED_FACTOR * (free[0].float() + free[1].float())
        scores = (similarities * factor.clamp(max=1)).masked_fill(~is_pair, -torch.inf)
        best = (scores == scores.amax(1, keepdim=True)) & (scores == scores.amax(2, keepdim=True))
        linked = linked | (best & is_pair & free[0] & free[1])
    return linked
