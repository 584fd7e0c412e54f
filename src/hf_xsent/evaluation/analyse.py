"""Plot the words of several languages by a model's hidden states, before and after training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
from hf_xsent.data.bitext import load_bitext
from hf_xsent.evaluation.analysis import PROJECTIONS, project, sample_words, word_vectors
from hf_xsent.evaluation.settings import AnalyseSettings
from hf_xsent.files import check_writable, write_text
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.pages.charts import WordMap, standalone, word_maps
from hf_xsent.settings.command import command


@command(AnalyseSettings)
def analyse(settings: AnalyseSettings) -> Path:
    """Plot words by PCA and t-SNE; write the picture, and return its path.

    ```python
    from hf_xsent import analyse

    analyse("runs/mine", "data/tatoeba", ["de", "sw"], "words.svg", before="xlm-roberta-base")
    ```
    """
    check_writable(settings.output)
    sets = load_tatoeba(settings.tatoeba, settings.languages)
    texts = _sampled_words(sets, settings) if settings.words else _first_pairs(sets, settings.plot_pairs)
    maps: list[WordMap] = []
    for name in filter(None, (settings.before, settings.model)):
        embedder = SentenceEmbedder.from_pretrained(name, layer=settings.layer, device=settings.device)
        maps += _word_maps(embedder, texts, Path(name).name, settings.word_pieces)
    write_text(settings.output, standalone(word_maps("Words by their embeddings", maps)))
    return Path(settings.output)


def _first_pairs(sets: Sequence[PairSet], count: int) -> dict[str, list[str]]:
    """Return the first sentences of each language."""
    texts: dict[str, list[str]] = {tatoeba.language: tatoeba.sources[:count] for tatoeba in sets}
    texts["eng"] = list(dict.fromkeys(text for tatoeba in sets for text in tatoeba.targets[:count]))
    return texts


def _sampled_words(sets: Sequence[PairSet], settings: AnalyseSettings) -> dict[str, list[str]]:
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
