"""Select conversational pairs from bitext with English, for recipes/xsent-small.yaml.

  python trainer_scripts/conversational_pairs.py "train/{language}-en.tsv.xz" --output selected --others eu sw

A pair is conversational if its English side has "I", or another personal or possessive pronoun in lower case, and no
sign of a user interface. The pairs of language xx go to selected/xx.tsv; with --others xx, its other pairs go to
selected/xx-ZZ.tsv, which training samples as one more language.
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

PRONOUN = re.compile(r"\b(I|you|he|she|we|they|my|your|his|her|him|me|us|them)\b")
INTERFACE = re.compile(r"[%&_<>{}\\=|$]|Libre|click|file|dialog|document|select", re.IGNORECASE)


def is_conversational(english: str) -> bool:
    """Return whether a sentence has "I" or a pronoun in lower case, and no markup and no word of user interfaces."""
    return PRONOUN.search(english) is not None and INTERFACE.search(english) is None


def write_tsv(path: Path, pairs: Iterable[tuple[str, str]]) -> None:
    """Write pairs as TSV."""
    write_text(path, ("\t".join(" ".join(side.split()) for side in pair) + "\n" for pair in pairs))


def main() -> None:
    """Write the files of all languages, and print the numbers of pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "data", help="Pairs of all languages with English, English second, such as train/{language}-en.tsv.xz."
    )
    parser.add_argument("--output", required=True, type=Path, help="Folder for the selected pairs.")
    parser.add_argument("--others", nargs="*", default=[], metavar="CODE", help="Also write the other pairs of these.")
    parser.add_argument("--max_characters", type=int, default=200, help="Longest side of a conversational pair.")
    parser.add_argument("--max_other_characters", type=int, default=150, help="Longest side of any other pair.")
    options = parser.parse_args()
    if options.output.exists() and (options.output.is_file() or any(options.output.iterdir())):
        parser.error(f"{options.output} is a file or not empty: remove it, or choose another --output")
    sources_of = resolve_sources(options.data)
    if unknown := [code for code in options.others if code not in sources_of]:
        parser.error(f"--others {unknown[0]}: {options.data} has no such language; it has {', '.join(sources_of)}")
    options.output.mkdir(parents=True, exist_ok=True)
    for language, sources in sources_of.items():
        selected, others = [], []
        for pair in (pair for source in sources for pair in read_pairs(source)):
            longest = max(map(len, pair))
            if is_conversational(pair[1]) and longest <= options.max_characters:
                selected.append(pair)
            elif longest <= options.max_other_characters:
                others.append(pair)
        write_tsv(options.output / f"{language}.tsv", selected)
        if language in options.others:
            write_tsv(options.output / f"{language}-ZZ.tsv", others)
        print(f"{language}: {len(selected)} conversational pairs, {len(others)} others", flush=True)


if __name__ == "__main__":
    try:
        main()
    except HfXsentError as error:
        sys.exit(f"conversational_pairs.py: {error}")
