"""Trim a tokenizer to some of its pieces; a word whose piece was removed is segmented into remaining pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_xsent.errors import ModelError

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class PieceTable:
    """The pieces and merges of a WordPiece, unigram or BPE tokenizer, read from its tokenizer.json."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.is_fast:
            raise ModelError(
                f"the tokenizer {tokenizer.name_or_path!r} runs in Python ({type(tokenizer).__name__}): trim-vocab and "
                "GGUF files need a model with a tokenizer.json"
            )
        self.content: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
        model = self.content["model"]
        self.kind: str = model["type"]
        if self.kind == "Unigram":
            self.pieces: dict[str, int] = {piece: number for number, (piece, _) in enumerate(model["vocab"])}
        else:
            self.pieces = model["vocab"]
        self.added: dict[str, int] = {token["content"]: token["id"] for token in self.content["added_tokens"]}
        self.inside: str = model.get("continuing_subword_prefix") or ""  # WordPiece's ##
        self.end: str = model.get("end_of_word_suffix") or ""  # BPE's </w>
        self._text = {number: piece for piece, number in self.pieces.items()}
        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(model.get("merges", ()))}

    def __len__(self) -> int:
        return len({*self.pieces.values(), *self.added.values()})

    @property
    def required(self) -> set[int]:
        """Return the ids of special and added tokens, of the unknown token, and of pieces for single bytes, if any."""
        return {*self.added.values(), *self.bytes} | (set() if self.unknown is None else {self.unknown})

    @property
    def bytes(self) -> set[int]:
        """Return the ids of pieces for single bytes, such as <0x0A>, if any."""
        if not self.content["model"].get("byte_fallback"):
            return set()
        return {number for piece, number in self.pieces.items() if len(piece) == 6 and piece.startswith("<0x")}

    @property
    def unknown(self) -> int | None:
        """Return the id of the unknown token; None if the tokenizer has all characters (as bytes)."""
        model = self.content["model"]
        number: int | None = model.get("unk_id") if self.kind == "Unigram" else self.pieces.get(model.get("unk_token"))
        return number

    def characters(self) -> dict[int, str]:
        """Return all pieces that consist of one character (at the start of a word or inside), by id."""
        bare = {number: self._bare(piece) for piece, number in self.pieces.items()}
        return {number: piece for number, piece in bare.items() if len(piece) == 1}

    def _bare(self, piece: str) -> str:
        return piece.removeprefix(self.inside).removesuffix(self.end)

    def _symbols(self, piece: str) -> list[str]:
        """Return the pieces of one character from which BPE builds a piece; none if it has no more than one."""
        bare = self._bare(piece)
        if len(bare) < 2:
            return []
        symbols = [self.inside + character for character in bare]
        symbols[0] = symbols[0] if piece.startswith(self.inside) else bare[0]
        symbols[-1] += self.end if piece.endswith(self.end) else ""
        return symbols

    def _merged(self, left: str, right: str) -> str:
        return left + right.removeprefix(self.inside)

    def with_parts(self, number: int) -> set[int]:
        """Return a piece and, for BPE, all pieces on the path of merges by which the tokenizer builds it.

        A piece may have several merges; which one the tokenizer uses depends on the ranks of those before.
        """
        parts = {number}
        symbols = self._symbols(self._text[number]) if self._ranks and number in self._text else []
        while len(symbols) > 1:
            ranked = [(self._ranks.get(pair), place) for place, pair in enumerate(pairwise(symbols))]
            applicable = [(rank, place) for rank, place in ranked if rank is not None]
            if not applicable:
                break
            place = min(applicable)[1]
            parts |= {self.pieces[symbols[place]], self.pieces[symbols[place + 1]]}
            symbols[place : place + 2] = [self._merged(*symbols[place : place + 2])]
        return parts

    def trim(self, selected: Collection[int]) -> tuple[Tokenizer, list[int]]:
        """Return a tokenizer with the selected pieces, their parts and the required ones, and the old ids.

        Required pieces add no parts, since added tokens are cut out before words are segmented. A selected piece that
        is built from one adds its parts itself.
        """
        required = self.required
        old = sorted(required.union(*(self.with_parts(number) for number in selected if number not in required)))
        new = {number: place for place, number in enumerate(old)}
        model = dict(self.content["model"])
        if self.kind == "Unigram":
            model["vocab"] = [entry for number, entry in enumerate(model["vocab"]) if number in new]
            model["unk_id"] = new.get(model["unk_id"])
        else:
            model["vocab"] = {piece: new[number] for piece, number in self.pieces.items() if number in new}
        if self.kind == "BPE":
            names = {piece for piece, number in self.pieces.items() if number in new}
            model["merges"] = [pair for pair in model["merges"] if {*pair, self._merged(*pair)} <= names]
        content = self.content | {
            "model": model,
            "added_tokens": [token | {"id": new[token["id"]]} for token in self.content["added_tokens"]],
            "post_processor": _renumbered(self.content["post_processor"], new),
        }
        return Tokenizer.from_str(json.dumps(content)), old


def word_splitter(tokenizer: PreTrainedTokenizerBase, added_tokens: bool = True) -> Callable[[str], list[str]]:
    """Return a function that splits a text into the words that the tokenizer segments.

    Its added tokens are cut out, or are text like other.
    """
    backend: Any = tokenizer.backend_tokenizer
    splitter: Any = Tokenizer(models.Unigram([("", 0.0)], unk_id=0))  # each word is one unknown piece, number 0
    splitter.normalizer, splitter.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
    splitter.add_tokens([*backend.get_added_tokens_decoder().values()] if added_tokens else [])

    def split(text: str) -> list[str]:
        encoded = splitter.encode(text)
        return [word for word, number in zip(encoded.tokens, encoded.ids, strict=True) if number == 0]

    return split


def trim_tokenizer(
    tokenizer: PreTrainedTokenizerBase, selected: Collection[int]
) -> tuple[PreTrainedTokenizerFast, list[int]]:
    """Return the tokenizer with the selected and required pieces, and the old id of each piece."""
    backend, old = PieceTable(tokenizer).trim(selected)
    special = {name: getattr(tokenizer, name, None) for name in _SPECIAL}
    known = {str(token): token for token in tokenizer.added_tokens_decoder.values()}
    trimmed = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        **{name: known.get(token, token) for name, token in special.items() if token is not None},
    )
    return trimmed, old


def _renumbered(processor: Any, new: Mapping[int, int]) -> Any:
    """Return a post-processor with the new ids of the tokens that it adds to a sentence."""
    if isinstance(processor, list):
        return [_renumbered(part, new) for part in processor]
    if not isinstance(processor, dict):
        return processor
    changed = {}
    for key, value in processor.items():
        if key in ("cls", "sep") and isinstance(value, list):  # in BertProcessing and RobertaProcessing: [token, id]
            changed[key] = [value[0], new[value[1]]]
        elif key == "ids":  # in TemplateProcessing
            changed[key] = [new[number] for number in value]
        else:
            changed[key] = _renumbered(value, new)
    return changed
