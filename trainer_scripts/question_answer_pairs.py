"""Write questions and the sentences that answer them as training pairs, from files in SQuAD's format.

  python trainer_scripts/question_answer_pairs.py "mlqa/dev-context-*.json" "tydiqa/*train.json" --output questions.tsv

Contexts and questions with the same id in several files are translations, as in MLQA: each question is paired with the
answering sentence in every language, and with itself in the others. Languages are those of MLQA's file names
(context-de-question-en); other files are English. Do not train on the questions or paragraphs that you measure with.
"""

from __future__ import annotations

import argparse
import glob
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations, product
from pathlib import Path

from hf_xsent.data.benchmarks.questions import Question, load_questions
from hf_xsent.documents.splitting import split_paragraph
from hf_xsent.errors import HfXsentError
from hf_xsent.files import check_can_create, write_text

LANGUAGES = re.compile(r"context-(\w\w)-question-(\w\w)")


def answering_sentence(question: Question, language: str) -> str | None:
    """Return the sentence of the context that has the whole answer; None if it runs over several.

    >>> context = "Er kam um 9 Uhr. Dr. Maier ging um zehn."
    >>> answering_sentence(Question("1", "Wann ging Dr. Maier?", context, ((34, "zehn"),)), "de")
    'Dr. Maier ging um zehn.'
    """
    start, text = question.answers[0]
    first, last = (_characters(question.context[:place]) for place in (start, start + len(text)))
    begin = 0
    for sentence in split_paragraph(question.context, language):
        end = begin + _characters(sentence)
        if begin <= first < end:
            return sentence if last <= end else None
        begin = end
    return None


def _characters(text: str) -> int:
    """Count characters that are not white space, which splitting changes."""
    return len("".join(text.split()))


def question_pairs(files: Iterable[str], max_characters: int) -> list[tuple[str, str]]:
    """Return pairs of questions with answering sentences and with translated questions, in random order."""
    questions: dict[str, dict[str, str]] = defaultdict(dict)  # by id and language
    answers: dict[str, dict[str, str]] = defaultdict(dict)
    for file in files:
        match = LANGUAGES.search(Path(file).name)
        context_language, question_language = match.groups() if match else ("en", "en")
        for question in load_questions(file):
            questions[question.id][question_language] = " ".join(question.question.split())
            sentence = answering_sentence(question, context_language)
            if sentence is not None and len(sentence) <= max_characters:
                answers[question.id][context_language] = sentence
    pairs = {pair for key in questions for pair in product(questions[key].values(), answers[key].values())}
    pairs |= {pair for texts in questions.values() for pair in combinations(texts.values(), 2)}
    return random.Random(1).sample(sorted(pairs), len(pairs))


def main() -> None:
    """Write the pairs, and print their number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="files or patterns, compressed or not")
    parser.add_argument("--output", required=True, type=Path, help="TSV file for the pairs")
    parser.add_argument("--max_characters", type=int, default=300, help="drop longer answers")
    options = parser.parse_args()
    try:
        check_can_create(options.output.parent)
        files = [file for pattern in options.files for file in sorted(glob.glob(pattern)) or [pattern]]
        pairs = question_pairs(files, options.max_characters)
        write_text(options.output, "".join(f"{first}\t{second}\n" for first, second in pairs))
    except HfXsentError as error:
        sys.exit(f"question_answer_pairs.py: {error}")
    print(f"{len(pairs):,} pairs")


if __name__ == "__main__":
    main()
