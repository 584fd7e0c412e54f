"""Describe a Unigram, WordPiece or BPE tokenizer in the keys of a GGUF file, as llama.cpp reads them."""

from __future__ import annotations

import logging
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerBase

from hf_xsent.errors import ModelError
from hf_xsent.publishing.trimmed_tokenizer import PieceTable, word_splitter

logger = logging.getLogger(__name__)

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6  # llama.cpp's types of tokens
_WORD_START = "▁"
_GAPS = 256  # how far behind the last used cell of the trie to look for free ones
_CHARACTERS = range(1, sys.maxunicode + 1)
_NO_TEXT = ("Cn", "Co", "Cs")  # categories of code points that are not assigned, private, or halves of a character
_WORDS = "Two  ﬁne\nwords "
_PUNCTUATED = "it's  1,5\nunder_score"
_PUNCTUATED_WORDS = ["it", "'", "s", "1", ",", "5", "under", "_", "score"]  # as llama.cpp splits it for WordPiece
_SIDE = "|"  # a character that no combining mark composes with


def add_tokenizer(writer: Any, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
    """Write the tokenizer's pieces, their types and scores, special tokens and normalization.

    ``rows`` is the number of the encoder's word embeddings, which may have more rows than the tokenizer has pieces.
    """
    table = PieceTable(tokenizer)
    single_bytes = table.bytes
    pieces = [f"[UNUSED{number}]" for number in range(rows)]
    types = [_UNUSED] * rows
    for piece, number in (table.pieces | table.added).items():
        pieces[number], types[number] = piece, _BYTE if number in single_bytes else _NORMAL
    for token in table.content["added_tokens"]:
        types[token["id"]] = _CONTROL if token["special"] else _USER_DEFINED
    if tokenizer.unk_token_id is not None:
        types[tokenizer.unk_token_id] = _UNKNOWN
    ends = tokenizer("")["input_ids"]
    if len(ends) != 2:
        raise ModelError(f"llama.cpp adds a token before and after a text, but this tokenizer adds {len(ends)}")
    write = {"Unigram": _add_unigram, "WordPiece": _add_wordpiece, "BPE": _add_bpe}.get(table.kind)
    if write is None:
        raise ModelError(f"llama.cpp has no {table.kind} tokenizer: a GGUF file needs Unigram, WordPiece or BPE")
    write(writer, tokenizer, table.content, pieces, types)
    writer.add_token_types(types)
    writer.add_bos_token_id(ends[0])
    writer.add_eos_token_id(ends[1])
    writer.add_sep_token_id(ends[1])
    writer.add_pad_token_id(tokenizer.pad_token_id)
    if tokenizer.unk_token_id is not None:
        writer.add_unk_token_id(tokenizer.unk_token_id)
    if tokenizer.mask_token_id is not None:
        writer.add_mask_token_id(tokenizer.mask_token_id)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)


def _add_unigram(
    writer: Any, tokenizer: PreTrainedTokenizerBase, content: Mapping[str, Any], pieces: list[str], types: list[int]
) -> None:
    if not word_splitter(tokenizer, added_tokens=False)("a")[0].startswith(_WORD_START):
        raise ModelError(
            f"llama.cpp adds {_WORD_START} before a text, and this tokenizer does not: no GGUF file is possible"
        )
    scores = np.full(len(pieces), -1e4, dtype=np.float32)
    vocabulary = content["model"]["vocab"]
    scores[: len(vocabulary)] = [score for _, score in vocabulary]
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_scores(scores.tolist())
    writer.add_add_space_prefix(True)
    spaces, tokens = tokenizer.tokenize("a a"), tokenizer.tokenize
    strips = tokens("a ") == tokens("a")  # llama.cpp strips and merges spaces, or does neither
    writer.add_remove_extra_whitespaces(strips)
    replacements = character_replacements(tokenizer.backend_tokenizer.normalizer)
    if strips:
        replacements |= {
            each: " " for each in map(chr, _CHARACTERS) if each.isspace() and tokens(f"a{each}a") == spaces
        }
    merges = not strips and tokens("a  a") == spaces
    if replacements or merges:
        writer.add_precompiled_charsmap(precompile(replacements, merges))


def _add_wordpiece(
    writer: Any, tokenizer: PreTrainedTokenizerBase, content: Mapping[str, Any], pieces: list[str], types: list[int]
) -> None:
    """Mark the pieces that start a word, instead of those that continue one."""
    split = word_splitter(tokenizer, added_tokens=False)
    if split(_PUNCTUATED) != _PUNCTUATED_WORDS:
        raise ModelError("llama.cpp splits words otherwise than this WordPiece tokenizer: no GGUF file is possible")
    if split("语言") != ["语", "言"]:
        logger.warning(
            "llama.cpp splits Chinese characters, which this tokenizer does not: for Chinese texts, use --onnx"
        )
    prefix = content["model"]["continuing_subword_prefix"]
    special = [kind not in (_NORMAL, _USER_DEFINED) for kind in types]
    marked = [
        piece if is_special else piece.removeprefix(prefix) if piece.startswith(prefix) else _WORD_START + piece
        for piece, is_special in zip(pieces, special, strict=True)
    ]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(marked)
    normalizer = tokenizer.backend_tokenizer.normalizer
    lowercase = normalizer is not None and normalizer.normalize_str("A") == "a"
    writer.add_bool("tokenizer.ggml.normalizer.lowercase", lowercase)
    strips = normalizer is not None and normalizer.normalize_str("é") == "e"
    writer.add_bool("tokenizer.ggml.normalizer.strip_accents", strips)
    if strips:
        logger.warning(
            "llama.cpp strips fewer marks than this tokenizer: for texts in Korean, Hindi, Tamil, …, use --onnx"
        )


def _add_bpe(
    writer: Any, tokenizer: PreTrainedTokenizerBase, content: Mapping[str, Any], pieces: list[str], types: list[int]
) -> None:
    """Write BPE over bytes, as ModernBERT has it, or over characters with bytes for rare ones, as mmBERT has it."""
    model, splitter = content["model"], content["pre_tokenizer"] or {}
    words = word_splitter(tokenizer, added_tokens=False)(_WORDS)
    first, *others = splitter.get("pretokenizers", [splitter])
    if first.get("type") == "ByteLevel":
        theirs = ByteLevel(add_prefix_space=False).pre_tokenize_str(_WORDS)
        known, kind, pre = not others and words == [word for word, _ in theirs], "gpt2", "gpt-2"
    else:
        known = model["byte_fallback"] and words == [_WORDS.replace(" ", _WORD_START)]
        kind = pre = "gemma4"
    if not known or model["continuing_subword_prefix"] or model["end_of_word_suffix"]:
        raise ModelError("llama.cpp has no pre-tokenizer like that of this BPE tokenizer: no GGUF file is possible")
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(pieces)
    merges = model["merges"]
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in merges])


def character_replacements(normalizer: Any) -> dict[str, str]:
    """Return what a normalizer replaces: characters, and a character with combining marks."""
    if normalizer is None:
        return {}

    def replaced(text: str) -> str:
        return str(normalizer.normalize_str(f"{_SIDE}{text}{_SIDE}")[1:-1])

    characters = [character for character in map(chr, _CHARACTERS) if unicodedata.category(character) not in _NO_TEXT]
    replacements = {character: new for character in characters if (new := replaced(character)) != character}
    for character in characters:
        parts = unicodedata.decomposition(character).split()
        pair = "".join(chr(int(code, 16)) for code in parts if "<" not in code) if len(parts) == 2 else ""
        for text in {pair, unicodedata.normalize("NFD", character)}:
            if len(text) > 1 and (new := replaced(text)) != "".join(replacements.get(part, part) for part in text):
                replacements[text] = new
    return replacements


def precompile(replacements: Mapping[str, str], merge_spaces: bool = False) -> bytes:
    """Write replacements as SentencePiece does: a double array trie over the bytes, then the replaced texts.

    A cell holds the byte that leads to it (bits 0–7), whether its text ends here (8) and the distance to its children
    (10–30): the child for a byte is at (cell XOR distance) XOR byte. The child for 0 holds a place in the texts.
    ``merge_spaces`` replaces a run of spaces by one: from a space, the trie leads back to the same node.
    """
    texts, places = bytearray(), {}
    for new in dict.fromkeys([" ", *replacements.values()]):
        places[new] = len(texts)
        texts += new.encode() + b"\0"
    trie: dict[int, Any] = {}
    for old, new in replacements.items():
        _descend(trie, old.encode())[0] = places[new]
    if merge_spaces:
        run: dict[int, Any] = {0: places[" "]}
        for old, new in {" ": " ", **replacements}.items():
            if len(old) == 1 and new in ("", " "):
                *first, last = old.encode()
                _descend(run, first)[last] = run
                if new == " ":
                    _descend(trie, first)[last] = run
    cells: dict[int, int] = {0: 0}
    bases: dict[int, int] = {}  # where the children of a node are; no two nodes have the same place
    used, waiting, start = {0}, [(0, trie)], 1
    while waiting:
        cell, node = waiting.pop()
        if id(node) not in bases:
            base = start
            while base in used or any(base ^ byte in cells for byte in node):
                base += 1
            bases[id(node)] = base
            used.add(base)
            start = max(start, base - _GAPS)
            for byte, child in node.items():
                cells[base ^ byte] = byte if isinstance(child, dict) else child | 1 << 31
            waiting += [(base ^ byte, child) for byte, child in node.items() if isinstance(child, dict)]
        cells[cell] |= (cell ^ bases[id(node)]) << 10 | (0 in node) << 8
    array = np.zeros((max(cells) | 255) + 1, dtype="<u4")
    array[list(cells)] = list(cells.values())
    return np.uint32(array.nbytes).tobytes() + array.tobytes() + bytes(texts)


def _descend(node: dict[int, Any], text: Iterable[int]) -> dict[int, Any]:
    """Return the node to which bytes lead from a node; create the nodes that are missing."""
    for byte in text:
        node = node.setdefault(byte, {})
    return node
