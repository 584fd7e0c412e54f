"""Look at how a model aligns languages: gaps, hubs, and a picture of words, before and after alignment.

hf-xsent analyse runs/mine --before xlm-roberta-base --tatoeba data/tatoeba --languages de zh sw --output analysis
hf-xsent analyse xlm-roberta-base --layer 8 --pooling mean --tatoeba data/tatoeba --languages de --output analysis
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hf_xsent.data.benchmarks.tatoeba import TatoebaSet
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.pages.scatter import Panel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("model", help="Open this model: a folder or a Hub id.")
    parser.add_argument("--before", metavar="MODEL", help="Show this model, too: the one that alignment started from.")
    parser.add_argument(
        "--tatoeba", required=True, metavar="FOLDER", help="Take sentences and translations here: a folder or a Hub id."
    )
    parser.add_argument("--languages", nargs="+", required=True, metavar="CODE", help="Look at these languages.")
    parser.add_argument("--pairs", type=int, default=1000, help="Compare at most so many pairs of each language.")
    parser.add_argument("--drawn", type=int, default=4, help="Draw the words of so many pairs of each language.")
    parser.add_argument("--pieces", action="store_true", help="Draw word pieces instead of words.")
    parser.add_argument("--pooling", help="Pool by cls, mean or max; default: as the model states.")
    parser.add_argument("--layer", type=int, help="Take the states after this layer; default: the last.")
    parser.add_argument("--device", help="Compute on this device; default: the GPU if there is one.")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="Write gaps.json and words.svg here.")


def run(arguments: argparse.Namespace) -> None:
    """Compare sentences, project words, write both."""
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
    print(
        f"{folder / 'gaps.json'} holds these figures, {folder / 'words.svg'} the words of {arguments.drawn} pairs each"
    )


def _panels(embedder: SentenceEmbedder, sets: list[TatoebaSet], name: str, drawn: int, pieces: bool) -> list[Panel]:
    from hf_xsent.evaluation.analysis import PROJECTIONS, project, word_vectors
    from hf_xsent.pages.scatter import Panel

    texts: dict[str, list[str]] = {one.language: one.sources[:drawn] for one in sets}
    texts["eng"] = list(dict.fromkeys(text for one in sets for text in one.targets[:drawn]))
    sentences = [(language, text) for language, some in texts.items() for text in some]
    words = word_vectors(embedder, [text for _, text in sentences], embedder.view.layer, pieces)
    groups = [sentences[number][0] for number in words.sentences]
    return [Panel(f"{name}, {method}", project(words.vectors, method), words.texts, groups) for method in PROJECTIONS]
