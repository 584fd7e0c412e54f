"""Measure how a model aligns languages: similarity gaps, hubs, and a plot of words, before and after alignment.

hf-xsent analyse runs/mine --before xlm-roberta-base --tatoeba data/tatoeba --languages de zh sw --output analysis
hf-xsent analyse xlm-roberta-base --layer 8 --pooling mean --tatoeba data/tatoeba --languages de --output analysis
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
    folder = Path(arguments.output)
    check_writable(folder / "gaps.json")
    sets = load_tatoeba(arguments.tatoeba, arguments.languages)
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
        panels += _panels(embedder, sets, str(Path(name).name), arguments.drawn, arguments.pieces)
    print(render_table(["model", "language", *gaps[sets[0].language]], rows))
    write_json(folder / "gaps.json", {"runs": content})
    write_scatter(folder / "words.svg", panels)
    print(f"gaps     {folder / 'gaps.json'}\nwords    {folder / 'words.svg'} ({arguments.drawn} pairs per language)")


def _panels(embedder: SentenceEmbedder, sets: list[TatoebaSet], name: str, drawn: int, pieces: bool) -> list[Panel]:
    from hf_xsent.evaluation.analysis import PROJECTIONS, project, word_vectors
    from hf_xsent.pages.scatter import Panel

    texts: dict[str, list[str]] = {one.language: one.sources[:drawn] for one in sets}
    texts["eng"] = list(dict.fromkeys(text for one in sets for text in one.targets[:drawn]))
    sentences = [(language, text) for language, some in texts.items() for text in some]
    found = word_vectors(embedder, [text for _, text in sentences], embedder.view.layer, pieces)
    words = found.without_punctuation()
    groups = [sentences[number][0] for number in words.sentences]
    return [Panel(f"{name}, {method}", project(words.vectors, method), words.texts, groups) for method in PROJECTIONS]
