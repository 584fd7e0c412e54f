"""Select conversational pairs from bitext with English, for recipes/xsent-small.yaml.

  python trainer_scripts/conversational_pairs.py "train/{language}-en.tsv.xz" --output selected

A pair is conversational if its English side has one of the words I, he, she, we, they, his, her and their, or, in lower
case only, me, him, us, them, you, your and my: texts of user interfaces begin with "You", "Your" and "My". The pairs of
language xx go to selected/xx.tsv. A language with fewer than --at_least conversational pairs is filled up with other
pairs, in the order of the file, those that end like a sentence first. Pairs whose English side has a word or sign of
user interfaces are never selected. A language of which no pair is left gets no file, because pretrain refuses empty
ones.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from hf_xsent.data.bitext import read_pairs, resolve_sources
from hf_xsent.errors import HfXsentError
from hf_xsent.files import write_text

PRONOUN = re.compile(r"\b(I|[Hh]e|[Ss]he|[Ww]e|[Tt]hey|[Hh]is|[Hh]er|[Tt]heir|him|me|us|them|you|my|your)\b")
INTERFACE = re.compile(r"[%&_<>{}\\=|$]|Libre|click|file|dialog|document|select", re.IGNORECASE)
SENTENCE = re.compile(r"[.!?][\"'”’)]?$")


def select(pairs: Iterable[tuple[str, str]], at_least: int, max_characters: int) -> tuple[list[tuple[str, str]], int]:
    """Return the selected pairs of a language, and how many of them are conversational.

    >>> pairs = [("Datei öffnen", "Open file"), ("Norden", "North"), ("Es regnet.", "It rains."), ("Ja.", "I agree.")]
    >>> select(pairs, at_least=2, max_characters=100)
    ([('Ja.', 'I agree.'), ('Es regnet.', 'It rains.')], 1)
    """
    conversational, sentences, phrases = [], [], []
    for pair in pairs:
        if max(map(len, pair)) > max_characters or INTERFACE.search(pair[1]):
            continue
        if PRONOUN.search(pair[1]):
            conversational.append(pair)
        elif SENTENCE.search(pair[1]):
            sentences.append(pair)
        else:
            phrases.append(pair)
    missing = max(0, at_least - len(conversational))
    return conversational + (sentences + phrases)[:missing], len(conversational)


def main() -> None:
    """Write the files of all languages, and print the numbers of pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "data", help="Pairs of all languages with English, English second, such as train/{language}-en.tsv.xz."
    )
    parser.add_argument("--output", required=True, type=Path, help="Folder for the selected pairs.")
    parser.add_argument(
        "--at_least", type=int, default=10_000, help="Fill up each language with other pairs to this number."
    )
    parser.add_argument("--max_characters", type=int, default=200, help="Longest side of a pair.")
    options = parser.parse_args()
    if options.output.exists() and (options.output.is_file() or any(options.output.iterdir())):
        parser.error(f"{options.output} is a file or not empty: remove it, or choose another --output")
    sources_of = resolve_sources(options.data)
    options.output.mkdir(parents=True, exist_ok=True)
    for language, sources in sources_of.items():
        read = (pair for source in sources for pair in read_pairs(source))
        pairs, conversational = select(read, options.at_least, options.max_characters)
        lines = ("\t".join(" ".join(side.split()) for side in pair) + "\n" for pair in pairs)
        if pairs:
            write_text(options.output / f"{language}.tsv", lines)
        print(f"{language}: {conversational} conversational pairs, {len(pairs) - conversational} others", flush=True)


if __name__ == "__main__":
    try:
        main()
    except (HfXsentError, OSError) as error:
        sys.exit(f"conversational_pairs.py: {error}")
