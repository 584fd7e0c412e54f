"""Write questions and the sentences that answer them as training pairs, from files in SQuAD's format.

  python trainer_scripts/question_answer_pairs.py "mlqa/dev-context-*.json" "tydiqa/*train.json" --output qa.jsonl

Other sentences of the context are hard negatives of the pair (pretrain --hard_negatives). Contexts and questions with
the same id in several files are translations, as in MLQA: each question is paired with the answering sentence in every
language, and with its translations. Languages are those of the files' names (context-de-question-en as in MLQA, or
xquad.de); other files are English. Do not train on questions or contexts that you measure with.
"""

from __future__ import annotations

import argparse
import glob
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations, product
from pathlib import Path
from typing import Any

from hf_xsent.data.benchmarks.questions import Question, load_questions
from hf_xsent.documents.splitting import split_paragraph
from hf_xsent.errors import HfXsentError
from hf_xsent.files import write_text

LANGUAGES = re.compile(r"context-(\w\w)-question-(\w\w)|\.(\w\w)\.json")


def answering_sentence(question: Question, language: str) -> tuple[str, list[str]] | None:
    """Return the sentence that has the whole answer, and the others (later ones first); None if it spans several.

    >>> context = "Er kam um 9 Uhr. Dr. Maier ging um zehn."
    >>> answering_sentence(Question("1", "Wann ging Dr. Maier?", context, ((34, "zehn"),)), "de")
    ('Dr. Maier ging um zehn.', ['Er kam um 9 Uhr.'])
    """
    start, text = question.answers[0]
    first, last = (_characters(question.context[:place]) for place in (start, start + len(text)))
    sentences = split_paragraph(question.context, language)
    begin = 0
    for place, sentence in enumerate(sentences):
        end = begin + _characters(sentence)
        if begin <= first < end:
            others = sentences[place + 1 :] + sentences[:place][::-1]
            return (sentence, others) if last <= end else None
        begin = end
    return None


def _characters(text: str) -> int:
    """Count characters that are not white space, which splitting changes."""
    return len("".join(text.split()))


def question_pairs(files: Iterable[str], max_characters: int, negatives: int) -> list[dict[str, Any]]:
    """Return pairs of questions with answering sentences and with translated questions, in random order."""
    questions: dict[str, dict[str, str]] = defaultdict(dict)  # by id and language
    answers: dict[str, dict[str, tuple[str, list[str]]]] = defaultdict(dict)
    for file in files:
        match = LANGUAGES.search(Path(file).name)
        languages = [code for code in match.groups() if code] if match else ["en"]
        context_language, question_language = languages[0], languages[-1]
        for question in load_questions(file):
            questions[question.id][question_language] = " ".join(question.question.split())
            found = answering_sentence(question, context_language)
            if found is not None and len(found[0]) <= max_characters:
                others = [text for text in found[1] if len(text) <= max_characters and text != found[0]]
                answers[question.id][context_language] = found[0], others[:negatives]
    pairs: dict[tuple[str, str], list[str]] = {}
    for key, texts in questions.items():
        pairs |= {(text, answer): others for text, (answer, others) in product(texts.values(), answers[key].values())}
        pairs |= {pair: [] for pair in combinations(texts.values(), 2)}
    rows = random.Random(1).sample(sorted(pairs), len(pairs))
    return [{"source": row[0], "target": row[1], "target_negatives": pairs[row]} for row in rows]


def main() -> None:
    """Write the pairs, and print their number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="files or patterns, compressed or not")
    parser.add_argument("--output", required=True, type=Path, help="JSONL file for the pairs")
    parser.add_argument("--max_characters", type=int, default=300, help="drop longer sentences")
    parser.add_argument("--negatives", type=int, default=2, help="at most N other sentences, later ones first")
    options = parser.parse_args()
    try:
        files = [file for pattern in options.files for file in sorted(glob.glob(pattern)) or [pattern]]
        pairs = question_pairs(files, options.max_characters, options.negatives)
        write_text(options.output, (json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs))
    except (HfXsentError, OSError) as error:
        sys.exit(f"question_answer_pairs.py: {error}")
    print(f"{len(pairs):,} pairs")


if __name__ == "__main__":
    main()
