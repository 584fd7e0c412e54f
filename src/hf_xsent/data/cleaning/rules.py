"""Clean sentence pairs by rules."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_xsent.data.cleaning.excluded import excluded_files, hash_sentences
from hf_xsent.data.cleaning.repeats import hash_texts
from hf_xsent.data.languages import Language, find_language, scripts_of
from hf_xsent.errors import DataError, RecipeError
from hf_xsent.files import file_stamp
from hf_xsent.settings.declare import setting
from hf_xsent.settings.read import read_settings

if TYPE_CHECKING:
    from typing_extensions import Self

_TOKENIZER_FILES = ("*token*", "vocab*", "merges*", "*.model")
_WORD = re.compile(r"[^\W\d_]+")
# Added to both lengths: a short sentence may be three times as long in another language.
_LENGTH_SMOOTHING = 15
# Han, Kana and Hangul: a side of which they are at least a quarter counts double.
_DENSE = re.compile(
    "[\u1100-\u11ff\u3005-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff]"
)
_MIN_COPIED_WORDS = 4
_LATIN_END = "\u0250"  # all letters below are Latin


@dataclass(frozen=True)
class PairRules:
    """Rules that remove a pair for what it is. None disables a rule that takes a value, False a flag."""

    min_characters: int | None = setting(
        1, "Minimum length of each side (one Chinese character may be a sentence).", at_least=0
    )
    max_characters: int | None = setting(1000, "Maximum length of each side.", at_least=1)
    max_length_ratio: float | None = setting(
        3.0,
        "Maximum length of the longer side divided by that of the shorter, in characters. 15 is added to both, since "
        "short sentences vary more; Chinese, Japanese and Korean sides count double.",
        at_least=1,
    )
    identical: bool = setting(True, "Remove pairs whose sides are equal, ignoring case.")
    min_source_script_share: float | None = setting(
        0.3,
        "Minimum share of the source's letters in a script of its language; lower than that of the target, since the "
        "source may have names and terms in Latin letters.",
        at_least=0,
        at_most=1,
    )
    min_target_script_share: float | None = setting(
        0.5, "Minimum share of the target's letters in a script of its language.", at_least=0, at_most=1
    )
    copied_share: float | None = setting(
        0.8,
        "Remove a source in Latin script as a copy if at least this share of its words is also in the target. Only "
        "lower-case words count; sources with fewer than four of them are not checked.",
        above=0,
        at_most=1,
    )
    min_pieces: int | None = setting(
        None, "Minimum word pieces of each side, counted by tokenizer without special tokens.", at_least=1
    )
    max_pair_pieces: int | None = setting(None, "Maximum word pieces of both sides together.", at_least=1)
    tokenizer: str | None = setting(None, "Folder or Hub id of the tokenizer of these two rules.", metavar="MODEL")
    exclude: list[str] | None = setting(
        None,
        "Files, folders or globs of test sets, plain text, TSV, CSV, JSON or Parquet: remove pairs that have one of "
        "their sentences, and these sentences from negatives, ignoring case and whitespace.",
    )

    def __post_init__(self) -> None:
        """Take paths to exclude as a list of texts."""
        if self.exclude is not None:
            paths = [self.exclude] if isinstance(self.exclude, str | os.PathLike) else self.exclude
            object.__setattr__(self, "exclude", [os.fspath(path) for path in paths])

    @classmethod
    def none(cls) -> Self:
        """Return rules that remove nothing."""
        off: dict[str, Any] = {rule.name: False if rule.default is True else None for rule in fields(cls)}
        return cls(**off)

    @classmethod
    def parse(cls, rules: Sequence[str] | None, clean: bool = True) -> Self:
        """Return the default rules, changed by ``name=value`` strings; ``null`` disables a rule, ``false`` a flag.

        Without ``clean``, only these rules apply. A rule that takes several values is given once for each.

        >>> CleaningRules.parse(["max_characters=200", "copied_share=null"]).max_characters
        200
        """
        values = rules_by_name(rules or [])
        return read_settings(cls, values if clean else {**asdict(cls.none()), **values}, where="cleaning rules")

    def files(self) -> list[Path]:
        """Return the files whose content determines what is removed: of sentences to exclude, and of the tokenizer."""
        patterns = () if self.tokenizer is None else _TOKENIZER_FILES
        tokenizer = {path for pattern in patterns for path in Path(self.tokenizer or "").glob(pattern)}
        return [*excluded_files(self.exclude or ()), *sorted(path for path in tokenizer if path.is_file())]

    def excluded_sentences(self) -> frozenset[int]:
        """Return the hashes of the sentences of test sets."""
        return hash_sentences(tuple((file, *file_stamp(file)) for file in excluded_files(self.exclude or ())))

    def pair_checker(self, language: str, target_language: str = "en") -> Callable[[str, str], str | None]:
        """Return a function from a pair to the name of the first rule that removes it, or None."""
        source_language, target = find_language(language), find_language(target_language)
        latin = "Latn" in source_language.scripts or not source_language.scripts
        broken_piece_rule = self._piece_checker()
        excluded = self.excluded_sentences()

        def first_broken_rule(source: str, sentence: str) -> str | None:
            if excluded and (hash_texts(source) in excluded or hash_texts(sentence) in excluded):
                return "exclude"
            if self.identical and source.casefold() == sentence.casefold():
                return "identical"
            lengths = len(source), len(sentence)
            if self.min_characters is not None and min(lengths) < self.min_characters:
                return "min_characters"
            if self.max_characters is not None and max(lengths) > self.max_characters:
                return "max_characters"
            if self.max_length_ratio is not None:
                scaled = _scaled_length(source) + _LENGTH_SMOOTHING, _scaled_length(sentence) + _LENGTH_SMOOTHING
                if max(scaled) > self.max_length_ratio * min(scaled):
                    return "max_length_ratio"
            minimum = self.min_source_script_share
            if minimum is not None and _script_share(source, source_language) < minimum:
                return "min_source_script_share"
            minimum = self.min_target_script_share
            if minimum is not None and _script_share(sentence, target) < minimum:
                return "min_target_script_share"
            if latin and self.copied_share is not None and _is_copy(source, sentence, self.copied_share):
                return "copied_share"
            return None if broken_piece_rule is None else broken_piece_rule(source, sentence)

        return first_broken_rule

    def _piece_checker(self) -> Callable[[str, str], str | None] | None:
        if self.min_pieces is None and self.max_pair_pieces is None:
            return None
        if self.tokenizer is None:
            raise DataError(
                "min_pieces and max_pair_pieces need a tokenizer: add the rule tokenizer=FOLDER or tokenizer=HUB_ID"
            )
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(self.tokenizer)
        except (OSError, ValueError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(f"no tokenizer in {self.tokenizer}, of the cleaning rule tokenizer: {reason}") from error

        def broken_piece_rule(*sides: str) -> str | None:
            pieces = [len(ids) for ids in tokenizer([*sides], add_special_tokens=False, verbose=False)["input_ids"]]
            if self.min_pieces is not None and min(pieces) < self.min_pieces:
                return "min_pieces"
            if self.max_pair_pieces is not None and sum(pieces) > self.max_pair_pieces:
                return "max_pair_pieces"
            return None

        return broken_piece_rule


@dataclass(frozen=True)
class CleaningRules(PairRules):
    """Rules that remove pairs of training data."""

    repeated: bool = setting(
        True, "Remove repeated pairs, ignoring case and whitespace; the first with links or negatives stays."
    )


def rules_by_name(rules: Sequence[str]) -> dict[str, Any]:
    """Return the value of each rule, or its values.

    >>> rules_by_name(["exclude=a", "exclude=b", "identical=false"])
    {'exclude': ['a', 'b'], 'identical': 'false'}
    """
    values: dict[str, list[str]] = {}
    for rule in rules:
        name, _, value = rule.partition("=")
        if not value:
            raise RecipeError(f"cleaning rule {name} takes a value: write {name}=VALUE")
        values.setdefault(name, []).append(value)
    return {name: texts[0] if len(texts) == 1 else texts for name, texts in values.items()}


def _scaled_length(text: str) -> int:
    is_dense = not text.isascii() and 4 * len(_DENSE.findall(text)) >= len(text)
    return 2 * len(text) if is_dense else len(text)


def _script_share(text: str, language: Language) -> float:
    """Return the share of letters in the language's scripts; 1 without letters or expected scripts."""
    if "Latn" in language.scripts and (text.isascii() or max(text) < _LATIN_END):
        return 1.0  # fast path for the common case
    scripts = scripts_of(text) if language.scripts else {}
    total = sum(scripts.values())
    return sum(scripts.get(script, 0) for script in language.scripts) / total if total else 1.0


def _is_copy(source: str, target: str, share: float) -> bool:
    """Return whether the source has four or more lower-case words and the target has at least this share of them."""
    words = [word for word in source.split() if word.islower() and word.isalpha()]
    lowered = target.lower()
    # A fast substring search already rules out nearly every pair.
    if len(words) < _MIN_COPIED_WORDS or sum(word in lowered for word in words) < share * len(words):
        return False
    target_words = set(_WORD.findall(lowered))
    return sum(word in target_words for word in words) >= share * len(words)
