"""Measure how a model aligns languages: similarity gaps, hubs, and a plot of words, before and after alignment.

hf-xsent analyse runs/mine --before xlm-roberta-base --tatoeba data/tatoeba --languages de zh sw --output analysis
hf-xsent analyse xlm-roberta-base --layer 8 --pooling mean --tatoeba data/tatoeba --languages de --output analysis
hf-xsent analyse runs/wacse --before runs/tr --layer 0 --words 60 --data "train/{language}-en.tsv.gz" \
  --tatoeba data/tatoeba --languages de zh kk te --output figure_1
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hf_xsent.cli.flags import add_shared

if TYPE_CHECKING:
    from hf_xsent.data.benchmarks.tatoeba import TatoebaSet
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.pages.scatter import Panel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("model", help="Analyse this model: a folder or a Hub id.")
    add("--before", metavar="MODEL", help="Compare with this model: the one that alignment started from.")
    add("--tatoeba", required=True, metavar="FOLDER", help="Read Tatoeba from this folder or Hub id.")
    add("--languages", nargs="+", required=True, metavar="CODE", help="Analyse these languages (de or deu).")
    add("--pairs", type=int, default=1000, help="Compare at most N pairs per language.")
    add("--drawn", type=int, default=4, help="Plot the words of N pairs per language.")
    words = "Plot N words per language, sampled by their frequency, each without context, instead of --drawn."
    add("--words", type=int, metavar="N", help=words)
    bitext = "Sample --words from this bitext, written like pretrain's --data. (default: all pairs of Tatoeba)"
    add("--data", nargs="+", metavar="DE=PAIRS", help=bitext)
    add("--pieces", action="store_true", help="Plot word pieces instead of words.")
    add("--layer", type=int, help="Use the hidden states of this layer. (default: the last)")
    add("--output", required=True, metavar="FOLDER", help="Write gaps.json and words.svg into this folder.")
    add_shared(parser, "--pooling", "--device")


def run(arguments: argparse.Namespace) -> None:
    """Compare sentence embeddings, project words, write both."""
    from pathlib import Path

    from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
    from hf_xsent.errors import RecipeError
    from hf_xsent.evaluation.analysis import alignment_gap
    from hf_xsent.evaluation.report import render_table, versions
    from hf_xsent.evaluation.runner import describe
    from hf_xsent.files import check_writable, write_json
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.pages.scatter import write_scatter

    if arguments.pairs < 2 or arguments.drawn < 1:
        raise RecipeError("--pairs must be at least 2 and --drawn at least 1")
    if arguments.words is not None and arguments.words < 1:
        raise RecipeError("--words must be at least 1")
    if arguments.data and arguments.words is None:
        raise RecipeError("--data is for --words, which samples words from it: give --words N, or drop --data")
    folder = Path(arguments.output)
    check_writable(folder / "gaps.json")
    sets = load_tatoeba(arguments.tatoeba, arguments.languages)
    texts = _sampled_words(sets, arguments) if arguments.words else _first_pairs(sets, arguments.drawn)
    content, rows, panels = [], [], []
    for name in filter(None, (arguments.before, arguments.model)):
        embedder = SentenceEmbedder.from_pretrained(
            name, arguments.pooling, layer=arguments.layer, device=arguments.device
        )
        gaps = {}
        for one in sets:
            sides = [embedder.encode(side[: arguments.pairs]) for side in (one.sources, one.targets)]
            gaps[one.language] = alignment_gap(*sides).to_dict()
            rows.append([name, one.language, *gaps[one.language].values()])
        view = {"pooling": embedder.view.pooling, "layer": embedder.view.layer}
        content.append({"settings": {**describe(embedder, name), **view}, "versions": versions(), "languages": gaps})
        panels += _panels(embedder, texts, str(Path(name).name), arguments.pieces)
    print(render_table(["model", "language", *gaps[sets[0].language]], rows))
    write_json(folder / "gaps.json", {"runs": content})
    write_scatter(folder / "words.svg", panels)
    plotted = f"{arguments.words} words" if arguments.words else f"{arguments.drawn} pairs"
    print(f"gaps     {folder / 'gaps.json'}\nwords    {folder / 'words.svg'} ({plotted} per language)")


def _first_pairs(sets: list[TatoebaSet], drawn: int) -> dict[str, list[str]]:
    """Return the first sentences of each language."""
    texts: dict[str, list[str]] = {one.language: one.sources[:drawn] for one in sets}
    texts["eng"] = list(dict.fromkeys(text for one in sets for text in one.targets[:drawn]))
    return texts


def _sampled_words(sets: list[TatoebaSet], arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Sample words of each language by frequency, from bitext or from Tatoeba."""
    from hf_xsent.data.bitext import load_bitext
    from hf_xsent.evaluation.analysis import sample_words

    if arguments.data:
        bitext = load_bitext(arguments.data, cleaning=None)
        words = {language: sample_words(bitext.pairs(language)[0], arguments.words) for language in bitext.languages}
        return {**words, "en": sample_words(bitext.sentences("target"), arguments.words)}
    words = {one.language: sample_words(one.sources, arguments.words) for one in sets}
    return {**words, "eng": sample_words((text for one in sets for text in one.targets), arguments.words)}


def _panels(embedder: SentenceEmbedder, texts: dict[str, list[str]], name: str, pieces: bool) -> list[Panel]:
    from hf_xsent.evaluation.analysis import PROJECTIONS, project, word_vectors
    from hf_xsent.pages.scatter import Panel

    sentences = [(language, text) for language, some in texts.items() for text in some]
    words = word_vectors(embedder, [text for _, text in sentences], embedder.view.layer, pieces)
    groups = [sentences[number][0] for number in words.sentences]
    return [Panel(f"{name}, {method}", project(words.vectors, method), words.texts, groups) for method in PROJECTIONS]
