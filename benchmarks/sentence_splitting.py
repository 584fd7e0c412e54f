"""Compare our rules for splitting text into sentences with those of sentencex and pysbd.

  python benchmarks/sentence_splitting.py --tatoeba data/tatoeba --ntrex ntrex

Lines of Tatoeba and NTREX are joined to texts of 10 lines; a boundary is correct if a line ends there. Some lines are
no sentences: they have no full stop, or hold several sentences. pip install sentencex pysbd
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path

from hf_xsent.data.readers.compression import lines
from hf_xsent.documents.splitting import split_paragraph

LANGUAGES = {"ar": "ara", "de": "deu", "en": "eng", "es": "spa", "fr": "fra", "hi": "hin", "ja": "jpn", "ru": "rus",
             "tr": "tur", "zh": "cmn"}  # fmt: skip
LINES, LINES_OF_A_TEXT = 200, 10
Split = Callable[[str, str], Sequence[str]]


def splitters() -> dict[str, Split]:
    """Return a function of text and language for each library."""
    import pysbd
    import sentencex

    return {
        "hf-xsent": split_paragraph,
        f"sentencex {version('sentencex')}": lambda text, code: list(sentencex.segment(code, text)),
        f"pysbd {version('pysbd')}": lambda text, code: pysbd.Segmenter(language=code, clean=False).segment(text),
    }


def boundaries(sentences: Sequence[str]) -> set[int]:
    """Return the places of the ends of all sentences but the last, counted in characters without spaces."""
    return {*accumulate(len("".join(sentence.split())) for sentence in sentences[:-1])}


def f1(split: Split, texts: Sequence[Sequence[str]], code: str) -> float | None:
    """Return the F1 of boundaries in percent; None if a library does not support the language."""
    correct = predicted = gold = 0
    for sentences in texts:
        try:
            parts = split(("" if code in ("zh", "ja") else " ").join(sentences), code)
        except ValueError:
            return None
        expected, found = boundaries(sentences), boundaries([part for part in parts if part.strip()])
        correct, predicted, gold = correct + len(expected & found), predicted + len(found), gold + len(expected)
    return round(200 * correct / (predicted + gold), 1)


def main() -> None:
    """Measure, print a table and write results/sentence_splitting.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tatoeba", type=Path, required=True)
    parser.add_argument("--ntrex", type=Path, required=True)
    options = parser.parse_args()
    corpora: dict[str, dict[str, list[list[str]]]] = {"tatoeba": {}, "ntrex": {}}
    for code, name in LANGUAGES.items():
        pair = f"tatoeba.{'deu' if name == 'eng' else name}-eng.{name}"
        for corpus, path in (("tatoeba", options.tatoeba / pair), ("ntrex", options.ntrex / f"{code}.txt.xz")):
            texts = [line.strip() for _, line in lines(path)][:LINES]
            corpora[corpus][code] = [texts[i : i + LINES_OF_A_TEXT] for i in range(0, len(texts), LINES_OF_A_TEXT)]
    runs = []
    for name, split in splitters().items():
        started = time.perf_counter()
        scores = {corpus: {code: f1(split, texts[code], code) for code in texts} for corpus, texts in corpora.items()}
        run = {"rules": name, "f1": scores, "seconds": round(time.perf_counter() - started, 2)}
        run["mean"] = {corpus: _mean(list(by_code.values())) for corpus, by_code in scores.items()}
        print(name, run["mean"], run["seconds"])
        runs.append(run)
    output = Path(__file__).parent / "results" / "sentence_splitting.json"
    output.write_text(json.dumps({"runs": runs}, indent=1) + "\n", encoding="utf-8")


def _mean(scores: Sequence[float | None]) -> float:
    known = [score for score in scores if score is not None]
    return round(sum(known) / len(known), 1)


if __name__ == "__main__":
    main()
