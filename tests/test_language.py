"""Words that readers cannot search for: each has a term of the field in its place."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

NOT = {  # at most 40: what is not written, and what to write
    r"told|tells?": "say, report, raise; a program tells nobody anything",
    r"anew": "again, or new",
    r"in vain": "padded queries, no effect",
    r"wrong answers?": "negatives",
    r"asking|(?<!question )(?<!question-)answering": "queries, candidates",
    r"so (?:many|much) (?!as|that)\w+": "N, this many",
    r"no numbers?\b(?! of)": "NaN or infinite",
    r"alike": "equal, the same, identical",
    r"of (?:its|their|his) own": "own, separate",
    r"lea(?:ve|ves|ving) (?:\w+ ){0,2}out|left out": "omit, drop, exclude",
    r"go(?:es)? on|went on|going on": "continue, resume",
    r"as (?:it|they) comes?": "unchanged, the checkpoint's",
    r"shall": "must, should, or the present tense",
    r"takes? over|took over|taken over": "load, copy, replace",
    r"kept": "stored, saved, retained; 'pairs kept' in a table is 'pairs'",
    r"ma(?:de|ke|kes) again": "recompute, rebuild",
    r"broken? off": "interrupted",
    r"learns? on": "continue training",
    r"apart from each other|told apart|tell apart": "distinguish",
    r"nobody": "name who, or say what is not done",
    r"somebody": "a user, a process",
    r"lends?|lent": "provide, copy from",
    r"begun": "started",
    r"whole and": "complete",
    r"all the same\b": "still, equal",
    r"by and by|ever after|now and then": "later, periodically",
    r"how it came": "say what it is",
    r"what is there|who is there": "existing",
    r"is no (?:run|folder|model|file|vocabulary|objective|setting|YAML)": "is not a",
    r"cannot be told": "unknown",
    r"lies beside|stands beside|lies by": "is next to",
    r"mend(?:s|ed)?": "fix",
    r"forgotten": "removed, reset",
    r"thrice|twice over": "three times",
}

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md"]
PAGES += [ROOT / "trainer_scripts" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "src").rglob("*.yaml"))]
SOURCES += [*sorted((ROOT / "src").rglob("*.md"))]

WORDS = re.compile("|".join(rf"\b(?:{word})\b" for word in NOT), re.IGNORECASE)


def unsearchable(text: str) -> list[str]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        found += [f"line {number}: {match[0]!r} in {line.strip()!r}" for match in WORDS.finditer(line)]
    return found


def test_the_list_is_short_and_gives_reasons():
    assert len(NOT) <= 40 and all(NOT.values())


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=lambda path: str(path.relative_to(ROOT)))
def test_words_can_be_searched_for(path: Path):
    found = unsearchable(path.read_text("utf-8"))
    assert not found, "\n".join(found)


def test_tests_are_named_in_the_words_of_the_field():
    names = [
        f"{path.name}: {name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))
        if WORDS.search(name.replace("_", " "))
    ]
    assert not names, "\n".join(names)


def test_help_uses_the_words_of_the_field():
    code = (
        "from hf_xsent_cli import main\n"
        "from hf_xsent.cli import COMMANDS\n"
        "for name in COMMANDS:\n"
        "    main([name, '--help'])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "1000"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "usage" in done.stdout and not (found := unsearchable(done.stdout)), "\n".join(found)


def test_words_of_the_list_alone_are_reported() -> None:
    assert len(unsearchable("the user is told\ndrawn so many times\nmade anew")) == 3
    assert unsearchable("question answering, so that\na number of pairs, all of its layers") == []
