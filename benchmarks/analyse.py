"""Plot the words of several languages by a model's hidden states, before and after training.

python benchmarks/analyse.py runs/mine --before xlm-roberta-base --tatoeba data/tatoeba --languages de sw -o words.svg
python benchmarks/analyse.py runs/mine --layer 0 --words 60 --tatoeba data/tatoeba --languages de sw -o words.svg
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from hf_xsent import SentenceEmbedder, load_bitext
from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
from hf_xsent.data.words.splitting import offsets_after_prompt, split_words, word_units
from hf_xsent.files import write_text
from hf_xsent.pages.charts import SERIES, standalone
from hf_xsent.tensors.packing import pack, unpack

SIDE, EDGE, TITLE = 360, 24, 20  # of a map, in SVG units
NAME, FONT, RADIUS = 64, 8, 2.5  # width of a name of the legend, size of a label, of a point

Words = list[tuple[str, str, np.ndarray]]  # text, language, vector


def choose_texts(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return the first sentences of each language, or words sampled by their frequency."""
    sets = load_tatoeba(options.tatoeba, options.languages)
    if options.data:
        bitext = load_bitext(options.data, cleaning=None)
        sides = {language: bitext.pairs(language)[0] for language in bitext.languages}
        sides["eng"] = bitext.sentences("target")
    else:
        sides = {test.language: test.sources for test in sets} | {
            "eng": [text for test in sets for text in test.targets]
        }
    if options.words:
        return {language: sample_words(texts, options.words) for language, texts in sides.items()}
    english = dict.fromkeys(text for test in sets for text in test.targets[: options.plot_pairs])
    return {test.language: test.sources[: options.plot_pairs] for test in sets} | {"eng": [*english]}


def sample_words(sentences: Iterable[str], count: int) -> list[str]:
    """Sample up to ``count`` distinct words, with probability proportional to their frequency (WACSE, figure 1)."""
    counts = Counter(word for text in sentences for word in split_words(text).strings if any(map(str.isalpha, word)))
    words, frequencies = list(counts), np.array([*counts.values()], dtype=np.float64)
    shares = frequencies / frequencies.sum()
    rng = np.random.default_rng(0)
    return [words[number] for number in rng.choice(len(words), min(count, len(words)), replace=False, p=shares)]


@torch.inference_mode()
def embed_words(
    embedder: SentenceEmbedder, texts: Mapping[str, Sequence[str]], layer: int | None, pieces: bool
) -> Words:
    """Return each word with the mean of its pieces' hidden states after ``layer``, or each piece; no punctuation."""
    sentences = [(language, text) for language, lines in texts.items() for text in lines]
    encoded = embedder.tokenizer(
        [embedder.prompt + text for _, text in sentences],
        truncation=True,
        max_length=embedder.max_length,
        padding=True,
        return_tensors="pt",
        return_offsets_mapping=True,
    )
    device = embedder.model.device
    mask = encoded["attention_mask"].to(device)
    packed = pack([encoded["input_ids"].to(device)], [mask])
    states = unpack(embedder.model.backbone.encode(packed, layer), packed, mask).float().cpu().numpy()
    found: Words = []
    for (language, text), offsets, vectors in zip(sentences, encoded["offset_mapping"].tolist(), states, strict=True):
        words, places = split_words(text), offsets_after_prompt(offsets, embedder.prompt)
        units, names = word_units(words, places)[0], dict[int, str]()
        for word, unit in zip(words.strings, word_units(words, places)[1], strict=True):
            names[unit] = names.get(unit, "") + word
        if pieces:
            units = [place if unit >= 0 else -1 for place, unit in enumerate(units)]
            names = {place: text[slice(*places[place])] for place in units if place >= 0}
        for unit, name in names.items():
            if unit >= 0 and any(map(str.isalnum, name)):
                found.append((name, language, vectors[[place for place, of in enumerate(units) if of == unit]].mean(0)))
    return found


def project(vectors: np.ndarray) -> dict[str, np.ndarray]:
    """Project N vectors to N × 2 by PCA and by t-SNE; every run gives the same result."""
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    tsne = TSNE(2, init="pca", perplexity=perplexity, metric="cosine", random_state=0)
    return {"pca": PCA(2, svd_solver="full").fit_transform(vectors), "tsne": tsne.fit_transform(vectors)}


def draw(maps: Sequence[tuple[str, np.ndarray, Words]]) -> str:
    """Draw maps in two columns, one colour per language, each point labelled unless the label would cover another."""
    languages = list(dict.fromkeys(language for *_, words in maps for _, language, _ in words))
    in_a_row = (2 * SIDE - EDGE) // NAME
    head = 18 * -(-len(languages) // in_a_row) + 14
    height = head + SIDE * -(-len(maps) // 2)
    parts = [f'<svg viewBox="0 0 {2 * SIDE} {height}" role="img" aria-label="Words by their embeddings">']
    for number, language in enumerate(languages):
        x, y = EDGE + NAME * (number % in_a_row), 18 * (number // in_a_row) + 20
        parts.append(f'<g class="word s{number % SERIES}"><text x="{x}" y="{y}">● {escape(language)}</text></g>')
    for number, (title, points, words) in enumerate(maps):
        inside = "".join(draw_map(title, points, words, languages))
        parts.append(f'<g transform="translate({number % 2 * SIDE} {head + number // 2 * SIDE})">{inside}</g>')
    return standalone("\n".join([*parts, "</svg>"]))


def draw_map(title: str, points: np.ndarray, words: Words, languages: Sequence[str]) -> Iterator[str]:
    """Draw the frame, the title and the points of one map."""
    low, high = points.min(0), points.max(0)
    places = EDGE + (points - low) / np.maximum(high - low, 1e-9) * (SIDE - 2 * EDGE)
    places[:, 1] = SIDE - places[:, 1] * (1 - TITLE / SIDE)
    taken = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in places.tolist()]
    yield f'<path class="grid" fill="none" d="M4 4h{SIDE - 8}v{SIDE - 8}h{8 - SIDE}z"/>'
    yield f'<text x="{SIDE / 2}" y="16" text-anchor="middle">{escape(title)}</text>'
    for (x, y), (text, language, _) in zip(places.tolist(), words, strict=True):
        # letters of East Asian scripts are as wide as the font is high
        width = sum(FONT if character >= "\u1100" else 0.62 * FONT for character in text)
        circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"><title>{escape(text)}</title></circle>'
        label = ""
        for left in (x + RADIUS + 1, x - RADIUS - 1 - width, x - width / 2):
            for top in (y - (FONT + 1) / 2, y - FONT - 1 - RADIUS, y + RADIUS):
                box = left, top, left + width, top + FONT + 1
                if not label and left > 4 and top > TITLE and max(box[2:]) < SIDE - 4 and is_free(box, taken):
                    taken.append(box)
                    label = f'<text font-size="{FONT}" x="{left:.1f}" y="{box[3] - 2:.1f}">{escape(text)}</text>'
        yield f'<g class="word s{languages.index(language) % SERIES}">{circle}{label}</g>'


def is_free(box: tuple[float, ...], taken: Iterable[tuple[float, ...]]) -> bool:
    """Return whether a box (left, top, right, bottom) covers none of the others."""
    left, top, right, bottom = box
    return all(left >= one[2] or one[0] >= right or top >= one[3] or one[1] >= bottom for one in taken)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder or a Hub id")
    parser.add_argument("--before", metavar="MODEL", help="compare with this model, such as the run's starting encoder")
    parser.add_argument("--tatoeba", required=True, help="a folder of tatoeba.xxx-eng.* files, or a Hub id")
    parser.add_argument("--languages", nargs="+", required=True, metavar="CODE")
    parser.add_argument("--output", "-o", required=True, type=Path, help="the SVG file")
    parser.add_argument("--plot_pairs", type=int, default=4, help="plot the words of N pairs per language")
    parser.add_argument("--words", type=int, help="plot N words per language, sampled and encoded alone, instead")
    parser.add_argument(
        "--data", nargs="+", metavar="CODE=FILE", help="sample words from this bitext, not from Tatoeba"
    )
    parser.add_argument("--word_pieces", action="store_true", help="plot word pieces instead of words")
    parser.add_argument("--layer", type=int, help="use the hidden states of this layer (default: the last)")
    options = parser.parse_args()
    if options.data and not options.words:
        parser.error("--data is for --words, which samples words from it")

    chosen, maps = choose_texts(options), []
    for name in filter(None, (options.before, options.model)):
        embedder = SentenceEmbedder.from_pretrained(name, layer=options.layer)
        words = embed_words(embedder, chosen, embedder.view.layer, options.word_pieces)
        vectors = np.array([vector for *_, vector in words], dtype=np.float64)
        maps += [(f"{Path(name).name}, {method}", points, words) for method, points in project(vectors).items()]
    write_text(options.output, draw(maps))
