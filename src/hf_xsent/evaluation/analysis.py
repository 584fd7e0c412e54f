"""Sample words, embed them by a model's hidden states, and project them to two dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from hf_xsent.data.words.splitting import offsets_after_prompt, split_words, word_units
from hf_xsent.errors import DataError
from hf_xsent.tensors.packing import pack, unpack

if TYPE_CHECKING:
    from hf_xsent.models.embedder import SentenceEmbedder

PROJECTIONS = ("pca", "tsne")


@dataclass(frozen=True)
class WordVectors:
    """The embeddings of the words (or word pieces) of some sentences."""

    texts: list[str]
    sentences: np.ndarray  # for each vector, the index of its sentence
    vectors: np.ndarray

    def without_punctuation(self) -> WordVectors:
        """Return the words that have a letter or a digit."""
        named = [place for place, text in enumerate(self.texts) if any(map(str.isalnum, text))]
        return WordVectors([self.texts[place] for place in named], self.sentences[named], self.vectors[named])


def sample_words(sentences: Iterable[str], count: int) -> list[str]:
    """Sample up to ``count`` distinct words, with probability proportional to their frequency (WACSE, figure 1)."""
    counts = Counter(word for text in sentences for word in split_words(text).strings if any(map(str.isalpha, word)))
    if not counts:
        raise DataError("there are no words to sample: the sentences have no letters")
    words, frequencies = list(counts), np.array([*counts.values()], dtype=np.float64)
    rng, shares = np.random.default_rng(0), frequencies / frequencies.sum()
    return [words[number] for number in rng.choice(len(words), min(count, len(words)), replace=False, p=shares)]


@torch.inference_mode()
def word_vectors(
    embedder: SentenceEmbedder, sentences: Sequence[str], layer: int | None = None, pieces: bool = False
) -> WordVectors:
    """Return a vector of each word: the mean of its pieces' hidden states after ``layer`` (by default the last).

    With ``pieces``, return a vector of each word piece instead. The model's default prompt precedes each sentence.
    """
    encoded = embedder.tokenizer(
        [embedder.prompt + text for text in sentences],
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
    texts, numbers, vectors = [], [], []
    for number, sentence in enumerate(sentences):
        words = split_words(sentence)
        offsets = offsets_after_prompt(encoded["offset_mapping"][number].tolist(), embedder.prompt)
        of_pieces, of_words = word_units(words, offsets)
        if pieces:
            groups = [[place] for place, word in enumerate(of_pieces) if word >= 0]
            texts += [sentence[slice(*offsets[place])] for [place] in groups]
        else:
            names: dict[int, str] = {}
            for word, unit_number in zip(words.strings, of_words, strict=True):
                if unit_number >= 0:
                    names[unit_number] = names.get(unit_number, "") + word
            texts += list(names.values())
            groups = [[place for place, word in enumerate(of_pieces) if word == unit_number] for unit_number in names]
        vectors += [states[number, group].mean(0) for group in groups]
        numbers += [number] * len(groups)
    return WordVectors(texts, np.array(numbers), np.array(vectors))


def project(vectors: np.ndarray, method: str) -> np.ndarray:
    """Project N vectors to N × 2 by ``pca`` or ``tsne``; every run gives the same result."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    if len(vectors) < 4:
        raise DataError(f"a projection needs at least four vectors, not {len(vectors)}: give more or longer sentences")
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    projection = (
        PCA(2, svd_solver="full")
        if method == "pca"
        else TSNE(2, init="pca", perplexity=perplexity, metric="cosine", random_state=0)
    )
    return np.asarray(projection.fit_transform(np.asarray(vectors, dtype=np.float64)))
