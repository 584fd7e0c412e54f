"""Cut a model's vocabulary down to what some languages need: a smaller model, and nearly the same vectors for them.

hf-xsent trim-vocab runs/mine trimmed --languages de,fr --corpus "train/{language}-en.tsv.xz" --tatoeba data/tatoeba
hf-xsent trim-vocab xlm-roberta-base trimmed --corpus de=pairs.tsv --pieces 40000
hf-xsent trim-vocab xlm-roberta-base trimmed --text de=news.de.txt en=news.en.txt
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import chain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("model", help="Trim this model: a folder or a Hub id.")
    parser.add_argument("folder", help="Write here, as hf-xsent export does; the folder must be new or empty.")
    parser.add_argument("--corpus", nargs="+", help="Keep what these pairs need, given as to hf-xsent pretrain --data.")
    parser.add_argument(
        "--text", nargs="+", help="Keep what these files need, one sentence a line: de=news.de.txt, compressed or not."
    )
    parser.add_argument(
        "--languages", metavar="CODES", help="Of all that is named, take these languages alone: de,fr,…"
    )
    parser.add_argument("--target_language", default="en", help="Name the language of the pairs' target side.")
    parser.add_argument(
        "--pieces", type=int, help="Keep at most so many pieces, the most used; default: all that the corpus needs."
    )
    parser.add_argument("--tatoeba", metavar="FOLDER", help="Measure accuracy before and after on this test set.")
    parser.add_argument("--sample", type=int, default=1000, help="Measure on at most so many pairs of each language.")
    parser.add_argument("--cache_dir", help="Keep the cleaned, memory-mapped bitext here.")
    parser.add_argument("--overwrite", action="store_true", help="Replace an earlier export in that folder.")
    parser.add_argument("--output", metavar="FILE", help="Write the report to this JSON file as well.")


def run(arguments: argparse.Namespace) -> None:
    """Read, choose, cut, export, measure."""
    from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
    from hf_xsent.data.bitext import load_bitext, resolve_sources
    from hf_xsent.data.readers.compression import lines
    from hf_xsent.data.readers.sources import source_files
    from hf_xsent.errors import DataError
    from hf_xsent.evaluation.report import render_table
    from hf_xsent.evaluation.retrieval import retrieval_by_language
    from hf_xsent.files import write_json
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.publishing.vocabulary_trimming import trim_vocabulary

    pairs_of = resolve_sources(arguments.corpus, target_language=arguments.target_language) if arguments.corpus else {}
    files_of = resolve_sources(arguments.text) if arguments.text else {}
    there = list(dict.fromkeys((*pairs_of, *files_of)))
    if not there:
        raise DataError("no text tells which pieces are needed: give --corpus de=pairs.tsv or --text de=news.txt")
    languages = arguments.languages.split(",") if arguments.languages else there
    for language in languages:
        if language not in there:
            raise DataError(f"neither --corpus nor --text holds {language!r}: there are {', '.join(there)}")
    measured = [language for language in languages if language != arguments.target_language]  # each with the target
    if arguments.tatoeba and not measured:
        raise DataError(f"--tatoeba has nothing to measure on: {arguments.target_language} is the only language")
    sets = load_tatoeba(arguments.tatoeba, measured) if arguments.tatoeba else []
    texts: dict[str, Iterable[str]] = {
        language: chain.from_iterable(
            (line for _, line in lines(path)) for source in files_of.get(language, ()) for path in source_files(source)
        )
        for language in languages
    }
    if chosen := [source for language in languages for source in pairs_of.get(language, ())]:
        bitext = load_bitext(chosen, target_language=arguments.target_language, cache_dir=arguments.cache_dir)
        for language in bitext.languages:  # the target's side weighs as much
            texts[language] = chain(texts[language], *bitext.pairs(language))
    report = trim_vocabulary(arguments.model, arguments.folder, texts, arguments.pieces, arguments.overwrite)
    rows: list[list[object]] = [
        ["pieces", report.pieces_before, report.pieces_after],
        ["weights, in millions", report.weights_before / 1e6, report.weights_after / 1e6],
        ["pieces a word", report.pieces_a_word_before, report.pieces_a_word_after],
    ]
    accuracies = []
    pairs = {one.language: (one.sources[: arguments.sample], one.targets[: arguments.sample]) for one in sets}
    for name in (arguments.model, arguments.folder) if sets else ():
        model = SentenceEmbedder.from_pretrained(name)
        accuracies.append({language: one.mean for language, one in retrieval_by_language(model, pairs).items()})
    if sets:
        before, after = accuracies
        rows += [[f"Tatoeba {language}", before[language], after[language]] for language in before]
        rows.append(["Tatoeba, mean", *(sum(each.values()) / len(each) for each in accuracies)])
    print(render_table(["", "before", "after"], rows))
    print(f"trimmed: {arguments.folder}")
    if arguments.output:
        write_json(arguments.output, report.to_dict() | {"tatoeba": accuracies, "languages": languages})
