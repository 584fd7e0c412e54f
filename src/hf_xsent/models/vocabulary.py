"""A vocabulary restricted to the word pieces of a corpus, so that a head projects onto no others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PreTrainedTokenizerBase

from hf_xsent.errors import ModelError
from hf_xsent.files import digest, write_text

if TYPE_CHECKING:
    from typing_extensions import Self

_SENTENCES_AT_A_TIME = 4096


@dataclass(frozen=True)
class RestrictedVocabulary:
    """Ids of word pieces, ascending, and the tokenizer that they belong to."""

    ids: tuple[int, ...]
    tokenizer: str  # fingerprint

    @classmethod
    def of(cls, sentences: Iterable[str], tokenizer: PreTrainedTokenizerBase, known: Sequence[int] = ()) -> Self:
        """All pieces that occur, beside those ``known`` already and the tokenizer's special ones."""
        ids = {*known, *tokenizer.all_special_ids}
        for some in _batches(sentences):
            for one in tokenizer(some, add_special_tokens=False)["input_ids"]:
                ids.update(one)
        return cls(tuple(sorted(ids)), tokenizer_fingerprint(tokenizer))

    @classmethod
    def read(cls, path: str | Path, tokenizer: PreTrainedTokenizerBase) -> Self:
        """The vocabulary of a file, which must have been made with this tokenizer."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            vocabulary = cls(tuple(sorted(map(int, content["ids"]))), content["tokenizer"])
        except OSError as error:
            raise ModelError(f"cannot read the vocabulary {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{path} is no vocabulary: make one with hf-xsent vocabulary") from error
        if vocabulary.tokenizer != tokenizer_fingerprint(tokenizer):
            raise ModelError(
                f"the vocabulary {path} was made with another tokenizer: make it again with hf-xsent vocabulary"
            )
        return vocabulary

    def write(self, path: str | Path) -> None:
        """One JSON file."""
        content = {"tokenizer": self.tokenizer, "size": len(self.ids), "ids": self.ids}
        write_text(path, json.dumps(content) + "\n")


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """The same for tokenizers that give every piece the same id."""
    pieces = sorted(tokenizer.get_vocab().items(), key=lambda piece: piece[1])
    return digest("\n".join(f"{number} {piece}" for piece, number in pieces))


def _batches(sentences: Iterable[str]) -> Iterator[list[str]]:
    sentences = iter(sentences)
    while some := list(islice(sentences, _SENTENCES_AT_A_TIME)):
        yield some
