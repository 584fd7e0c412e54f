"""Analyse how a model aligns languages, before and after training: gaps.json, and words.svg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_xsent.data.benchmarks.tatoeba import TatoebaSet, load_tatoeba
from hf_xsent.data.bitext import load_bitext
from hf_xsent.evaluation.analysis import PROJECTIONS, alignment_gap, project, sample_words, word_vectors
from hf_xsent.evaluation.evaluate import describe
from hf_xsent.evaluation.report import versions
from hf_xsent.evaluation.settings import AnalyseSettings
from hf_xsent.files import check_writable, write_json, write_text
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.pages.charts import WordMap, standalone, word_maps
from hf_xsent.pages.tables import Table
from hf_xsent.settings.command import command


@dataclass(frozen=True)
class Analysis:
    """The settings and the gaps per language of each model, which gaps.json holds."""

    runs: Sequence[Mapping[str, Any]]
    folder: Path

    def __str__(self) -> str:
        """Format one line per model and language."""
        rows = [
            [run["settings"]["model"], language, *gaps.values()]
            for run in self.runs
            for language, gaps in run["languages"].items()
        ]
        table = Table(["model", "language", *next(iter(self.runs[0]["languages"].values()))], rows)
        return f"{table}\ngaps     {self.folder / 'gaps.json'}\nwords    {self.folder / 'words.svg'}"


@command(AnalyseSettings)
def analyse(settings: AnalyseSettings) -> Analysis:
    """Measure similarity gaps and hubs per language; write them to gaps.json, and a plot of words to words.svg.

    ```python
    from hf_xsent import analyse

    for run in analyse("runs/mine", "path/to/tatoeba", ["de", "sw"], "analysis", before="xlm-roberta-base").runs:
        print(run["settings"]["model"], run["languages"])
    ```
    """
    folder = Path(settings.output)
    check_writable(folder / "gaps.json")
    sets = load_tatoeba(settings.tatoeba, settings.languages)
    texts = _sampled_words(sets, settings) if settings.words else _first_pairs(sets, settings.plot_pairs)
    runs: list[dict[str, Any]] = []
    maps: list[WordMap] = []
    for name in filter(None, (settings.before, settings.model)):
        embedder = SentenceEmbedder.from_pretrained(
            name, settings.pooling, layer=settings.layer, device=settings.device
        )
        gaps = {}
        for tatoeba in sets:
            sides = [embedder.encode(side[: settings.sample]) for side in (tatoeba.sources, tatoeba.targets)]
            gaps[tatoeba.language] = alignment_gap(*sides)
        view = {"pooling": embedder.view.pooling, "layer": embedder.view.layer}
        runs.append({"settings": {**describe(embedder, name), **view}, "versions": versions(), "languages": gaps})
        maps += _word_maps(embedder, texts, Path(name).name, settings.word_pieces)
    write_json(folder / "gaps.json", {"runs": runs})
    write_text(folder / "words.svg", standalone(word_maps("Words by their embeddings", maps)))
    return Analysis(runs, folder)


def _first_pairs(sets: Sequence[TatoebaSet], count: int) -> dict[str, list[str]]:
    """Return the first sentences of each language."""
    texts: dict[str, list[str]] = {tatoeba.language: tatoeba.sources[:count] for tatoeba in sets}
    texts["eng"] = list(dict.fromkeys(text for tatoeba in sets for text in tatoeba.targets[:count]))
    return texts


def _sampled_words(sets: Sequence[TatoebaSet], settings: AnalyseSettings) -> dict[str, list[str]]:
    """Sample words of each language by frequency, from bitext or from Tatoeba."""
    count = settings.words or 0
    if settings.data:
        bitext = load_bitext(settings.data, cleaning=None)
        words = {language: sample_words(bitext.pairs(language)[0], count) for language in bitext.languages}
        return {**words, "en": sample_words(bitext.sentences("target"), count)}
    words = {tatoeba.language: sample_words(tatoeba.sources, count) for tatoeba in sets}
    return {**words, "eng": sample_words((text for tatoeba in sets for text in tatoeba.targets), count)}


def _word_maps(embedder: SentenceEmbedder, texts: Mapping[str, list[str]], name: str, pieces: bool) -> list[WordMap]:
    sentences = [(language, text) for language, lines in texts.items() for text in lines]
    vectors = word_vectors(embedder, [text for _, text in sentences], embedder.view.layer, pieces)
    words = vectors.without_punctuation()
    groups = [sentences[number][0] for number in words.sentences]
    return [WordMap(f"{name}, {method}", project(words.vectors, method), words.texts, groups) for method in PROJECTIONS]
