"""Measure alignment error rate, precision, recall and speed of each word aligner on links drawn by people.

  python benchmarks/word_alignment.py --gold word_alignment --models ENCODER runs/tr-wtr-small --choose enfr \
    --bitext "train/{language}-en.tsv.xz" --pairs 10000

The layer of each encoder is chosen on --choose and measured on the other sets. The statistical aligner is trained on
the gold sentences and --pairs pairs of the language's bitext, if it exists; it splits words as ``hf-xsent align-words``
does, and its links are mapped to the words of the gold files.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from hf_xsent.data.benchmarks.gold_links import GoldPair, load_gold_links
from hf_xsent.data.readers.formats import read_pairs
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.data.words.links import Link
from hf_xsent.data.words.splitting import Words, split_words
from hf_xsent.words.aligners import AlignerSettings, WordAligner, open_aligner


def scores(links: Sequence[Iterable[Link]], pairs: Sequence[GoldPair]) -> dict[str, Any]:
    """Return AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), precision and recall in percent (Och and Ney, 2003)."""
    counts = [
        (len(found), len(pair.sure), len(found & pair.sure), len(found & pair.possible))
        for found, pair in zip(map(set, links), pairs, strict=True)
    ]
    all_found, all_sure, found_sure, found_possible = (sum(count) for count in zip(*counts, strict=True))
    return {
        "error_rate": 100 * (1 - (found_sure + found_possible) / max(1, all_found + all_sure)),
        "precision": 100 * found_possible / max(1, all_found),
        "recall": 100 * found_sure / max(1, all_sure),
    }


def measure(aligner: WordAligner, pairs: Sequence[GoldPair]) -> dict[str, Any]:
    """Align the gold sentences with the words of the gold files."""
    started = time.perf_counter()
    found = aligner.align([pair.source for pair in pairs], [pair.target for pair in pairs])
    seconds = time.perf_counter() - started
    return scores(found, pairs) | {"sentences_per_second": len(pairs) / seconds}


def measure_trained(aligner: WordAligner, pairs: Sequence[GoldPair], more: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Align the gold sentences together with more pairs, split into words by us."""
    sides = [
        [split_words(text) for text in texts]
        for texts in (
            [*(pair.source.text for pair in pairs), *(source for source, _ in more)],
            [*(pair.target.text for pair in pairs), *(target for _, target in more)],
        )
    ]
    started = time.perf_counter()
    found = aligner.align(*sides)[: len(pairs)]
    seconds = time.perf_counter() - started
    lifted = [
        lift(links, (sides[0][number], pair.source), (sides[1][number], pair.target))
        for number, (links, pair) in enumerate(zip(found, pairs, strict=True))
    ]
    rate = {"sentences_per_second": len(sides[0]) / seconds}
    return scores(lifted, pairs) | rate | {"bitext_pairs": len(more)}


def lift(links: Sequence[Link], source: tuple[Words, Words], target: tuple[Words, Words]) -> set[Link]:
    """Map links of our words to links of the gold words that contain them."""
    around = [
        [next(k for k, (start, end) in enumerate(gold.spans) if start <= place < end) for place, _ in ours.spans]
        for ours, gold in (source, target)
    ]
    return {(around[0][i], around[1][j]) for i, j in links}


def bitext(template: str, pair: str, count: int) -> list[tuple[str, str]]:
    """Read pairs of the gold set's languages, source first; none if there is no file."""
    language = pair.replace("en", "", 1) if pair.startswith("en") else pair[:2]
    path = template.replace("{language}", language)
    if not Path(path).is_file():
        return []
    pairs = list(islice(read_pairs(BitextSource(language, path)), count))
    return [(target, source) for source, target in pairs] if pair.startswith("en") else pairs


def table(runs: Sequence[dict[str, Any]]) -> str:
    """Format one line per run."""
    lines = ["| gold | model | aligner | AER | precision | recall | sentences/s |", "|---|---|---|---|---|---|---|"]
    for run in runs:
        lines.append(
            f"| {run['gold']} | {run['model']} | {run['aligner']} | {run['error_rate']:.1f} | {run['precision']:.1f} "
            f"| {run['recall']:.1f} | {run['sentences_per_second']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Choose the layer, measure all sets, save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gold", required=True, help="Folder of NAME.src-tgt and NAME.gold.")
    parser.add_argument("--sets", nargs="+", default=["enfr", "zhen", "jaen", "roen"])
    parser.add_argument("--models", nargs="+", required=True, help="Encoders of the embedding aligner.")
    parser.add_argument("--layers", nargs="+", type=int, default=[5, 6, 7, 8, 9], help="Choose among these.")
    parser.add_argument("--thresholds", nargs="+", type=float, default=[0.3], help="Least posteriors of a link.")
    parser.add_argument("--choose", default="enfr", help="Choose the layer on this set.")
    parser.add_argument("--bitext", help="Also train the statistical aligner on these pairs.")
    parser.add_argument("--pairs", type=int, default=10000, help="Number of pairs per language.")
    parser.add_argument("--span", help="A WSPAlign checkpoint for the span aligner.")
    parser.add_argument("--output", default="benchmarks/results/word_alignment.json")
    options = parser.parse_args()
    gold = {name: load_gold_links(Path(options.gold) / name) for name in options.sets}
    runs: list[dict[str, Any]] = []

    settings: dict[str, Any] = {"chosen_on": options.choose, "pairs": options.pairs, "layers": {}}

    def save(gold: str, aligner: str, model: str, figures: dict[str, Any]) -> None:
        runs.append({"gold": gold, "aligner": aligner, "model": model, **figures})
        Path(options.output).write_text(json.dumps({"settings": settings, "runs": runs}, indent=2) + "\n")
        print(json.dumps(runs[-1]), flush=True)

    for model in options.models:
        name = Path(model).name

        def embedding(layer: int, threshold: float | None = None, model: str = model) -> WordAligner:
            return open_aligner(AlignerSettings(model=model, layer=layer, threshold=threshold))

        errors = {layer: measure(embedding(layer), gold[options.choose])["error_rate"] for layer in options.layers}
        settings["layers"][name] = errors
        best = min(errors, key=errors.__getitem__)
        for threshold in options.thresholds:
            aligner = embedding(best, threshold)
            for of, pairs in gold.items():
                save(of, f"embedding, layer {best}, threshold {threshold}", name, measure(aligner, pairs))
    if options.span:
        aligner = open_aligner(AlignerSettings(aligner="span", model=options.span))
        for of, pairs in gold.items():
            save(of, "span", Path(options.span).name, measure(aligner, pairs))
    for of, pairs in gold.items() if options.bitext else ():
        more = bitext(options.bitext, of, options.pairs)
        save(
            of,
            "statistical",
            "eflomal",
            measure_trained(open_aligner(AlignerSettings(aligner="statistical")), pairs, more),
        )
    print(table(runs))


if __name__ == "__main__":
    main()
