"""WACSE's supervision by word links: aligned word prediction (AWP) and word translation ranking (WTR)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hf_xsent.objectives.masked_language import MaskedRows
from hf_xsent.objectives.pairs import Draw, PairTokens, TokenObjective, TokenStates


@dataclass(frozen=True)
class BatchWords:
    """The W words of a batch, sentence after sentence, all sources before all targets."""

    pieces: Tensor  # P: packed numbers of the tokens that are pieces of words, word after word
    word_of_piece: Tensor  # P
    sentence: Tensor  # W: the caller's number of each word's sentence
    first_piece: Tensor  # W: where a word's pieces start
    lengths: Tensor  # W: how many pieces each has
    first_word: Tensor  # 2N: where a sentence's words start


@dataclass(frozen=True)
class Translations:
    """The dictionaries WA of all pairs in both directions (eq. 3): M words, each with its one translation."""

    words: Tensor  # M, ascending
    translations: Tensor  # M


def words_and_translations(pairs: PairTokens) -> tuple[BatchWords, Translations]:
    """The words of which some piece is there, and their links; of several links of a word its first counts."""
    packed, given = pairs.packed, pairs.word_links
    if given is None:
        raise TypeError("objectives over words need word_links: pass source_words, target_words and links")
    count, device = len(packed.lengths), packed.lengths.device
    width = int(given.words.max()) + 1 if len(given.words) else 1
    sentence = torch.repeat_interleave(packed.restore.argsort(), packed.lengths)
    keys = torch.where(given.words >= 0, sentence * max(width, 1) + given.words, -1)
    pieces = keys.argsort(stable=True)[(keys < 0).sum() :]
    found, word_of_piece, lengths = torch.unique_consecutive(keys[pieces], return_inverse=True, return_counts=True)
    of_sentence = found // max(width, 1)
    words = BatchWords(
        pieces=pieces,
        word_of_piece=word_of_piece,
        sentence=of_sentence,
        first_piece=lengths.cumsum(0) - lengths,
        lengths=lengths,
        first_word=torch.searchsorted(of_sentence, torch.arange(count, device=device)),
    )
    pair, place = (given.links >= 0).all(2).nonzero().T
    ends = []
    for side in range(2):
        number = given.links[pair, place, side]
        key = (pair + side * (count // 2)) * max(width, 1) + number
        end = torch.searchsorted(found, key).clamp_max(max(len(found) - 1, 0))
        there = (number < width) & (found[end] == key) if len(found) else torch.zeros_like(key, dtype=torch.bool)
        ends.append(torch.where(there, end, -1))
    source, target = torch.stack(ends)[:, (torch.stack(ends) >= 0).all(0)]
    asking, answering = torch.cat((source, target)), torch.cat((target, source))
    order = asking.argsort(stable=True)
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = asking[order][1:] != asking[order][:-1]
    return words, Translations(asking[order[first]], answering[order[first]])


class AlignedWordPrediction(TokenObjective):
    """AWP: every linked word is masked, and its places predict the pieces of its translation (eq. 4 and 5).

    Where the two differ in length the longer is clipped. With a ``share`` below 1 each sentence is masked with that
    probability only, and the loss stays right on average.
    """

    def __init__(self, head: nn.Module, mask_id: int, share: float = 1.0) -> None:
        super().__init__()
        self.head = head
        self.mask_id = mask_id
        self.share = share

    def draw(self, pairs: PairTokens) -> Sequence[Draw]:
        """Mask; only the sentences with a masked word are encoded anew."""
        packed = pairs.packed
        words, links = words_and_translations(pairs)
        asking, answering = links.words, links.translations
        if self.share < 1:
            drawn = torch.rand(len(packed.lengths), device=asking.device) < self.share
            kept = drawn[words.sentence[asking]]
            asking, answering = asking[kept], answering[kept]
        masked = torch.zeros_like(words.lengths, dtype=torch.bool)
        masked[asking] = True
        ids = packed.input_ids.clone()
        ids[words.pieces[masked[words.word_of_piece]]] = self.mask_id
        sentences = torch.zeros_like(packed.lengths, dtype=torch.bool)
        sentences[words.sentence[asking]] = True

        lengths = torch.minimum(words.lengths[asking], words.lengths[answering])
        link = torch.repeat_interleave(lengths)
        offset = torch.arange(len(link), device=link.device) - (lengths.cumsum(0) - lengths)[link]
        place, answer = (words.pieces[words.first_piece[end[link]] + offset] for end in (asking, answering))
        encoded = packed.whole(sentences)
        wanted, order = (encoded.cumsum(0) - 1)[place].sort()
        languages = pairs.languages_of_tokens()
        rows = MaskedRows(
            packed=packed.with_ids(ids).only(sentences),
            wanted=wanted,
            labels=packed.input_ids[answer[order]],
            language_ids=None if languages is None else languages[encoded],
        )
        return (Draw(rows, torch.tensor(self.share * len(packed.lengths), device=wanted.device)),)

    def forward(self, pairs: PairTokens, states: TokenStates, draw: Draw) -> Tensor:
        """The summed cross entropy of all pieces of all translations, from another pass through the encoder."""
        rows: MaskedRows = draw.rows
        masked = states.states[:0]  # a batch without links trains nothing here, but every weight takes part
        if len(rows.wanted):
            masked = states.encode(rows.packed, rows.wanted, rows.language_ids)
        loss: Tensor = self.head(masked, rows.labels, states.word_embeddings)
        return loss


@dataclass(frozen=True)
class RankingRows:
    """What WTR compares."""

    words: BatchWords
    links: Translations


class WordTranslationRanking(TokenObjective):
    """WTR: each linked word picks its translation among all words of the other sentence (eq. 6 to 8).

    Two words are as similar as their pieces are on average, each with each.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = temperature

    @property
    def reads(self) -> frozenset[str]:
        """The sides whose token states are needed."""
        return frozenset(("source", "target"))

    def draw(self, pairs: PairTokens) -> Sequence[Draw]:
        """Nothing is left to chance."""
        count = torch.tensor(len(pairs.packed.lengths), device=pairs.packed.lengths.device)
        return (Draw(RankingRows(*words_and_translations(pairs)), count),)

    def forward(self, pairs: PairTokens, states: TokenStates, draw: Draw) -> Tensor:
        """The sum over the linked words of both sides."""
        words, links = draw.rows.words, draw.rows.links
        if not len(links.words):
            return states.states.sum() * 0
        with torch.autocast(states.states.device.type, enabled=False):
            return self._ranking(states.at(words.pieces), words, links)

    def _ranking(self, pieces: Tensor, words: BatchWords, links: Translations) -> Tensor:
        """Words as the means of their pieces' directions, whose products are the mean cosines of all piece pairs."""
        pieces = F.normalize(pieces if pieces.dtype == torch.float64 else pieces.float(), dim=-1)
        vectors = pieces.new_zeros(len(words.lengths), pieces.shape[1]).index_add(0, words.word_of_piece, pieces)
        vectors = vectors / words.lengths[:, None]

        half = len(words.first_word) // 2
        pair = words.sentence % half
        linked = torch.zeros_like(words.first_word[:half], dtype=torch.bool)
        linked[pair[links.words]] = True
        row = linked.cumsum(0) - 1
        place = torch.arange(len(pair), device=pair.device) - words.first_word[words.sentence]
        some = linked[pair].nonzero().squeeze(1)
        width = int(place[some].max()) + 1
        grid = vectors.new_zeros(2, int(row[-1]) + 1, width, vectors.shape[1])
        where = (words.sentence // half, row[pair], place)
        grid = grid.index_put(tuple(one[some] for one in where), vectors[some])
        there = torch.zeros(grid.shape[:3], dtype=torch.bool, device=grid.device)
        there[tuple(one[some] for one in where)] = True

        cosines = grid[0] @ grid[1].transpose(1, 2)
        scores = torch.stack((cosines, cosines.transpose(1, 2))) / self.temperature
        scores = scores.masked_fill(~there.flip(0)[:, :, None], -torch.inf)
        asking = tuple(one[links.words] for one in where)
        return F.cross_entropy(scores[asking], place[links.translations], reduction="sum")
