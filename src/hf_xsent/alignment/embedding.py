"""Word links from the similarity of an encoder's states (SimAlign, Jalili Sabet et al., 2020); nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from hf_xsent.data.words.links import Link, best_first
from hf_xsent.data.words.splitting import Words, words_of_pieces
from hf_xsent.errors import ModelError
from hf_xsent.models.batching import batches_by_length, pad_rows
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.families import family
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.tensors.packing import pack, unpack

if TYPE_CHECKING:
    from typing_extensions import Self

_SECOND_CHOICE = 0.9  # what a similarity to a piece that is linked already is worth in the second round


class EmbeddingAligner:
    """Links pieces that are each other's most similar, in a middle layer, and with them the words around them.

    The method ``itermax`` lets the pieces that are left find each other in a second round, ``argmax`` does not.
    """

    learns = False

    def __init__(
        self,
        model: SentenceEncoder,
        tokenizer: PreTrainedTokenizerBase,
        layer: int | None = None,
        method: str = "itermax",
        tokens_per_batch: int = 8192,
    ) -> None:
        depth = len(model.backbone.layers)
        self.layer = round(0.6 * depth) if layer is None else layer
        if not 0 <= self.layer <= depth:
            raise ModelError(f"layer {layer} does not exist: this encoder has layers 0 (embeddings) to {depth}")
        if not tokenizer.is_fast:
            raise ModelError("aligning words needs a fast tokenizer, which tells where in the text its pieces stand")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.rounds = {"argmax": 1, "itermax": 2}[method]
        self.tokens_per_batch = tokens_per_batch
        self.longest = family(model.config.encoder_config).max_length(model.config.encoder_config)

    @classmethod
    def from_pretrained(
        cls, name_or_path: str, layer: int | None = None, method: str = "itermax", device: str | None = None
    ) -> Self:
        """Open any supported encoder."""
        embedder = SentenceEmbedder.from_pretrained(name_or_path, device=device)
        if embedder.model.config.languages:
            raise ModelError(f"{name_or_path!r} has language embeddings, which aligners do not pass: use another model")
        return cls(embedder.model, embedder.tokenizer, layer, method)

    @torch.inference_mode()
    def align(self, sources: Sequence[Words], targets: Sequence[Words]) -> list[list[Link]]:
        """The links of each pair; pairs of like length are computed together."""
        if not sources:
            return []
        sides = [_Pieces(self.tokenizer, side, self.longest) for side in (sources, targets)]
        links: list[list[Link]] = [[] for _ in sources]
        lengths = [2 * max(len(a), len(b)) for a, b in zip(sides[0].ids, sides[1].ids, strict=True)]
        for rows in batches_by_length(lengths, self.tokens_per_batch):
            similarities, there = self._similarities(sides, rows)
            linked = mutual_links(similarities, there, self.rounds)
            pair, *places = (one.tolist() for one in linked.nonzero().T)
            found: list[dict[Link, float]] = [{} for _ in rows]
            scores = similarities[linked].tolist()
            for number, source, target, score in zip(pair, *places, scores, strict=True):
                for i in sides[0].words[rows[number]][source]:
                    for j in sides[1].words[rows[number]][target]:
                        found[number][i, j] = max(score, found[number].get((i, j), -1.0))
            for row, some in zip(rows, found, strict=True):
                links[row] = best_first(some)
        return links

    def _similarities(self, sides: Sequence[_Pieces], rows: list[int]) -> tuple[Tensor, Tensor]:
        """Cosines of all source with all target pieces of each pair, N × S × T, and which of them are of words."""
        ids = [side.ids[row] for side in sides for row in rows]
        of_words = [[len(some) > 0 for some in side.words[row]] for side in sides for row in rows]
        (padded, mask), (kept, _) = pad_rows(ids), pad_rows(of_words)
        padded, mask, kept = (one.to(self.model.device) for one in (padded, mask.long(), kept.bool()))
        packed = pack([padded], [mask])
        states = F.normalize(self.model.backbone.encode(packed, self.layer).float(), dim=-1)
        source, target = unpack(states, packed, mask).chunk(2)
        there = kept[: len(rows), :, None] & kept[len(rows) :, None]
        return source @ target.transpose(1, 2), there


class _Pieces:
    """The word pieces of sentences, and the words that each is of."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Words], longest: int) -> None:
        texts = [words.text for words in sentences]
        encoded = tokenizer(texts, truncation=True, max_length=longest, return_offsets_mapping=True)
        self.ids: list[list[int]] = encoded["input_ids"]
        self.words = [
            words_of_pieces(words, offsets) for words, offsets in zip(sentences, encoded["offset_mapping"], strict=True)
        ]


def mutual_links(similarities: Tensor, there: Tensor, rounds: int) -> Tensor:
    """N × S × T flags: each is the other's most similar; in later rounds, among those that are still without a link."""
    linked = torch.zeros_like(there)
    for _ in range(rounds):
        free = [~linked.any(axis, keepdim=True) for axis in (2, 1)]
        worth = _SECOND_CHOICE * (free[0].float() + free[1].float())
        scores = (similarities * worth.clamp(max=1)).masked_fill(~there, -torch.inf)
        best = (scores == scores.amax(1, keepdim=True)) & (scores == scores.amax(2, keepdim=True))
        linked = linked | (best & there & free[0] & free[1])
    return linked
