"""Cache the layer sums of a frozen encoder, memory-mapped, so that each sentence is encoded once.

The layer sums of a sentence are L + 1 vectors: for the embeddings and each layer, the sum of hidden states over tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
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
from hf_xsent.files import digest
from hf_xsent.logs import Progress
from hf_xsent.models.batching import evaluating
from hf_xsent.models.dual_pivot import DualPivotForSentenceEmbedding
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import forget_last_call
from hf_xsent.models.sentence_encoder import View
from hf_xsent.runs.identity import plain
from hf_xsent.runs.store import Store

logger = logging.getLogger(__name__)

DTYPES = ("float16", "float32")
NO_FEATURES = (
    "features are sums over tokens, but layer_norm, dropout on the mix of layers and mean pooling need each token: "
    "drop --features, so that the encoder runs in every step, or set --variant paper and --pooling sum"
)
_NOT_COMPUTED = {"_name_or_path", "architectures", "dtype", "transformers_version", "hf_xsent"}  # of a config
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
        with torch.autocast(self.model.device.type, enabled=False):  # runs in other precisions share the features
            return [self.model.layer_sums(ids, masks).flatten(1)]


@dataclass(frozen=True)
class LayerSums:
    """The memory-mapped layer sums of a list of sentences."""

    key: str  # of the sentences
    sums: npt.NDArray[Any]  # N × (L + 1) × d
    identities: npt.NDArray[np.uint64]  # N hashes, which ignore case and whitespace


class FeatureCache:
    """A store of layer sums, by a hash of encoder, settings and sentences; an interrupted encoding resumes."""

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
        self.embedder = LayerSumEmbedder(model, tokenizer)
        self.dtype = np.dtype(dtype)
        weights = [(name, str(weight.dtype), weight.float()) for name, weight in model.encoder.state_dict().items()]
        encoder = digest([(*named, weight.cpu().numpy().tobytes()) for *named, weight in weights])
        stated = model.encoder.config.to_diff_dict()
        config = {key: stated[key] for key in stated if key not in _NOT_COMPUTED and "dropout" not in key}
        forget_last_call(tokenizer)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        pieces = sorted(tokenizer.get_vocab().items()) if backend is None else backend.to_str()
        max_length = model.config.max_length
        self._made_from = {"encoder": encoder, "max_length": max_length, "dtype": dtype}
        self._made_from["reads"] = digest([plain(config), pieces])
        self.store = Store(folder)

    def layer_sums(self, sentences: Sequence[str], prompt: str | None = None) -> LayerSums:
        """Return the layer sums of these sentences, with the default prompt unless stated; encode missing ones."""
        if not len(sentences):
            raise DataError("the list of sentences to encode is empty")
        key, identities = _hashes(sentences)
        prompt = self.embedder.prompt if prompt is None else prompt
        name = f"{digest({**self._made_from, **({'prompt': prompt} if prompt else {}), 'sentences': key})}.npy"
        sums = self.store.get(name, partial(self._encode, sentences, prompt), _read_sums, resumes=True)
        return LayerSums(key, sums, identities)

    def _encode(self, sentences: Sequence[str], prompt: str, path: Path) -> None:
        """Append block by block to an array file, whose size shows how far an interrupted encoding has come."""
        header = BytesIO()
        shape = (len(sentences), *self.embedder.shape)
        np.lib.format.write_array_header_1_0(header, {"descr": self.dtype.str, "fortran_order": False, "shape": shape})
        size = len(header.getvalue())
        path.touch()
        with path.open("r+b") as file:
            done = max(0, path.stat().st_size - size) // (self.dtype.itemsize * self.embedder.width)
            file.write(header.getvalue())
            file.seek(size + done * self.dtype.itemsize * self.embedder.width)
            file.truncate()
            logger.info("encoding %d sentences into the feature cache %s", len(sentences) - done, self.store.folder)
            with Progress(total=len(sentences), initial=done, desc="encoding", unit=" sentences", delay=2) as bar:
                for start in range(done, len(sentences), _BLOCK):
                    block = sentences[start : start + _BLOCK]
                    vectors = self.embedder.encode(block, prompt=prompt)
                    encoded = vectors.reshape(-1, *self.embedder.shape).astype(self.dtype)
                    self._check_finite(encoded, block)
                    file.write(encoded.tobytes())
                    file.flush()
                    bar.update(len(block))

    def _check_finite(self, sums: npt.NDArray[Any], sentences: Sequence[str]) -> None:
        not_finite = ~np.isfinite(sums).all((1, 2))
        if not_finite.any():
            raise DataError(
                f"{sentences[int(not_finite.argmax())][:40]!r} has a NaN or infinite feature in {self.dtype}: "
                "check the model's weights, or give --features none, which computes the features in every step"
            )


def _read_sums(path: Path) -> npt.NDArray[Any]:
    sums: npt.NDArray[Any] = np.load(path, mmap_mode="r")
    return sums


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


class CachedEncoder(SentenceEmbedder):
    """An encoder for evaluation that reads layer sums from the cache, which several extractions may share."""

    model: DualPivotForSentenceEmbedding

    def __init__(self, cache: FeatureCache, model: DualPivotForSentenceEmbedding) -> None:
        super().__init__(model, cache.embedder.tokenizer)
        self.cache = cache

    @torch.inference_mode()
    def encode_views(self, sentences: Iterable[str], *_: Any, **__: Any) -> list[np.ndarray]:
        """Return one embedding per sentence, of the only view of the model."""
        texts = list(sentences)
        if self.cut is not None:
            self._tokenize(texts)  # collects the texts that are cut, also those in the cache
        sums, device = self.cache.layer_sums(texts, self.prompt).sums, self.model.device
        with evaluating(self.model):
            vectors = [
                self.model.extract(torch.from_numpy(sums[start : start + _BLOCK].copy()).to(device))
                for start in range(0, len(sums), _BLOCK)
            ]
        return [torch.cat(vectors)[:, : self.width].float().cpu().numpy()]
