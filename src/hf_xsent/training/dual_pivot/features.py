"""Cache the layer sums of a frozen encoder, memory-mapped, so that each sentence is encoded once.

The layer sums of a sentence are L + 1 vectors: for the embeddings and each layer, the sum of hidden states over tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_xsent.data.cleaning.repeats import hash_texts
from hf_xsent.data.sides import TextSides
from hf_xsent.errors import DataError, RecipeError
from hf_xsent.files import check_free_space, digest, move_into_place, reserve_space, write_text
from hf_xsent.locks import lock, stamp_folder
from hf_xsent.logs import Progress
from hf_xsent.models.batching import evaluating
from hf_xsent.models.dual_pivot import DualPivotForSentenceEmbedding
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.fingerprint import fingerprint_weights
from hf_xsent.models.sentence_encoder import View

logger = logging.getLogger(__name__)

DTYPES = ("float16", "float32")
NO_FEATURES = (
    "features are sums over tokens, but layer_norm, dropout on the mix of layers and mean pooling need each token: "
    "drop --features, so that the encoder runs in every step, or set --variant paper"
)
_BLOCK = 2048  # sentences; a killed run encodes at most this many again


class LayerSumEmbedder(SentenceEmbedder):
    """Encode a sentence as its layer sums, a vector of (L + 1) · d values."""

    model: DualPivotForSentenceEmbedding

    def __init__(self, model: DualPivotForSentenceEmbedding, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__(model, tokenizer)
        config = model.config.encoder_config
        self.shape = (config.num_hidden_layers + 1, config.hidden_size)
        self.width = self.shape[0] * self.shape[1]

    def _run(
        self, ids: list[Tensor], masks: list[Tensor], views: Sequence[View], languages: Tensor | None
    ) -> list[Tensor]:
        return [self.model.layer_sums(ids, masks).flatten(1)]


@dataclass(frozen=True)
class LayerSums:
    """The memory-mapped layer sums of a list of sentences."""

    key: str  # of the sentences
    sums: npt.NDArray[Any]  # N × (L + 1) × d
    identities: npt.NDArray[np.uint64]  # N hashes, which ignore case and whitespace


class FeatureCache:
    """A folder of layer sums of one encoder, one file per list of sentences, named by a hash of the list.

    A missing file is computed; the next run resumes a file that a killed run left incomplete.
    """

    def __init__(
        self,
        folder: str | Path,
        model: DualPivotForSentenceEmbedding,
        tokenizer: PreTrainedTokenizerBase,
        dtype: str = "float16",
    ) -> None:
        if dtype not in DTYPES:
            raise RecipeError(f"unknown dtype {dtype!r} of features: use one of {', '.join(DTYPES)}")
        if not model.config.caches_features:
            raise RecipeError(NO_FEATURES)
        self.folder = Path(folder)
        self.embedder = LayerSumEmbedder(model, tokenizer)
        self.dtype = np.dtype(dtype)
        encoder, max_length = fingerprint_weights(model.encoder), model.config.max_length
        prompt = {"prompt": model.config.default_prompt} if model.config.default_prompt else {}
        self.stamp = {"encoder": encoder, "max_length": max_length, "dtype": dtype, **prompt}
        stamp_folder(self.folder, self.stamp, "features", "give another folder for features")

    def layer_sums(self, sentences: Sequence[str]) -> LayerSums:
        """Return the layer sums of these sentences; encode them if they are missing."""
        if not len(sentences):
            raise DataError("the list of sentences to encode is empty")
        key, identities = _hashes(sentences)
        path = self.folder / f"{key}.npy"
        if not path.is_file():
            with lock(self.folder / f"{key}.lock"):  # one process encodes, the others wait
                if not path.is_file():
                    self._encode(sentences, path)
        return LayerSums(key, np.load(path, mmap_mode="r"), identities)

    def _encode(self, sentences: Sequence[str], path: Path) -> None:
        """Encode block by block into a temporary file, and record the progress after each block."""
        part, progress = path.with_suffix(".part"), path.with_suffix(".progress")
        done = int(progress.read_text() or 0) if part.is_file() and progress.is_file() else 0
        shape = (len(sentences), *self.embedder.shape)
        if not done:
            cure = "give another folder or float16, or train through the encoder (--features none)"
            check_free_space(self.folder, int(np.prod(shape)) * self.dtype.itemsize, "these features", cure)
            np.lib.format.open_memmap(part, mode="w+", dtype=self.dtype, shape=shape).flush()
            reserve_space(part)
        sums = np.lib.format.open_memmap(part, mode="r+")
        logger.info("encoding %d sentences into the feature cache %s", len(sentences) - done, self.folder)
        with Progress(total=len(sentences), initial=done, desc="encoding", unit=" sentences", delay=2) as bar:
            for start in range(done, len(sentences), _BLOCK):
                block = sentences[start : start + _BLOCK]
                found = self.embedder.encode(block).reshape(-1, *self.embedder.shape).astype(self.dtype)
                self._check_finite(found, block)
                sums[start : start + len(block)] = found
                sums.flush()
                write_text(progress, str(start + len(block)))
                bar.update(len(block))
        move_into_place(part, path)
        progress.unlink()

    def _check_finite(self, sums: npt.NDArray[Any], sentences: Sequence[str]) -> None:
        not_finite = ~np.isfinite(sums).all((1, 2))
        if not_finite.any():
            raise DataError(
                f"{sentences[int(not_finite.argmax())][:40]!r} has a NaN or infinite feature in {self.dtype}: "
                "check the model's weights, or use float32, whose range is larger than float16's"
            )


def _hashes(sentences: Sequence[str]) -> tuple[str, npt.NDArray[np.uint64]]:
    """Return a hash of the list, and a hash of each sentence."""
    identities = np.empty(len(sentences), dtype=np.uint64)

    def blocks() -> Iterator[str]:
        for start in range(0, len(sentences), _BLOCK):
            block = sentences[start : start + _BLOCK]
            identities[start : start + len(block)] = [hash_texts(text) for text in block]
            yield "".join(f"{len(text)} {text}\n" for text in block)

    return digest(blocks()), identities


class FeatureRows:
    """A dataset of the layer sums of ``TextSides``, read batch by batch from the memory maps.

    ``texts`` names the sides whose sentences batches have, too, for teachers.
    """

    def __init__(self, sides: TextSides, cache: FeatureCache, texts: Collection[str] = ()) -> None:
        self.sides, self.texts = sides, texts
        self.ranges = sides.ranges
        self.features = {language: [cache.layer_sums(side) for side in both] for language, both in sides.texts.items()}
        for language, (source, target) in self.features.items():
            if source.key == target.key:
                raise DataError(f"both sides of {language!r} hold the same sentences: give sides of two languages")

    def __len__(self) -> int:
        return len(self.sides)

    def __getitems__(self, rows: Sequence[int]) -> dict[str, Any]:
        """Return a collated batch, the arguments of the model's forward."""
        count = len(rows)
        sums: npt.NDArray[Any] | None = None
        identities = np.empty((2, count), dtype=np.uint64)
        for language, places, both in self.sides.side_rows(np.asarray(rows, dtype=np.int64)):
            for number, (features, wanted) in enumerate(zip(self.features[language], both, strict=True)):
                if sums is None:
                    sums = np.empty((2 * count, *features.sums.shape[1:]), dtype=features.sums.dtype)
                sums[number * count + places] = features.sums[wanted]
                identities[number, places] = features.identities[wanted]
        source, target = torch.from_numpy(identities.view(np.int64))
        batch = {"layer_sums": torch.from_numpy(sums), "source_identity": source, "target_identity": target}
        pairs = self.sides.__getitems__(rows) if self.texts else ()
        return batch | {f"{side}_texts": [pair[side] for pair in pairs] for side in self.texts}

    def side_hashes(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Return the hashes of source and target of each row."""
        found = np.empty((len(rows), 2), dtype=np.uint64)
        for language, places, both in self.sides.side_rows(rows):
            for number, wanted in enumerate(both):
                found[places, number] = self.features[language][number].identities[wanted]
        return found


def collate_features(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a batch of ``FeatureRows``, which are collated."""
    return batch


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Compute with this many threads in the block; None: as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class CachedEncoder:
    """An encoder for evaluation that reads layer sums from the cache, which several extractions may share."""

    def __init__(self, cache: FeatureCache, model: DualPivotForSentenceEmbedding) -> None:
        self.cache, self.model = cache, model

    @torch.inference_mode()
    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Return one embedding per sentence."""
        sums, device = self.cache.layer_sums(sentences).sums, self.model.device
        with evaluating(self.model):
            vectors = [
                self.model.extract(torch.from_numpy(sums[start : start + _BLOCK].copy()).to(device))
                for start in range(0, len(sums), _BLOCK)
            ]
        return torch.cat(vectors).float().cpu().numpy()
