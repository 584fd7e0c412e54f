"""Trim a model to the word pieces that the texts of some languages use.

The tokenizer segments a word whose piece was removed into remaining pieces. To reach a given number of pieces, the
least used are removed in rounds; each round segments the texts again, so that the pieces that replace a removed one are
counted in its place. Each language counts equally.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from os.path import commonprefix, isfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedTokenizerBase

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.languages import language_of_tag
from hf_xsent.data.readers.compression import lines
from hf_xsent.data.readers.resolving import refuse_two_codes, resolve_sources
from hf_xsent.data.readers.sources import BitextSource, refuse_table
from hf_xsent.errors import DataError, ModelError, shortened
from hf_xsent.logs import Progress
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.families import RobertaBackbone, family
from hf_xsent.models.loading import check_tokenizer
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.pages.tables import Table
from hf_xsent.publishing.export_folder import check_replaceable
from hf_xsent.publishing.facts import ModelFacts
from hf_xsent.publishing.sentence_transformer import export_sentence_transformer
from hf_xsent.publishing.settings import TrimSettings
from hf_xsent.publishing.trimmed_tokenizer import PieceTable, trim_tokenizer, word_splitter
from hf_xsent.runs.origin import Origin
from hf_xsent.settings.command import command

_ROUND = 0.6  # each round retains at least this share of the pieces
_CHARACTER_COVERAGE = 0.9995  # share of the text, the default of SentencePiece

Words = dict[str, float]  # by pre-tokenized word: the sum over languages of the word's share of the language's words


@dataclass(frozen=True)
class TrimReport:
    """Pieces and weights before and after trimming; by what factor the texts have more pieces after it."""

    pieces: tuple[int, int]
    weights: tuple[int, int]
    lengthening: float
    output: str

    def __str__(self) -> str:
        rows: list[list[object]] = [
            ["pieces", *self.pieces],
            ["weights (millions)", *(count / 1e6 for count in self.weights)],
            ["length of texts in pieces", 1.0, self.lengthening],
        ]
        return f"{Table(['', 'before', 'after'], rows)}\nthe trimmed model is in {self.output}"


@command(TrimSettings)
def trim_vocabulary(settings: TrimSettings) -> TrimReport:
    """Export a model with the pieces that texts of some languages use, and characters; at most ``pieces`` in total.

    ```python
    from hf_xsent import trim_vocabulary

    report = trim_vocabulary("runs/mine", "trimmed", {"de": ["Ein Hund."], "en": ["A dog."]})
    print(report.pieces)
    ```
    """
    check_replaceable(Path(settings.output), settings.overwrite)
    texts, sources = _texts(settings)
    embedder = SentenceEmbedder.from_pretrained(settings.model, device="cpu")
    check_tokenizer(embedder.tokenizer, embedder.model.config.encoder_config)
    table = PieceTable(embedder.tokenizer)
    _add_pairs(texts, sources, settings)
    prompts = [prompt for prompt in (embedder.model.config.prompts or {}).values() if prompt]
    words = word_shares(embedder.tokenizer, texts, prompts)
    prompt_pieces = {
        piece for prompt in prompts for piece in embedder.tokenizer(prompt, add_special_tokens=False)["input_ids"]
    }
    tokenizer, old = trim_tokenizer(embedder.tokenizer, choose_pieces(table, words, settings.pieces, prompt_pieces))
    weights = embedder.model.encoder.num_parameters()
    before, after = (
        _piece_shares(backend, words).sum()
        for backend in (table.trim(range(len(table)))[0], tokenizer.backend_tokenizer)
    )
    _select_rows(embedder.model, old)
    codes = {*texts, *([settings.target_language] if sources else ())} - {"und"}
    names = sorted(filter(language_of_tag, codes))  # texts in Python may have other names
    by = " ".join(["by texts", *(["in", ", ".join(names)] if names else ())])
    facts, trimmed = ModelFacts.read(settings.model), f"trimmed to {len(old):,} of {len(table):,} word pieces, {by}."
    vocabulary = f"{facts.vocabulary} The vocabulary was {trimmed}".strip()
    facts = replace(facts, languages=names, vocabulary=vocabulary)
    embedder.model.encoder.origin = Origin(settings.model, facts=facts)
    export_sentence_transformer(
        embedder.model, settings.output, tokenizer, overwrite=settings.overwrite, dim=embedder.width
    )
    return TrimReport(
        pieces=(len(table), len(old)),
        weights=(weights, embedder.model.encoder.num_parameters()),
        lengthening=round(float(after / before), 4) if before else 1.0,
        output=settings.output,
    )


def _texts(settings: TrimSettings) -> tuple[dict[str, Iterable[str]], list[BitextSource]]:
    """Return the sentences of each language, from Python and text files; and the sources of pairs."""
    for language, sentences in (settings.texts or {}).items():
        if isinstance(sentences, str) or not isinstance(sentences, Iterable):
            raise DataError(f"texts of {language!r} are {shortened(sentences)}: give a list of sentences")
    pairs_of = resolve_sources(settings.data, target_language=settings.target_language) if settings.data else {}
    files_of = resolve_sources(settings.text, target_language="und") if settings.text else {}
    if others := [source for sources in files_of.values() for source in sources if not isfile(source.path)]:
        raise DataError(f"{others[0].path} is no text file: give a file of one sentence per line, and pairs by --data")
    known = [*dict.fromkeys((*(settings.texts or {}), *pairs_of, *files_of))]
    refuse_two_codes([*pairs_of, *files_of])  # names of texts in Python may be others
    if not known:
        raise DataError("no text to choose the pieces by: give --data de=pairs.tsv or --text de=news.txt")
    languages = settings.languages or known
    for language in languages:
        if language not in known:
            raise DataError(f"no text of {language!r}: the languages are {', '.join(known)}")
    texts: dict[str, Iterable[str]] = {
        language: chain(
            (settings.texts or {}).get(language, ()),
            *(_lines(path) for source in files_of.get(language, ()) for path in source.files),
        )
        for language in languages
    }
    return texts, [source for language in languages for source in pairs_of.get(language, ())]


def _add_pairs(texts: dict[str, Iterable[str]], sources: list[BitextSource], settings: TrimSettings) -> None:
    """Add both sides of the pairs of each language to its sentences."""
    if sources:
        bitext = load_bitext(sources, target_language=settings.target_language, cache_dir=settings.cache_dir)
        for language in bitext.languages:
            texts[language] = chain(texts[language], *bitext.pairs(language))


def _lines(path: Path) -> Iterable[str]:
    refuse_table(path, (line for _, line in lines(path)))
    return (line for _, line in lines(path))


def word_shares(
    tokenizer: PreTrainedTokenizerBase, texts: Mapping[str, Iterable[str]], prompts: Iterable[str] = ()
) -> Words:
    """Return for each word the sum over the languages of its share of that language's words.

    Sentences are split without a prompt and after each of ``prompts``, whose own words do not count.
    """
    split = word_splitter(tokenizer)
    words_of_prompts = {"": [], **{prompt: split(prompt) for prompt in prompts}}
    shares: Words = {}
    for language, sentences in texts.items():
        counts: Counter[str] = Counter()
        for row, sentence in enumerate(Progress(sentences, desc=f"words of {language}", unit=" sentences")):
            if not isinstance(sentence, str):
                raise DataError(f"sentence {row} of {language!r} is {sentence!r}, not text: remove it")
            for prompt, first in words_of_prompts.items():
                words = split(prompt + sentence)
                counts.update(words[len(commonprefix([words, first])) :])
        if not counts:
            raise DataError(f"the corpus has no text of {language}: add some, or remove the language")
        total = counts.total()
        for word, count in counts.items():
            shares[word] = shares.get(word, 0.0) + count / total
    return shares


def choose_pieces(
    table: PieceTable, words: Words, size: int | None = None, prompt_pieces: Collection[int] = ()
) -> set[int]:
    """Return the pieces that occur in ``words`` and all characters; with ``size``, at most that many pieces.

    These ``size`` pieces are special tokens, ``prompt_pieces``, the most frequent characters that cover 99.95% of the
    text (all characters, if the tokenizer has no unknown token), then the most used other pieces.
    """
    shares = _piece_shares(table.trim(range(len(table)))[0], words)
    characters = table.characters()
    if size is not None and table.unknown is not None:
        covering = _covering_characters(words)
        characters = {number: character for number, character in characters.items() if character in covering}
    required = table.required.union(*(table.with_parts(number) for number in {*characters, *prompt_pieces}))
    in_use = required.union(*(table.with_parts(int(number)) for number in np.flatnonzero(shares)))
    if size is None or len(in_use) <= size:
        return in_use
    if len(required) > size:
        raise ModelError(f"{size} pieces are too few: special tokens and characters alone are {len(required)}")
    target = len(in_use)
    while True:
        target = max(size, int(target * _ROUND))
        selected = _most_used(table, shares, required, target)
        if target == size:
            return selected
        backend, old = table.trim(selected)
        shares = np.zeros_like(shares)
        shares[old] = _piece_shares(backend, words)


def _covering_characters(words: Words) -> set[str]:
    """Return the most used characters that together cover 99.95% of the text."""
    shares: Words = {}
    for word, share in words.items():
        for character in word:
            shares[character] = shares.get(character, 0.0) + share
    ordered = sorted(shares, key=lambda character: -shares[character])
    reached = np.cumsum([shares[character] for character in ordered]) / sum(shares.values())
    return set(ordered[: int(np.searchsorted(reached, _CHARACTER_COVERAGE)) + 1])


def _most_used(table: PieceTable, shares: np.ndarray, required: set[int], size: int) -> set[int]:
    selected = set(required)
    for number in np.argsort(-shares, kind="stable"):
        if len(selected) == size or not shares[number]:
            break
        parts = table.with_parts(int(number)) - selected
        if len(selected) + len(parts) <= size:
            selected |= parts
    return selected


def _piece_shares(backend: Tokenizer, words: Words) -> np.ndarray:
    """Return for each piece, by id, its occurrences in each word times the word's share, summed over the words."""
    shares = np.zeros(backend.get_vocab_size(with_added_tokens=True))
    segment = backend.model.tokenize
    for word, share in Progress(words.items(), desc="segmenting", unit=" words"):
        for piece in segment(word):
            shares[piece.id] += share
    return shares


@torch.no_grad()
def _select_rows(model: SentenceEncoder, old: list[int]) -> None:
    """Retain the embeddings of the ids ``old``, in this order, and renumber the config's special tokens."""
    table: Any = model.get_input_embeddings()
    new = {number: place for place, number in enumerate(old)}
    config = model.config.encoder_config
    if issubclass(family(config), RobertaBackbone) and new.get(config.pad_token_id) != config.pad_token_id:
        raise ModelError(
            "the positions of this encoder are counted from the id of its padding token, which trimming would change: "
            "use a tokenizer whose special tokens have the first ids"
        )
    padding = new.get(table.padding_idx)
    model.set_input_embeddings(
        nn.Embedding.from_pretrained(table.weight[old].clone(), freeze=False, padding_idx=padding)
    )
    ids = {name: number for name, number in config.to_dict().items() if name.endswith("_token_id")}
    for each in (model.encoder.config, config):  # often the same object
        for name, number in ids.items():
            if isinstance(number, int):
                setattr(each, name, new.get(number))
