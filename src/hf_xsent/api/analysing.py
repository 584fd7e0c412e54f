"""Analyse how a model aligns languages, and measure the cost of training methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_xsent.api.opening import this_device
from hf_xsent.data.benchmarks.tatoeba import TatoebaSet, load_tatoeba
from hf_xsent.data.bitext import load_bitext
from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.analysis import PROJECTIONS, alignment_gap, project, sample_words, word_vectors
from hf_xsent.evaluation.report import versions
from hf_xsent.evaluation.runner import describe
from hf_xsent.files import check_writable, write_json, write_text
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.pages.charts import WordMap, standalone, word_maps
from hf_xsent.training.measuring import TrainingCost, check_methods, check_pairs, training_cost


def analyse(
    model: str,
    tatoeba: str | Path,
    languages: Sequence[str],
    output: str | Path,
    *,
    before: str | None = None,
    sample: int = 1000,
    plot_pairs: int = 4,
    words: int | None = None,
    data: Any = None,
    word_pieces: bool = False,
    layer: int | None = None,
    pooling: str | None = None,
    device: str | None = None,
) -> list[dict[str, Any]]:
    """Measure similarity gaps and hubs per language; write them to gaps.json, and a plot of words to words.svg.

    ``before`` is a model to compare with: the one that alignment started from. ``words`` plots that many words per
    language, sampled by their frequency in ``data`` (bitext) or in Tatoeba, instead of the words of the first
    ``plot_pairs`` pairs. Return settings and gaps of each model.

    ```python
    from hf_xsent import analyse

    for run in analyse("runs/mine", "path/to/tatoeba", ["de", "sw"], "analysis", before="xlm-roberta-base"):
        print(run["settings"]["model"], run["languages"])
    ```
    """
    if sample < 2 or plot_pairs < 1:
        raise RecipeError("--sample must be at least 2 and --plot_pairs at least 1")
    if words is not None and words < 1:
        raise RecipeError("--words must be at least 1")
    if data and words is None:
        raise RecipeError("--data is for --words, which samples words from it: give --words N, or drop --data")
    folder = Path(output)
    check_writable(folder / "gaps.json")
    sets = load_tatoeba(str(tatoeba), languages)
    texts = _first_pairs(sets, plot_pairs) if words is None else _sampled_words(sets, words, data)
    runs, panels = [], []
    for name in filter(None, (before, model)):
        embedder = SentenceEmbedder.from_pretrained(name, pooling, layer=layer, device=device)
        gaps = {}
        for one in sets:
            sides = [embedder.encode(side[:sample]) for side in (one.sources, one.targets)]
            gaps[one.language] = alignment_gap(*sides).to_dict()
        view = {"pooling": embedder.view.pooling, "layer": embedder.view.layer}
        runs.append({"settings": {**describe(embedder, name), **view}, "versions": versions(), "languages": gaps})
        panels += _panels(embedder, texts, Path(name).name, word_pieces)
    write_json(folder / "gaps.json", {"runs": runs})
    write_text(folder / "words.svg", standalone(word_maps("Words by their embeddings", panels)))
    return runs


def _first_pairs(sets: Sequence[TatoebaSet], plot_pairs: int) -> dict[str, list[str]]:
    """Return the first sentences of each language."""
    texts: dict[str, list[str]] = {one.language: one.sources[:plot_pairs] for one in sets}
    texts["eng"] = list(dict.fromkeys(text for one in sets for text in one.targets[:plot_pairs]))
    return texts


def _sampled_words(sets: Sequence[TatoebaSet], count: int, data: Any) -> dict[str, list[str]]:
    """Sample words of each language by frequency, from bitext or from Tatoeba."""
    if data:
        bitext = load_bitext(data, cleaning=None)
        words = {language: sample_words(bitext.pairs(language)[0], count) for language in bitext.languages}
        return {**words, "en": sample_words(bitext.sentences("target"), count)}
    words = {one.language: sample_words(one.sources, count) for one in sets}
    return {**words, "eng": sample_words((text for one in sets for text in one.targets), count)}


def _panels(embedder: SentenceEmbedder, texts: Mapping[str, list[str]], name: str, pieces: bool) -> list[WordMap]:
    sentences = [(language, text) for language, some in texts.items() for text in some]
    found = word_vectors(embedder, [text for _, text in sentences], embedder.view.layer, pieces)
    words = found.without_punctuation()
    groups = [sentences[number][0] for number in words.sentences]
    return [WordMap(f"{name}, {method}", project(words.vectors, method), words.texts, groups) for method in PROJECTIONS]


def measure_cost(
    model: str,
    data: Any,
    methods: Sequence[str] = ("tr", "tr+tlm", "dap"),
    *,
    pairs: int = 32,
    max_length: int = 32,
    repeats: int = 5,
    device: str | None = None,
    output: str | Path | None = None,
) -> list[TrainingCost]:
    """Measure FLOPs and time per pair of training methods (tr, tr+mlm, tr+tlm, dap, ppa, wacse) on an encoder.

    ``pairs`` is the batch size; times are the median of ``repeats`` steps.

    ```python
    from hf_xsent import measure_cost

    for one in measure_cost("xlm-roberta-base", {"de": "pairs.tsv"}, ["tr", "dap"]):
        print(one.method, one.forward_gflops, one.training_ms)
    ```
    """
    if pairs < 2 or repeats < 1:
        raise RecipeError("--pairs must be at least 2 and --repeats at least 1")
    check_methods(methods)
    if output is not None:
        check_writable(output)
    bitext = load_bitext(data)
    batch = [bitext[number] for number in range(min(pairs, len(bitext)))]
    check_pairs(methods, batch)
    device = this_device(device)
    costs = training_cost(model, batch, methods, max_length, repeats, device, corpus=bitext)
    if output is not None:
        settings = {"model": model, "pairs": len(batch), "max_length": max_length, "repeats": repeats, "device": device}
        content = {"settings": settings, "versions": versions(), "methods": [one.to_dict() for one in costs]}
        write_json(output, content)
    return costs
