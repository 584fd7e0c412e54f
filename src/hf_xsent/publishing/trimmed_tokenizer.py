"""Trim a tokenizer to some of its pieces; a word whose piece was removed is segmented into remaining pieces."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hf_xsent.errors import ModelError

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class PieceTable:
    """The pieces and merges of a WordPiece, unigram or BPE tokenizer, read from its tokenizer.json."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ModelError(
                "this tokenizer has no tokenizer.json: save a fast version of it (PreTrainedTokenizerFast)"
            )
        self.content: dict[str, Any] = json.loads(backend.to_str())
        model = self.content["model"]
        self.kind: str = model["type"]
        if self.kind not in ("WordPiece", "Unigram", "BPE"):
            raise ModelError(f"cannot trim a {self.kind} tokenizer: use WordPiece, Unigram or BPE")
        if self.kind == "Unigram":
            self.pieces: dict[str, int] = {piece: number for number, (piece, _) in enumerate(model["vocab"])}
        else:
            self.pieces = model["vocab"]
        self.added: dict[str, int] = {token["content"]: token["id"] for token in self.content["added_tokens"]}
        self._text = {number: piece for piece, number in self.pieces.items()}
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, merge in enumerate(model.get("merges") or ()):
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            self._ranks[left, right] = rank

    def __len__(self) -> int:
        return len({*self.pieces.values(), *self.added.values()})

    @property
    def required(self) -> set[int]:
        """Return the ids of special and added tokens, of the unknown token, and of pieces for single bytes, if any."""
        ids = {*self.added.values()} | (set() if self.unknown is None else {self.unknown})
        if self.content["model"].get("byte_fallback"):
            ids |= {number for piece, number in self.pieces.items() if len(piece) == 6 and piece.startswith("<0x")}
        return ids

    @property
    def unknown(self) -> int | None:
        """Return the id of the unknown token; None if the tokenizer has all characters (as bytes)."""
        model = self.content["model"]
        number: int | None = model.get("unk_id") if self.kind == "Unigram" else self.pieces.get(model.get("unk_token"))
        return number

    def characters(self) -> dict[int, str]:
        """Return all pieces that consist of one character (at the start of a word or inside), by id."""
        model = self.content["model"]
        before, after = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""
        bare = {number: piece.removeprefix(before).removesuffix(after) for piece, number in self.pieces.items()}
        return {number: piece for number, piece in bare.items() if len(piece) == 1}

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
            symbols[place : place + 2] = [self._merged(symbols[place], symbols[place + 1])]
        return parts

    def _symbols(self, piece: str) -> list[str]:
        """Return the single characters, with their prefix and suffix, from which merges start."""
        prefix = self.content["model"].get("continuing_subword_prefix") or ""
        suffix = self.content["model"].get("end_of_word_suffix") or ""
        inside, ends = bool(prefix) and piece.startswith(prefix), bool(suffix) and piece.endswith(suffix)
        characters = piece.removeprefix(prefix if inside else "").removesuffix(suffix if ends else "")
        symbols = [f"{prefix}{character}" for character in characters]
        if symbols and not inside:
            symbols[0] = characters[0]
        if symbols and ends:
            symbols[-1] += suffix
        return symbols

    def trim(self, selected: Collection[int]) -> tuple[Tokenizer, list[int]]:
        """Return a tokenizer with the selected pieces, their parts and the required ones, and the old ids."""
        old = sorted(self.required.union(*(self.with_parts(number) for number in selected)))
        new = {number: place for place, number in enumerate(old)}
        model = dict(self.content["model"])
        if self.kind == "Unigram":
            model["vocab"] = [entry for number, entry in enumerate(model["vocab"]) if number in new]
            model["unk_id"] = new.get(model["unk_id"])
        else:
            model["vocab"] = {piece: new[number] for piece, number in self.pieces.items() if number in new}
        if self.kind == "BPE":
            model["merges"] = [merge for merge in model["merges"] if self._can_merge(merge, new)]
        content = self.content | {
            "model": model,
            "added_tokens": [token | {"id": new[token["id"]]} for token in self.content["added_tokens"]],
            "post_processor": _renumbered(self.content["post_processor"], new),
        }
        return Tokenizer.from_str(json.dumps(content)), old

    def _merged(self, left: str, right: str) -> str:
        return left + right.removeprefix(self.content["model"].get("continuing_subword_prefix") or "")

    def _can_merge(self, merge: str | list[str], new: Mapping[int, int]) -> bool:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        return all(self.pieces[piece] in new for piece in (left, right, self._merged(left, right)))


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
