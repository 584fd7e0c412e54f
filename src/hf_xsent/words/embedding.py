"""Align words by the similarity of standardized hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from hf_xsent.data.words.links import Link, best_first
from hf_xsent.data.words.splitting import Words, offsets_after_prompt, pieces_of_natural_text, words_of_pieces
from hf_xsent.errors import DataError, ModelError, shortened
from hf_xsent.models.batching import batches_by_length, pad_rows, usual_tokens
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.families import family
from hf_xsent.models.loading import check_ids, check_offsets
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.tensors.packing import pack, unpack
from hf_xsent.tensors.word_grid import standardize_pairs
from hf_xsent.words.posteriors import link_posteriors

if TYPE_CHECKING:
    from typing_extensions import Self

THRESHOLD = 0.3


class EmbeddingAligner:
    """An aligner that compares the hidden states of word pieces in a middle layer.

    Two words are linked if the score of two of their pieces is at least ``threshold``: the geometric mean of the
    link's posteriors under two hidden Markov models, one for each direction (`link_posteriors`). A higher threshold
    gives fewer and more precise links. Hidden states are standardized, and the model's default prompt precedes each
    sentence, as in training.
    """

    def __init__(
        self,
        model: SentenceEncoder,
        tokenizer: PreTrainedTokenizerBase,
        layer: int | None = None,
        threshold: float = THRESHOLD,
    ) -> None:
        check_offsets(tokenizer)
        depth = len(model.backbone.layers)
        self.layer = round(0.6 * depth) if layer is None else layer
        if self.layer > depth:
            raise ModelError(f"layer {layer} does not exist: this encoder has layers 0 (embeddings) to {depth}")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.threshold = threshold
        self.prompt: str = model.config.default_prompt
        self.tokens_per_batch = usual_tokens(model.device)
        self.max_length = family(model.config.encoder_config).max_length(model.config.encoder_config)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str,
        layer: int | None = None,
        threshold: float = THRESHOLD,
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
        return cls(embedder.model, embedder.tokenizer, layer, threshold)

    @property
    def identity(self) -> tuple[Any, ...]:
        """All that decides the links besides sentences and weights."""
        return ("posteriors", self.layer, self.threshold, self.prompt, str(self.model.dtype))

    @torch.inference_mode()
    def align(self, sources: Sequence[Words], targets: Sequence[Words]) -> list[list[Link]]:
        """Return the links of each pair; batch pairs of similar length."""
        if not sources:
            return []
        sides = [_Pieces(self.tokenizer, side, self.max_length, self.prompt) for side in (sources, targets)]
        for side in sides:
            check_ids(side.ids, self.tokenizer, self.model.config.encoder_config)
        links: list[list[Link]] = [[] for _ in sources]
        with_words = [row for row, words in enumerate(zip(*(side.words for side in sides), strict=True)) if all(words)]
        lengths = [2 * max(len(side.ids[row]) for side in sides) for row in with_words]
        for batch in batches_by_length(lengths, self.tokens_per_batch):
            rows = [with_words[number] for number in batch]
            scores = self._score(sides, rows)
            if not scores.isfinite().all():
                text = sources[rows[int((~scores.isfinite()).nonzero()[0, 0])]].text
                raise DataError(
                    f"the hidden states of {shortened(text)} or of its translation are not finite in "
                    f"{self.model.dtype}: the weights may be damaged or, in float16, too large: use float32"
                )
            linked = scores >= self.threshold
            of_links: list[dict[Link, float]] = [{} for _ in rows]
            for (number, source, target), score in zip(linked.nonzero().tolist(), scores[linked].tolist(), strict=True):
                for i in sides[0].words[rows[number]][source]:
                    for j in sides[1].words[rows[number]][target]:
                        of_links[number][i, j] = max(score, of_links[number].get((i, j), 0.0))
            for row, scores_of_links in zip(rows, of_links, strict=True):
                links[row] = best_first(scores_of_links)
        return links

    def _score(self, sides: Sequence[_Pieces], rows: list[int]) -> Tensor:
        """Return the N × S × T scores of links between the pieces of words; 0 for padding."""
        padded = pad_rows([side.ids[row] for side in sides for row in rows])
        ids, mask = (tensor.to(self.model.device) for tensor in padded)
        packed = pack([ids], [mask.long()])
        states = unpack(standardize_pairs(self.model.backbone.encode(packed, self.layer), packed), packed, mask)
        vectors, masks = [], []
        for side, of_side in zip(sides, F.normalize(states, dim=-1).chunk(2), strict=True):
            places, is_piece = pad_rows([side.pieces_of_words[row] for row in rows])
            vectors.append(of_side[torch.arange(len(rows))[:, None], places])
            masks.append(is_piece.to(of_side.device))
        return link_posteriors(vectors[0] @ vectors[1].transpose(1, 2), *masks)


class _Pieces:
    """The word pieces of sentences, those that belong to words, and the words of each of these."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Words], max_length: int, prompt: str
    ) -> None:
        texts = [prompt + words.text for words in sentences]
        encoded = tokenizer(texts, truncation=True, max_length=max_length, return_offsets_mapping=True)
        self.ids: list[list[int]] = []
        self.pieces_of_words: list[list[int]] = []
        self.words: list[list[range]] = []
        for words, ids, of_text in zip(sentences, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            offsets = offsets_after_prompt(of_text, prompt)
            pieces = pieces_of_natural_text(words.text, offsets)
            of_pieces = words_of_pieces(words, [offsets[piece] for piece in pieces])
            self.ids.append([ids[piece] for piece in pieces])
            self.pieces_of_words.append([place for place, numbers in enumerate(of_pieces) if numbers])
            self.words.append([numbers for numbers in of_pieces if numbers])
