"""A model for fewer languages: the word pieces that their texts need, and the same encoder over them.

What is dropped, the tokenizer segments anew into pieces that stay. Where a number of pieces is given, the least used go
in rounds, and each round counts anew how the texts are segmented by what is left: parts of dropped words gain weight.
Every language weighs the same, and its other side as much as itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase

from hf_xsent.errors import DataError, ModelError
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.publishing.sentence_transformer import export_sentence_transformer
from hf_xsent.publishing.trimmed_tokenizer import PieceTable, trim_tokenizer

_ROUND = 0.6  # of the pieces stay in a round, at least
_CHARACTER_COVERAGE = 0.9995  # of the text, as SentencePiece has it

Words = dict[str, float]  # a word, as the tokenizer's pre-tokenizer cuts it, and its share of the texts


@dataclass(frozen=True)
class TrimReport:
    """What trimming changed."""

    pieces_before: int
    pieces_after: int
    weights_before: int
    weights_after: int
    pieces_a_word_before: float
    pieces_a_word_after: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def trim_vocabulary(
    model: str, folder: str | Path, texts: Mapping[str, Iterable[str]], size: int | None = None, overwrite: bool = False
) -> TrimReport:
    """Export ``model`` with the pieces that ``texts`` (sentences by language) need, at most ``size`` of them."""
    embedder = SentenceEmbedder.from_pretrained(model, device="cpu")
    table = PieceTable(embedder.tokenizer)
    words = word_shares(embedder.tokenizer, texts)
    kept = choose_pieces(table, words, size)
    tokenizer, old = trim_tokenizer(embedder.tokenizer, kept)
    weights = sum(weight.numel() for weight in embedder.model.encoder.parameters())
    before = _piece_shares(table.cut(range(len(table)))[0], words).sum()
    after = _piece_shares(tokenizer.backend_tokenizer, words).sum()
    _keep_rows(embedder.model, old)
    export_sentence_transformer(embedder.model, folder, tokenizer, overwrite=overwrite, dim=embedder.width)
    return TrimReport(
        pieces_before=len(table),
        pieces_after=len(old),
        weights_before=weights,
        weights_after=sum(weight.numel() for weight in embedder.model.encoder.parameters()),
        pieces_a_word_before=round(float(before / sum(words.values())), 4),
        pieces_a_word_after=round(float(after / sum(words.values())), 4),
    )


def word_shares(tokenizer: PreTrainedTokenizerBase, texts: Mapping[str, Iterable[str]]) -> Words:
    """Each word's share of its language's words, added over the languages."""
    backend = tokenizer.backend_tokenizer
    normalizer, cutter = backend.normalizer, backend.pre_tokenizer
    shares: Words = {}
    for language, sentences in texts.items():
        counts: Counter[str] = Counter()
        for sentence in tqdm(sentences, desc=f"words of {language}", unit="sentence", disable=None):
            text = normalizer.normalize_str(sentence) if normalizer is not None else sentence
            counts.update(word for word, _ in cutter.pre_tokenize_str(text)) if cutter is not None else counts.update(
                [text]
            )
        if not counts:
            raise DataError(f"the corpus holds no text of {language}: nothing tells what it needs")
        for word, count in counts.items():
            shares[word] = shares.get(word, 0.0) + count / counts.total()
    return shares


def choose_pieces(table: PieceTable, words: Words, size: int | None = None) -> set[int]:
    """All pieces that occur and every single character, or the most used ``size`` and nearly all text's characters."""
    shares = _piece_shares(table.cut(range(len(table)))[0], words)
    characters = table.characters()
    if size is not None and table.unknown is not None:
        covering = _covering_characters(words)
        characters = {number: one for number, one in characters.items() if one in covering}
    kept = table.indispensable | {one for number in characters for one in table.closure(number)}
    occurring = kept | {one for number in np.flatnonzero(shares) for one in table.closure(int(number))}
    if size is None or len(occurring) <= size:
        return occurring
    if len(kept) > size:
        raise ModelError(f"{size} pieces are too few: the special tokens and characters alone are {len(kept)}")
    alive = len(occurring)
    while True:
        target = max(size, int(alive * _ROUND))
        chosen = _most_used(table, shares, kept, target)
        if target == size:
            return chosen
        backend, old = table.cut(chosen)
        shares = np.zeros_like(shares)
        shares[old] = _piece_shares(backend, words)
        alive = target


def _covering_characters(words: Words) -> set[str]:
    """The most used characters, until they make up nearly all text."""
    shares: Words = {}
    for word, share in words.items():
        for character in word:
            shares[character] = shares.get(character, 0.0) + share
    ordered = sorted(shares, key=lambda character: -shares[character])
    reached = np.cumsum([shares[character] for character in ordered]) / sum(shares.values())
    return set(ordered[: int(np.searchsorted(reached, _CHARACTER_COVERAGE)) + 1])


def _most_used(table: PieceTable, shares: np.ndarray, kept: set[int], size: int) -> set[int]:
    chosen = set(kept)
    for number in np.argsort(-shares, kind="stable"):
        if len(chosen) == size or not shares[number]:
            break
        parts = {*table.closure(int(number))} - chosen
        if len(chosen) + len(parts) <= size:
            chosen |= parts
    return chosen


def _piece_shares(backend: Tokenizer, words: Words) -> np.ndarray:
    """How much of the texts each piece makes up, by its number."""
    shares = np.zeros(backend.get_vocab_size(with_added_tokens=True))
    segment = backend.model.tokenize
    for word, share in tqdm(words.items(), desc="segmenting", unit="word", disable=None):
        for piece in segment(word):
            shares[piece.id] += share
    return shares


@torch.no_grad()
def _keep_rows(model: SentenceEncoder, old: list[int]) -> None:
    """The rows of these pieces alone, in this order; the config's special tokens follow them."""
    table: Any = model.get_input_embeddings()
    new = {number: place for place, number in enumerate(old)}
    padding = new.get(table.padding_idx)
    model.set_input_embeddings(
        nn.Embedding.from_pretrained(table.weight[old].clone(), freeze=False, padding_idx=padding)
    )
    for config in (model.encoder.config, model.config.encoder_config):
        for name, number in config.to_dict().items():
            if name.endswith("_token_id") and isinstance(number, int):
                setattr(config, name, new.get(number))
