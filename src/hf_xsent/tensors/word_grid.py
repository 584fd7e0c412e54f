"""Find the words and word links of a packed batch, and arrange words in a grid for matrix products."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.tensors.packing import PackedSentences


@dataclass(frozen=True)
class WordLinks:
    """The word of each token, and the linked words of each pair."""

    words: Tensor  # T: index of each packed token's word in its sentence; -1: none
    links: Tensor  # N × L × 2: indices of a source and a target word, best link of a word first; padded with -1


@dataclass(frozen=True)
class BatchWords:
    """The W words of a batch, sentence after sentence, all sources before all targets."""

    pieces: Tensor  # P: packed indices of the tokens of all words, word after word
    word_of_piece: Tensor  # P
    sentence: Tensor  # W: the caller's index of each word's sentence
    first_piece: Tensor  # W: where a word's pieces start
    lengths: Tensor  # W: number of pieces
    first_word: Tensor  # 2N: where a sentence's words start


@dataclass(frozen=True)
class LinkedWords:
    """The links of all pairs in both directions (WACSE eq. 3): M words, each with its one translation."""

    words: Tensor  # M, ascending
    translations: Tensor  # M


def linked_words(packed: PackedSentences, word_links: WordLinks) -> tuple[BatchWords, LinkedWords]:
    """Find the words that are not truncated completely, and the first link of each."""
    count, device = len(packed.lengths), packed.lengths.device
    width = max(int(word_links.words.max()) + 1 if len(word_links.words) else 1, 1)
    sentence = torch.repeat_interleave(packed.restore.argsort(), packed.lengths)
    keys = torch.where(word_links.words >= 0, sentence * width + word_links.words, -1)
    pieces = keys.argsort(stable=True)[(keys < 0).sum() :]
    word_keys, word_of_piece, lengths = torch.unique_consecutive(keys[pieces], return_inverse=True, return_counts=True)
    of_sentence = word_keys // width
    words = BatchWords(
        pieces=pieces,
        word_of_piece=word_of_piece,
        sentence=of_sentence,
        first_piece=lengths.cumsum(0) - lengths,
        lengths=lengths,
        first_word=torch.searchsorted(of_sentence, torch.arange(count, device=device)),
    )
    pair, place = (word_links.links >= 0).all(2).nonzero().T
    ends = []
    for side in range(2):
        number = word_links.links[pair, place, side]
        key = (pair + side * (count // 2)) * width + number
        end = torch.searchsorted(word_keys, key).clamp_max(max(len(word_keys) - 1, 0))
        exists = (
            (number < width) & (word_keys[end] == key) if len(word_keys) else torch.zeros_like(key, dtype=torch.bool)
        )
        ends.append(torch.where(exists, end, -1))
    source, target = torch.stack(ends)[:, (torch.stack(ends) >= 0).all(0)]
    linked, translations = torch.cat((source, target)), torch.cat((target, source))
    order = linked.argsort(stable=True)
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = linked[order][1:] != linked[order][:-1]
    return words, LinkedWords(linked[order[first]], translations[order[first]])


def translated_pieces(words: BatchWords, linked: Tensor, translations: Tensor) -> tuple[Tensor, Tensor]:
    """Return packed indices of the pieces of linked words, and of the pieces of their translations to predict there.

    The longer word is truncated.
    """
    lengths = torch.minimum(words.lengths[linked], words.lengths[translations])
    link = torch.repeat_interleave(lengths)
    offset = torch.arange(len(link), device=link.device) - (lengths.cumsum(0) - lengths)[link]
    place, translation = (words.pieces[words.first_piece[end[link]] + offset] for end in (linked, translations))
    return place, translation


def standardize_pairs(states: Tensor, packed: PackedSentences) -> Tensor:
    """Subtract each sentence's mean state, and divide each dimension by its root mean square over the pair (T × d).

    The packed sentences are the N sources, then the N targets. Otherwise the cosines of words depend mostly on the few
    dimensions of large values that all states share.
    """
    states = states if states.dtype == torch.float64 else states.float()
    count = len(packed.lengths)
    sentence = torch.repeat_interleave(packed.restore.argsort(), packed.lengths)
    lengths = packed.lengths[packed.restore].to(states.dtype)[:, None]
    centred = states - (states.new_zeros(count, states.shape[1]).index_add(0, sentence, states) / lengths)[sentence]
    pair = sentence % (count // 2)
    squares = states.new_zeros(count // 2, states.shape[1]).index_add(0, pair, centred.square())
    mean_squares = squares / lengths.view(2, -1, 1).sum(0)
    return centred / mean_squares.clamp(min=torch.finfo(states.dtype).tiny).sqrt()[pair]


def mean_directions(pieces: Tensor, words: BatchWords) -> Tensor:
    """Return W × d means of normalized pieces of each word, whose products are mean cosines over pairs of pieces."""
    pieces = F.normalize(pieces if pieces.dtype == torch.float64 else pieces.float(), dim=-1)
    sums = pieces.new_zeros(len(words.lengths), pieces.shape[1]).index_add(0, words.word_of_piece, pieces)
    return sums / words.lengths[:, None]


def ranking_logits(vectors: Tensor, words: BatchWords, links: LinkedWords) -> tuple[Tensor, Tensor]:
    """Return the logits of each linked word over the words of the other sentence (M × C), and its positive's index.

    A grid of sides × linked pairs × words needs one batched product. Logits of padding are -inf.
    """
    half = len(words.first_word) // 2
    pair, side = words.sentence % half, words.sentence // half
    linked = torch.zeros_like(words.first_word[:half], dtype=torch.bool)
    linked[pair[links.words]] = True
    row = linked.cumsum(0) - 1
    place = torch.arange(len(pair), device=pair.device) - words.first_word[words.sentence]
    rows = linked[pair].nonzero().squeeze(1)
    width = int(place[rows].max()) + 1
    where = (side, row[pair], place)
    grid = vectors.new_zeros(2, int(row[-1]) + 1, width, vectors.shape[1])
    grid = grid.index_put(tuple(indices[rows] for indices in where), vectors[rows])
    filled = torch.zeros(grid.shape[:3], dtype=torch.bool, device=grid.device)
    filled[tuple(indices[rows] for indices in where)] = True
    products = grid[0] @ grid[1].transpose(1, 2)
    logits = torch.stack((products, products.transpose(1, 2))).masked_fill(~filled.flip(0)[:, :, None], -torch.inf)
    return logits[tuple(indices[links.words] for indices in where)], place[links.translations]
