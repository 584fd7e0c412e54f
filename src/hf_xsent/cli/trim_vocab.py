"""Trim a model's vocabulary to what some languages need: a smaller model for them.

hf-xsent trim-vocab runs/mine --output trimmed --data "train/{language}-en.tsv.xz" --languages de fr --tatoeba tatoeba
hf-xsent trim-vocab xlm-roberta-base --output trimmed --data de=pairs.tsv --pieces 40000
hf-xsent trim-vocab xlm-roberta-base --output trimmed --text de=news.de.txt en=news.en.txt
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import chain

from hf_xsent.cli.flags import add_output, add_shared


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("model", help="Trim this model: a folder or a Hub id.")
    add_output(parser, "FOLDER", "Write the export into this new or empty folder.")
    data = "Keep the word pieces that these pairs use; format of hf-xsent pretrain --data."
    add("--data", nargs="+", metavar="CODE=FILE", help=data)
    text = "Keep the word pieces that these files use, one sentence per line: de=news.de.txt."
    add("--text", nargs="+", metavar="CODE=FILE", help=text)
    add(
        "--languages", nargs="+", metavar="CODE", help="Use these languages: de fr. (default: all of --data and --text)"
    )
    add_shared(parser, "--target_language")
    add("--pieces", type=int, help="Keep at most N word pieces. (default: all that the texts use, and all characters)")
    cache = "Cache the cleaned bitext in this folder. (default: hf_xsent/bitext in HF_HOME)"
    add("--cache_dir", metavar="FOLDER", help=cache)
    add("--report", metavar="FILE", help="Write sizes and accuracies to this JSON file, too.")
    add_shared(parser, "--tatoeba", "--sample", "--overwrite")


def run(arguments: argparse.Namespace) -> None:
    """Read the texts, choose pieces, trim, export, measure."""
    from dataclasses import asdict

    from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
    from hf_xsent.data.bitext import load_bitext, resolve_sources
    from hf_xsent.data.readers.compression import lines
    from hf_xsent.data.readers.sources import source_files
    from hf_xsent.errors import DataError
    from hf_xsent.evaluation.retrieval import retrieval_by_language
    from hf_xsent.files import write_json
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.pages.tables import Table
    from hf_xsent.publishing.vocabulary_trimming import trim_vocabulary

    pairs_of = resolve_sources(arguments.data, target_language=arguments.target_language) if arguments.data else {}
    files_of = resolve_sources(arguments.text) if arguments.text else {}
    known = list(dict.fromkeys((*pairs_of, *files_of)))
    if not known:
        raise DataError("no text to choose the pieces by: give --data de=pairs.tsv or --text de=news.txt")
    languages = arguments.languages or known
    for language in languages:
        if language not in known:
            raise DataError(f"neither --data nor --text has {language!r}: their languages are {', '.join(known)}")
    measured = [language for language in languages if language != arguments.target_language]
    if arguments.tatoeba and not measured:
        raise DataError(f"--tatoeba cannot measure {arguments.target_language} alone: add another language")
    sets = load_tatoeba(arguments.tatoeba, measured) if arguments.tatoeba else []
    texts: dict[str, Iterable[str]] = {
        language: chain.from_iterable(
            (line for _, line in lines(path)) for source in files_of.get(language, ()) for path in source_files(source)
        )
        for language in languages
    }
    if chosen := [source for language in languages for source in pairs_of.get(language, ())]:
        bitext = load_bitext(chosen, target_language=arguments.target_language, cache_dir=arguments.cache_dir)
        for language in bitext.languages:  # both sides count for this language
            texts[language] = chain(texts[language], *bitext.pairs(language))
    report = trim_vocabulary(arguments.model, arguments.output, texts, arguments.pieces, arguments.overwrite)
    rows: list[list[object]] = [
        ["pieces", report.pieces_before, report.pieces_after],
        ["weights (millions)", report.weights_before / 1e6, report.weights_after / 1e6],
        ["pieces per word", report.pieces_per_word_before, report.pieces_per_word_after],
    ]
    accuracies = []
    pairs = {one.language: (one.sources[: arguments.sample], one.targets[: arguments.sample]) for one in sets}
    for name in (arguments.model, arguments.output) if sets else ():
        model = SentenceEmbedder.from_pretrained(name)
        accuracies.append({language: one.mean for language, one in retrieval_by_language(model, pairs).items()})
    if sets:
        before, after = accuracies
        rows += [[f"Tatoeba {language}", before[language], after[language]] for language in before]
        rows.append(["Tatoeba, mean", *(sum(each.values()) / len(each) for each in accuracies)])
    print(Table(["", "before", "after"], rows))
    print(f"the trimmed model is in {arguments.output}")
    if arguments.report:
        write_json(arguments.report, asdict(report) | {"tatoeba": accuracies, "languages": languages})
