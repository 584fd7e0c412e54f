"""Clean sentence pairs by rules, and report what the rules removed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from hf_xsent.data.cleaning.excluding import ExcludedSentences, excluded_files
from hf_xsent.data.languages import Language, find_language, scripts_of
from hf_xsent.errors import DataError, RecipeError, did_you_mean
from hf_xsent.files import file_stamp
from hf_xsent.settings.convert import convert

if TYPE_CHECKING:
    from typing_extensions import Self

_TOKENIZER_FILES = ("*token*", "vocab*", "merges*", "*.model")
_WORD = re.compile(r"[^\W\d_]+")
# Added to both lengths: a short sentence may be three times as long in another language.
_LENGTH_SMOOTHING = 15
# One character of these scripts counts as two.
_DENSE_SCRIPTS = {"Hani", "Hira", "Kana", "Hang"}
_MIN_COPIED_WORDS = 4
_LATIN_END = "\u0250"  # all letters below are Latin


@dataclass(frozen=True)
class CleaningRules:
    """Rules that remove pairs. None disables a rule that takes a value, False a flag.

    min_characters, max_characters: length of each side (one Chinese character may be a sentence).
    max_length_ratio: length of the longer side divided by that of the shorter, in characters. 15 is added to both
        lengths, since short sentences vary more; Chinese, Japanese and Korean sides count double.
    identical: remove pairs whose sides are equal, ignoring case.
    min_source_script_share, min_target_script_share: share of a side's letters that must be in a script of its
        language; the default is lower for the source, which may have names and terms in Latin letters.
    copied_share: remove a source in Latin script as a copy if at least this share of its words is also in the target.
        Only lower-case words count; sources with fewer than four of them are not checked.
    repeated: retain the first of equal pairs of a language, ignoring case and whitespace.
    min_pieces: minimum number of word pieces of each side, counted by ``tokenizer`` without special tokens.
    max_pair_pieces: maximum number of word pieces of both sides together.
    tokenizer: folder or Hub id of the tokenizer of these two rules.
    exclude: files, folders or globs of test sets, plain text or TSV: remove pairs that have one of their sentences,
        ignoring case and whitespace.
    """

    min_characters: int | None = 1
    max_characters: int | None = 1000
    max_length_ratio: float | None = 3.0
    identical: bool = True
    min_source_script_share: float | None = 0.3
    min_target_script_share: float | None = 0.5
    copied_share: float | None = 0.8
    repeated: bool = True
    min_pieces: int | None = None
    max_pair_pieces: int | None = None
    tokenizer: str | None = None
    exclude: list[str] | None = None

    @classmethod
    def none(cls) -> Self:
        """Return rules that remove nothing."""
        off: dict[str, Any] = {one.name: False if isinstance(one.default, bool) else None for one in fields(cls)}
        return cls(**off)

    @classmethod
    def parse(cls, stated: Sequence[str] | None, clean: bool = True) -> Self:
        """Return the default rules, changed by ``name=value`` strings; ``null`` switches a rule off.

        Without ``clean``, only the stated rules apply. A rule that takes several values is stated once for each.

        >>> CleaningRules.parse(["max_characters=200", "copied_share=null"]).max_characters
        200
        """
        types = get_type_hints(cls)
        changed: dict[str, Any] = {}
        for one in stated or []:
            name, equals, value = one.partition("=")
            if name not in types:
                raise RecipeError(f"unknown cleaning rule {name!r}: use {', '.join(types)}{did_you_mean(name, types)}")
            if not equals:
                raise RecipeError(f"cleaning rule {name} takes a value: write {name}=VALUE")
            found = convert(f"cleaning rule {name}", value, types[name])
            changed[name] = [*(changed.get(name) or []), *found] if isinstance(found, list) else found
        return replace(cls() if clean else cls.none(), **changed)

    def files(self) -> list[Path]:
        """Return the files whose content determines what is removed: of sentences to exclude, and of the tokenizer."""
        patterns = () if self.tokenizer is None else _TOKENIZER_FILES
        tokenizer = {path for pattern in patterns for path in Path(self.tokenizer or "").glob(pattern)}
        return [*excluded_files(self.exclude or []), *sorted(path for path in tokenizer if path.is_file())]

    def pair_checker(self, language: str, target_language: str = "en") -> Callable[[str, str], str | None]:
        """Return a function from a pair to the name of the first rule that removes it, or None.

        It does not check ``repeated``, which depends on other pairs.
        """
        source_language, target = find_language(language), find_language(target_language)
        source_scale, target_scale = _scale(source_language), _scale(target)
        latin = "Latn" in source_language.scripts or not source_language.scripts
        broken_piece_rule = self._piece_checker()
        excluded = (
            _excluded_sentences(tuple((file, *file_stamp(file)) for file in excluded_files(self.exclude)))
            if self.exclude
            else ()
        )

        def first_broken_rule(source: str, sentence: str) -> str | None:
            if excluded and (source in excluded or sentence in excluded):
                return "exclude"
            if self.identical and source.casefold() == sentence.casefold():
                return "identical"
            lengths = len(source), len(sentence)
            if self.min_characters is not None and min(lengths) < self.min_characters:
                return "min_characters"
            if self.max_characters is not None and max(lengths) > self.max_characters:
                return "max_characters"
            if self.max_length_ratio is not None:
                scaled = lengths[0] * source_scale + _LENGTH_SMOOTHING, lengths[1] * target_scale + _LENGTH_SMOOTHING
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
            raise DataError(
                f"no tokenizer in {self.tokenizer}, given by the cleaning rule tokenizer: {reason}"
            ) from error

        def broken_piece_rule(*sides: str) -> str | None:
            pieces = [len(ids) for ids in tokenizer([*sides], add_special_tokens=False, verbose=False)["input_ids"]]
            if self.min_pieces is not None and min(pieces) < self.min_pieces:
                return "min_pieces"
            if self.max_pair_pieces is not None and sum(pieces) > self.max_pair_pieces:
                return "max_pair_pieces"
            return None

        return broken_piece_rule


@lru_cache(maxsize=1)  # the languages of a run share it
def _excluded_sentences(stamped: tuple[tuple[Any, ...], ...]) -> ExcludedSentences:
    return ExcludedSentences([file for file, *_ in stamped])


def _scale(language: Language) -> int:
    return 2 if _DENSE_SCRIPTS.intersection(language.scripts) else 1


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


@dataclass
class CleaningCounts:
    """Counts of one language's rows: ``read = retained + bad + sum(removed)``."""

    read: int = 0
    retained: int = 0
    bad: int = 0
    removed: dict[str, int] = field(default_factory=dict)

    def remove(self, rule: str, count: int = 1) -> None:
        """Count pairs that a rule removed."""
        if count:
            self.removed[rule] = self.removed.get(rule, 0) + count

    def __add__(self, other: CleaningCounts) -> CleaningCounts:
        removed = dict(Counter(self.removed) + Counter(other.removed))
        return CleaningCounts(self.read + other.read, self.retained + other.retained, self.bad + other.bad, removed)

    def require_pairs(self, name: str) -> None:
        """Raise a `DataError` with the reasons if no pair is retained."""
        if self.retained:
            return
        if not self.read:
            raise DataError(f"{name} has no pairs; check its format and columns")
        reasons = [f"{rule} removed {count}" for rule, count in Counter(self.removed).most_common()]
        reasons += [f"{self.bad} were bad rows"] if self.bad else []
        raise DataError(f"cleaning removed all {self.read} pairs of {name}: {', '.join(reasons)}; "
                        "check the language and columns, or relax the rule")  # fmt: skip


@dataclass
class CleaningReport:
    """Counts of cleaning by language."""

    languages: dict[str, CleaningCounts] = field(default_factory=dict)

    @property
    def total(self) -> CleaningCounts:
        """Return the sum over all languages."""
        return sum(self.languages.values(), CleaningCounts())

    def of_part(self, retained: Mapping[str, int], rule: str) -> CleaningReport:
        """Return the report of a part of the pairs; all others count as removed by ``rule``."""
        part = {}
        for name, count in self.languages.items():
            left = retained.get(name, 0)
            part[name] = replace(count, retained=left, removed=dict(count.removed))
            part[name].remove(rule, count.retained - left)
        return CleaningReport(part)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {name: asdict(count) for name, count in {**self.languages, "total": self.total}.items()}

    def table(self) -> str:
        """Return a text table: one line per language, one column for each rule that removed anything."""
        total = self.total
        rules = list(total.removed)
        lines = [["language", "read", "retained", "bad", *rules]]
        for name, count in {**self.languages, "total": total}.items():
            numbers = [count.read, count.retained, count.bad, *(count.removed.get(rule, 0) for rule in rules)]
            lines.append([name, *(f"{number:,}" for number in numbers)])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        layout = "  ".join([f"{{:<{widths[0]}}}", *(f"{{:>{width}}}" for width in widths[1:])])
        return "\n".join(layout.format(*line) for line in lines)
