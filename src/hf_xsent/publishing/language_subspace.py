"""Remove the language from embeddings without training: center them and project out the language subspace (LSAR).

Embeddings contain the language of a text, so that the nearest neighbours of a text are in its language. The
means of the languages' embeddings differ mostly in a small subspace (Xie et al., EMNLP 2022). With μ the mean of these
means, and U the k directions in which they vary most (the right singular vectors of their differences from μ):

    x' = (I - U Uᵀ) (x - μ)

which is a linear layer after pooling. The texts need not be translations of each other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import nn

from hf_xsent.data.readers.compression import lines
from hf_xsent.data.readers.formats import read_pairs
from hf_xsent.data.readers.resolving import refuse_two_codes, resolve_sources
from hf_xsent.errors import DataError, ModelError
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.linear_map import LinearMap

logger = logging.getLogger(__name__)

TEXTS = 200  # of each language
DIMENSIONS = 20  # at most; with 36 languages, 20 to 35 were equally good, 10 were not


def read_texts(data: Sequence[str], target_language: str = "en") -> dict[str, list[str]]:
    """Read the first texts of each language: lines of ``.txt`` files, and both sides of pairs."""
    texts: dict[str, list[str]] = {}
    single = [
        word for word in data if "," not in word and ".txt" in Path(word).suffixes
    ]  # which may be in any language
    pairs = [word for word in data if word not in single]
    parts = [(words, target) for words, target in ((pairs, target_language), (single, "und")) if words]
    resolved = [resolve_sources(words, target_language=target).values() for words, target in parts]
    sources = [source for of_part in resolved for files in of_part for source in files]
    share = max(1, TEXTS // len(sources))  # of the target side, so that it comes from all files
    for source in sources:
        own = texts.setdefault(source.language, [])
        left, paths = max(0, TEXTS - len(own)), source.files
        if len(paths) == 1 and ".txt" in paths[0].suffixes:
            first = list(islice((line for _, line in lines(paths[0]) if line.strip()), left))
            if not first or not all("\t" in line for line in first):  # else pairs
                own += first
                continue
        read = list(islice(read_pairs(replace(source, target_language=target_language)), TEXTS))
        own += [pair[0] for pair in read[:left]]
        texts.setdefault(target_language, []).extend(pair[1] for pair in read[:share])
    refuse_two_codes(texts)
    if empty := [language for language, own in texts.items() if not own]:
        raise DataError(f"the files of {empty[0]} have no text: give its texts, or omit it")
    return texts


def language_free_map(embedder: SentenceEmbedder, texts: Mapping[str, Sequence[str]]) -> LinearMap:
    """Return the linear layer that removes the language subspace from the pooled hidden states of the model."""
    if len(texts) < 2:
        raise DataError(f"--remove_language needs texts of two languages or more, not only of {', '.join(texts)}")
    model, config = embedder.model, embedder.model.config
    if model.default_layer is None:
        raise ModelError("remove_language does not support dual pivot: export the encoder that it started from")
    if model.linear_map is not None and not isinstance(model.linear_map.activation, nn.Identity):
        raise ModelError("this model ends in a layer with an activation, after which no linear layer can be merged")
    normalize, config.normalize = config.normalize, False  # the layer comes before normalization
    try:
        vectors = (embedder.encode(own, truncate_dim=config.encoder_config.hidden_size) for own in texts.values())
        means = np.stack([each.mean(0, dtype=np.float64) for each in vectors])
    finally:
        config.normalize = normalize
    center = means.mean(0)
    if np.ptp(means, axis=0).max() == 0:
        raise DataError(f"the files of {' and '.join(texts)} have the same texts: give each language its own")
    _, sizes, directions = np.linalg.svd(means - center, full_matrices=False)
    removed = directions[: min(DIMENSIONS, len(texts) - 1)]
    share = np.square(sizes[: len(removed)]).sum() / np.square(sizes).sum()
    logger.info(
        "removed %d dimensions, %.0f%% of the variance between %d languages", len(removed), 100 * share, len(texts)
    )
    projection = np.eye(len(center)) - removed.T @ removed
    weight, bias = torch.from_numpy(projection), torch.from_numpy(-projection @ center)
    if (earlier := model.linear_map) is not None:
        bias = bias if earlier.bias is None else bias + weight @ earlier.bias.double()
        weight = weight @ earlier.weight.double()
    linear_map = LinearMap(len(weight), len(weight), bias=True)
    linear_map.load_state_dict({"weight": weight, "bias": bias})
    return linear_map.to(model.device)
