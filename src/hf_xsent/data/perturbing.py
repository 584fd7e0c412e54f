"""Perturb sentences: small edits by rules that change what a sentence says.

Perturbed sentences are hard negatives for training and hard candidates for evaluation (xsim++). ``perturbing.yaml`` has
the rules of each language; languages without rules use those for numbers, names, clauses and word order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from itertools import combinations, pairwise
from random import Random
from typing import Any

import regex

from hf_xsent.data.cleaning.repeats import normalise
from hf_xsent.data.languages import find_language
from hf_xsent.data.words.splitting import split_words
from hf_xsent.errors import DataError, did_you_mean
from hf_xsent.settings.convert import converting
from hf_xsent.settings.yaml12 import parse_yaml

_NUMBER = regex.compile(r"\p{Nd}+(?:[.,:]\p{Nd}+)*(?!\p{Nd}|(?:st|nd|rd|th)\b)")
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_UNFUSED = r"(?!['’]t\b)"  # other than in "won't", a word ends before 's, 'll and the like
_CAPITALIZED_WORD = rf"\p{{Lu}}(?:[\p{{Lu}}\p{{Ll}}\p{{M}}\p{{Nd}}]++|['’-](?=\p{{Lu}}))++{_UNFUSED}"
# Inside a sentence: at its start, any word has a capital.
_CAPITALIZED = regex.compile(
    rf"(?<=[\w,;)–-][ ]|[\p{{Lo}}\p{{M}}（(]){_CAPITALIZED_WORD}(?: {_CAPITALIZED_WORD}){{0,3}}"
)
# Words of scripts that have no capitals, titles in Chinese brackets, and Japanese words of foreign origin.
_CASELESS = regex.compile(rf"(?<!\w)[[\p{{Lo}}\p{{M}}\p{{Georgian}}]--[{_UNSPACED}]]{{4,}}(?!\w)", regex.VERSION1)
_MARKED = regex.compile(r"(?<=《)[^《》]+(?=》)|[\p{Katakana}ー・]{3,}")
_NAMES = 16  # names of other sentences to choose from
_RARE = 2  # a caseless word is a name if at most this many sentences have it
_CLAUSE_END = regex.compile(r"(?<=[,;،؛])\s+|(?<=[，；])|\s+(?=[–—]\s)")
_BRACKETED = regex.compile(r"\s?[(（][^()（）]{8,}[)）]")
_BALANCED = ("()", "（）", "“”", "„“", "«»", "《》", "‘’")
_CLAUSE_MARKS = " ,;،؛，；–—"
_END_MARKS = " .!?…。！？।؟\"'”’»」"
_PUNCTUATION = regex.compile(r"[^\w\s'’-]")
_MIN_WORDS = 4  # a clause to drop has more
_HAN_PAIR = regex.compile(r"\p{Han}{2}", regex.VERSION1)
_MIN_OCCURRENCES = 3  # two Chinese characters are a word if they are together this often
_LONG_WORD = regex.compile(r"(?<![\w'’-])[\p{L}\p{M}]{5,}(?![\w'’-])")
_ENDING = 3  # letters
_UNSPACED_LANGUAGES = {"zh", "ja", "yue", "wuu", "th", "lo", "km", "my"}

RULES = ("number", "name", "negation", "opposite", "clause", "order")
Edit = tuple[int, int, list[str]]  # start, end, and the texts that may replace this part


@dataclass(frozen=True)
class Perturbation:
    """A perturbed sentence: the line of its original, counted from 0, and the rule that changed it."""

    line: int
    rule: str
    text: str


@converting
def perturb(
    sentences: Iterable[str],
    language: str,
    rules: Iterable[str] | None = None,
    per_rule: int = 1,
    seed: int = 0,
) -> list[Perturbation]:
    """Return up to ``per_rule`` perturbations of each sentence by each rule, each with another meaning.

    number: another number, as digits (any script) or words; another month, weekday or unit of time.
    name: a name of another sentence. In scripts without capitals, names are words that at most two sentences have.
    negation: a positive sentence becomes negative, or a negative sentence positive.
    opposite: a word becomes its opposite or another one of its kind, such as before/after or father/mother.
    clause: a clause or a text in brackets is dropped.
    order: two words with the same ending change places.

    English, German, French, Spanish, Russian, Chinese, Arabic, Hindi and Swahili have all rules; other languages have
    number (digits), name, clause and order. A rule that does not apply to a sentence gives nothing. The result depends
    on the sentences (names), their language and the seed only.

    >>> for perturbed in perturb(["In London, the old members of the council met."], "en"):
    ...     print(perturbed.rule, "-", perturbed.text)
    opposite - In London, the new members of the council met.
    """
    texts = [] if isinstance(sentences, str) else list(sentences)
    if isinstance(sentences, str) or not all(isinstance(text, str) for text in texts):
        raise DataError("sentences are one string, or some are not text: give a list of sentences")
    chosen = RULES if rules is None else tuple(rules)
    for rule in chosen:
        if rule not in RULES:
            raise DataError(f"unknown rule {rule!r}: use some of {', '.join(RULES)}{did_you_mean(rule, RULES)}")
    edits = _Edits(texts, find_language(language).code, seed)
    found = []
    for line, text in enumerate(texts):
        seen = {normalise(text)}
        for rule in chosen:
            generator = Random(f"{seed} {rule} {text}".encode("utf-8", "surrogatepass"))
            drawn = _draw(text, list(getattr(edits, rule)(text)), generator)
            for _, perturbed in zip(range(per_rule), (text for text in drawn if _new(text, seen)), strict=False):
                found.append(Perturbation(line, rule, perturbed))
    return found


def _draw(text: str, edits: list[Edit], generator: Random) -> Iterator[str]:
    """Yield perturbed texts: of each edit first one, in random order, then a second one, and so on."""
    generator.shuffle(edits)
    for texts in (texts for _, _, texts in edits):
        generator.shuffle(texts)
    for number in range(max((len(texts) for _, _, texts in edits), default=0)):
        for start, end, texts in edits:
            if number < len(texts):
                perturbed = text[:start] + texts[number] + text[end:]
                yield perturbed[:1].upper() + perturbed[1:] if text[0].isupper() else perturbed


def _new(text: str, seen: set[str]) -> bool:
    """Return whether this text is not among those seen, and add it."""
    new = normalise(text) not in seen
    seen.add(normalise(text))
    return new


class _Edits:
    """The edits of each rule in one language; names and Chinese words depend on all sentences."""

    def __init__(self, sentences: Sequence[str], language: str, seed: int) -> None:
        self.language, self.data = language, _languages().get(language, {})
        self._sentences, self._seed = sentences, seed

    def number(self, text: str) -> Iterator[Edit]:
        """Change the last digit of a number that is not 0, or exchange a number word."""
        for match in _NUMBER.finditer(text):
            digits = [place for place in range(*match.span()) if text[place].isdigit()]
            place = next((place for place in reversed(digits) if int(text[place])), digits[-1])
            zero = chr(ord(text[place]) - int(text[place]))
            yield place, place + 1, [chr(ord(zero) + digit) for digit in range(1, 10) if digit != int(text[place])]
        yield from self._exchange("number", text)

    def name(self, text: str) -> Iterator[Edit]:
        """Replace a name by one of another sentence that has the same form."""
        for start, end in self._names(text):
            name, generator = text[start:end], Random(f"{self._seed} {text}".encode("utf-8", "surrogatepass"))
            names = self._pool[_form(name)]
            some = generator.sample(names, min(_NAMES, len(names)))
            yield start, end, [other for other in some if other not in text and name not in other]
        yield from self._exchange("name", text)

    def negation(self, text: str) -> Iterator[Edit]:
        """Remove a negation, or add one."""
        if not self.data:
            return
        start = text[:1].lower()[:1] + text[1:]  # patterns are in lower case; İ has two characters in it
        for pattern, replacement in self.data["remove" if self.data["negative"].search(start) else "add"]:
            for match in pattern.finditer(start):
                yield (*match.span(), [match.expand(replacement)])

    def opposite(self, text: str) -> Iterator[Edit]:
        """Exchange a word for its opposite."""
        yield from self._exchange("opposite", text)

    def clause(self, text: str) -> Iterator[Edit]:
        """Drop a clause between commas, or a text in brackets."""
        for match in _BRACKETED.finditer(text):
            if any(map(str.isalnum, text[: match.start()] + text[match.end() :])):
                yield (*match.span(), [""])
        ends = [match.span() for match in _CLAUSE_END.finditer(text)]
        starts = [0, *(end for _, end in ends), len(text)]
        for start, stop in pairwise(starts):
            part = text[start:stop]
            if 2 * len(part) > len(text) or len(split_words(part)) <= _MIN_WORDS or not _is_balanced(part):
                continue
            if stop < len(text):
                yield start, stop, [""]
            else:  # up to the final punctuation
                yield len(text[:start].rstrip(_CLAUSE_MARKS)), len(text.rstrip(_END_MARKS)), [""]

    def order(self, text: str) -> Iterator[Edit]:
        """Exchange two words with the same ending, with other words and no punctuation between them."""
        for left, right in combinations(self._words(text), 2):
            first, between, second = text[left[0] : left[1]], text[left[1] : right[0]], text[right[0] : right[1]]
            if _may_swap(first, second) and not _PUNCTUATION.search(between) and self._separate(between, first):
                yield left[0], right[1], [second + between + first]

    def _separate(self, between: str, first: str) -> bool:
        """Return whether two words are not of one list, such as "A and B" or adjectives of one noun."""
        if "joining" in self.data and self.data["joining"].search(between):
            return False
        if self.language in _UNSPACED_LANGUAGES:
            return len(between) > 1
        words = between.split()
        known = "joining" in self.data  # without the conjunctions of a language, a single word may be one
        return len(words) > (0 if known else 1) and not any(word.endswith(first[-_ENDING:]) for word in words)

    def _words(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of the words that may change places."""
        if self.language in _UNSPACED_LANGUAGES:
            return [match.span() for match in _HAN_PAIR.finditer(text, overlapped=True) if match[0] in self._han_words]
        return [match.span() for match in _LONG_WORD.finditer(text, pos=1)]

    def _exchange(self, kind: str, text: str) -> Iterator[Edit]:
        """Exchange a word of a list for another one of it."""
        if kind in self.data:
            pattern, others = self.data[kind]
            yield from ((*match.span("word"), [*others[match["word"]]]) for match in pattern.finditer(text))

    def _names(self, text: str) -> Iterator[tuple[int, int]]:
        """Find capitalized words inside the sentence, marked names, and rare words of scripts without capitals."""
        after = self.data.get("name_after")
        for match in _CAPITALIZED.finditer(text):
            if after is None or " " in match[0] or match[0].isupper() or after.search(text, endpos=match.start()):
                yield match.span()
        yield from (match.span() for match in _MARKED.finditer(text))
        for match in _CASELESS.finditer(text):
            if self._counts[match[0]] <= _RARE:
                yield match.span()

    @cached_property
    def _counts(self) -> Counter[str]:
        """Count the sentences that have each word of a script without capitals."""
        return Counter(word for text in self._sentences for word in set(_CASELESS.findall(text)))

    @cached_property
    def _han_words(self) -> set[str]:
        """Return the pairs of Chinese characters that are often together, and not mostly parts of a longer word."""
        single, pairs, triples = (
            Counter(text[start : start + size] for text in self._sentences for start in range(len(text) - size + 1))
            for size in (1, 2, 3)
        )
        longer = {
            pair for triple, count in triples.items() for pair in (triple[:2], triple[1:]) if 2 * count > pairs[pair]
        }
        return {
            pair
            for pair, count in pairs.items()
            if count >= _MIN_OCCURRENCES
            and pair not in longer
            and _HAN_PAIR.fullmatch(pair)
            and 2 * count >= max(single[pair[0]], single[pair[1]])
        }

    @cached_property
    def _pool(self) -> Mapping[Any, list[str]]:
        """Return the names of all sentences by their form."""
        pool: dict[Any, dict[str, None]] = {}
        for text in self._sentences:
            for start, end in self._names(text):
                pool.setdefault(_form(text[start:end]), {})[text[start:end]] = None
        return {form: list(names) for form, names in pool.items()}


def _form(name: str) -> Any:
    """Return what names that replace each other have in common: words and capitals, or article and last letter."""
    if name[0].isupper():
        return len(name.split()), name.isupper()
    return name[:2] == "ال", name[0] == "و", name[-1], len(name.split())


def _is_balanced(text: str) -> bool:
    """Return whether each bracket and quotation mark is closed in the text."""
    return text.count('"') % 2 == 0 and all(text.count(pair[0]) == text.count(pair[1]) for pair in _BALANCED)


def _may_swap(first: str, second: str) -> bool:
    """Return whether two words are of the same form and have another meaning.

    In languages with cases, words with different endings may change places without a change of meaning.
    """
    if _HAN_PAIR.match(first):
        return not set(first) & set(second)
    same_form = first[-_ENDING:] == second[-_ENDING:] and first[0].isupper() == second[0].isupper()
    return same_form and first[:_ENDING].lower() != second[:_ENDING].lower()


@cache
def _languages() -> dict[str, dict[str, Any]]:
    """Read the rules of each language, and compile their patterns."""
    text = (files("hf_xsent.data") / "perturbing.yaml").read_text(encoding="utf-8")
    return {code: _compiled(code, rules) for code, rules in parse_yaml(text).items()}


def _compiled(code: str, rules: Mapping[str, Any]) -> dict[str, Any]:
    edge = ("", "") if code in _UNSPACED_LANGUAGES else (r"(?<!\w)", r"(?!\w)")

    def compiled(pattern: str) -> regex.Pattern[str]:
        return regex.compile(f"{edge[0]}(?:{pattern}){edge[1]}")

    def compiled_edit(pattern: str) -> regex.Pattern[str]:
        return compiled(rf"(?<!\w['’])(?:{pattern}){_UNFUSED}")

    patterns: dict[str, Any] = {kind: compiled(rules[kind]) for kind in ("negative", "joining") if kind in rules}
    if "name_after" in rules:
        patterns["name_after"] = regex.compile(rf"(?<!\w)(?:{rules['name_after']})\s$")
    for kind in ("add", "remove"):
        pairs = (line.split(" → ") for line in rules[kind].splitlines())
        patterns[kind] = [(compiled_edit(pattern), replacement) for pattern, replacement in pairs]
    for kind in ("number", "name", "opposite"):
        others: dict[str, dict[str, None]] = {}
        for words in (group.strip().split("/") for group in rules.get(kind, "").split(",") if kind in rules):
            for form in (words, [word[0].upper() + word[1:] for word in words]):
                for word in form:
                    others.setdefault(word, {}).update(dict.fromkeys(other for other in form if other != word))
        if others:
            longest_first = "|".join(regex.escape(word) for word in sorted(others, key=len, reverse=True))
            patterns[kind] = compiled_edit(f"{rules.get('prefix', '')}(?P<word>{longest_first})"), others
    return patterns
