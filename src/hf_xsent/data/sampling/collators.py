"""Collate sentence pairs into batches for the training forward of any method."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from hf_xsent.data.words.links import links_of_units, parse_links
from hf_xsent.data.words.splitting import split_words, word_units
from hf_xsent.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from hf_xsent.data.bitext import Pair

_SENTENCES_AT_ONCE = 1024


@dataclass
class PairCollator:
    """Tokenize, truncate and pad examples with ``source``, ``target`` and ``language``.

    languages: languages that have an embedding; adds ``language_ids`` of all sources, then of all targets.
    texts: sides to add as text (``source_texts``, ``target_texts``), for teachers.
    negatives: number of mined negatives per pair, by side; adds their tokens with the prefixes ``source_negative_`` and
        ``target_negative_``, and the row of the pair that each belongs to.
    links: add the unit of each token (``source_words``, ``target_words``; see `word_units`) and the ``links`` between
        units, padded with -1.
    prompt: prepended to each sentence.
    """

    tokenizer: PreTrainedTokenizerBase
    max_length: int
    languages: Sequence[str] | None = None
    target_language: str = "en"
    texts: Collection[str] = ()
    links: bool = False
    negatives: Mapping[str, int] = field(default_factory=dict)
    prompt: str = ""

    def __call__(self, examples: Sequence[Pair]) -> dict[str, Any]:
        """Return one batch."""
        batch: dict[str, Any] = {}
        unit_of_word: list[list[list[int]]] = []
        for side in ("source", "target"):
            sentences = [example[side] for example in examples]
            encoded = self._tokenize(sentences, return_offsets_mapping=self.links)
            batch[f"{side}_input_ids"] = encoded["input_ids"]
            batch[f"{side}_attention_mask"] = encoded["attention_mask"]
            if self.links:
                offsets = (encoded["offset_mapping"] - len(self.prompt)).clamp(min=0).tolist()
                units = [word_units(split_words(text), spans) for text, spans in zip(sentences, offsets, strict=True)]
                batch[f"{side}_words"] = torch.tensor([of_pieces for of_pieces, _ in units])
                unit_of_word.append([of_words for _, of_words in units])
        if self.links:
            links = [parse_links(example.get("links", "")) for example in examples]
            rows = list(map(links_of_units, links, zip(*unit_of_word, strict=True)))
            longest = max(map(len, rows))
            padded = [[*row, *[(-1, -1)] * (longest - len(row))] for row in rows]
            batch["links"] = torch.tensor(padded).view(len(rows), longest, 2)
        if self.languages:
            names = [example["language"] for example in examples]
            names += [self.target_language] * len(examples)
            batch["language_ids"] = torch.tensor([self._language_id(name) for name in names])
        for side, count in self.negatives.items():
            batch |= self._negatives(examples, side, count)
        for side in self.texts:
            batch[f"{side}_texts"] = [example[side] for example in examples]
        return batch

    def _tokenize(self, sentences: Sequence[str], **options: bool) -> dict[str, torch.Tensor]:
        """Tokenize in blocks, because a tokenizer's intermediate results take several kB per sentence."""
        options |= {"truncation": True, "padding": True}
        blocks = []
        for start in range(0, len(sentences), _SENTENCES_AT_ONCE):
            texts = [self.prompt + sentence for sentence in sentences[start : start + _SENTENCES_AT_ONCE]]
            encoded = self.tokenizer(texts, max_length=self.max_length, return_tensors="pt", **options)
            blocks.append(dict(encoded))  # the tensors alone
        padding = {"input_ids": self.tokenizer.pad_token_id}  # other tensors are padded with 0
        left = self.tokenizer.padding_side == "left"
        return {name: _joined([block[name] for block in blocks], padding.get(name, 0), left) for name in blocks[0]}

    def _negatives(self, examples: Sequence[Pair], side: str, count: int) -> dict[str, torch.Tensor]:
        """Tokenize the first ``count`` negatives of each pair; a pair may have fewer."""
        negatives = [
            (row, text) for row, pair in enumerate(examples) for text in pair.get(f"{side}_negatives", ())[:count]
        ]
        prefix, rows = f"{side}_negative_", torch.tensor([row for row, _ in negatives], dtype=torch.long)
        if not negatives:
            nothing = torch.zeros(0, 1, dtype=torch.long)
            return {f"{prefix}input_ids": nothing, f"{prefix}attention_mask": nothing, f"{prefix}rows": rows}
        encoded = self._tokenize([text for _, text in negatives])
        return {f"{prefix}{what}": encoded[what] for what in ("input_ids", "attention_mask")} | {f"{prefix}rows": rows}

    def _language_id(self, language: str) -> int:
        if self.languages is None or language not in self.languages:
            raise DataError(f"language {language!r} has no embedding: list it under languages in the recipe")
        return self.languages.index(language)


def _joined(blocks: Sequence[torch.Tensor], padding: int, left: bool) -> torch.Tensor:
    """Pad the second dimension of blocks to the same length, and concatenate them."""
    longest = max(block.shape[1] for block in blocks)
    padded = []
    for block in blocks:
        more = block.new_full((len(block), longest - block.shape[1], *block.shape[2:]), padding)
        padded.append(torch.cat((more, block) if left else (block, more), 1))
    return torch.cat(padded)
