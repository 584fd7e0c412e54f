"""Encode the texts of batches in pipelines such as Ray Data, datasets and pandas, and in the jobs of our commands."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch

from hf_xsent.errors import ModelError
from hf_xsent.files import digest, is_local
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.text_encoder import SupportsEncode, as_array, refuse_single_sentence
from hf_xsent.runs.identity import identify_model
from hf_xsent.settings.common import EncodingSettings

MADE_BY = b"hf_xsent"  # key in the metadata of an Arrow field of vectors: what determines them besides the text
# The last one is longer than the maximum length of most models, so that a changed one changes its embedding.
_PROBES = ("A dog runs.", "Ein zweiter Satz.", "第三句话。", " ".join(map(str, range(600))))


class Encoder:
    """Add a column of embeddings to a batch: a pyarrow Table, a data frame, a dict of columns, or a single row.

    model: a folder, a Hub id, or any object with ``encode``; if you train the object, make a new Encoder of it.
    column, output: names of the column of texts and of the new column. In Arrow, it is a list of fixed size whose field
        metadata identify the model.
    vectors: the precision of the embeddings, float32 or float16; ``precision`` is that of the computation.
    least_max_length: raise a shorter ``max_length`` of the model to this, if its encoder permits.

    A pickled encoder holds no weights: each process opens the model when it first encodes.

    >>> encoder = Encoder("exported", column="text", max_length=128)  # nothing is opened yet
    >>> dataset.map_batches(encoder, batch_format="pyarrow")  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        *,
        column: str = "text",
        output: str = "embedding",
        pooling: str | None = None,
        max_length: int | None = None,
        precision: str = "float32",
        device: str | None = None,
        vectors: str = "float32",
        least_max_length: int = 0,
    ) -> None:
        self.name = os.path.expanduser(model) if isinstance(model, str | os.PathLike) else None
        if self.name is not None and is_local(self.name):
            self.name = os.path.abspath(self.name)  # it is opened later, also by other processes
        self.column, self.output, self.device, self.vectors = column, output, device, vectors
        self._options = {"pooling": pooling, "max_length": max_length, "precision": precision}
        self._least_max_length = least_max_length
        if vectors not in ("float32", "float16"):
            raise ModelError(f"vectors {vectors!r} is unknown: use float32 or float16")
        self._opened: SupportsEncode | None = None
        if self.name is None:
            if not hasattr(model, "encode"):
                kind = type(model).__name__
                raise ModelError(f"{kind} has no encode: give a folder, a Hub id or a model that encodes text")
            options = {**self._options, "device": device}
            if ignored := [name for name, value in options.items() if value not in (None, "float32")]:
                raise ModelError(f"{ignored[0]} applies to a model given by its folder or Hub id: set it on the model")
            self._opened = model

    def __getstate__(self) -> dict[str, Any]:
        """Pickle an object given as model, else the settings and the model's identity, by which datasets caches."""
        if self.name is None:
            return self.__dict__
        return self.__dict__ | {"_opened": None, "_model": identify_model(self.name)}

    def open(self, device: str | None = None) -> SupportsEncode:
        """Return the model, opened once, by default on the encoder's device or this process's."""
        if self._opened is None:
            options: Any = self._options
            embedder = SentenceEmbedder.from_pretrained(str(self.name), device=device or self.device, **options)
            if options["max_length"] is None and embedder.max_length < self._least_max_length:
                embedder.max_length = min(self._least_max_length, embedder.longest_input)
            self._opened = embedder
        return self._opened

    @cached_property
    def identity(self) -> dict[str, str]:
        """Everything that determines an embedding besides the text; of an object, weights and a few embeddings."""
        model = self.open()
        if self.name is not None and isinstance(model, SentenceEmbedder):
            return {
                "model": identify_model(self.name),
                "pooling": model.pooling,
                "max_length": str(model.max_length),
                "precision": str(model.model.dtype).removeprefix("torch."),
                "prompt": model.prompt,
            }
        weights: Any = getattr(getattr(model, "model", model), "state_dict", dict)()
        tensors = (weight.detach().cpu() for weight in weights.values() if isinstance(weight, torch.Tensor))
        parts = (tensor.contiguous().view(-1).view(torch.uint8) for tensor in tensors)
        probes = self.encode(_PROBES).astype(np.float32).round(3).tobytes()
        return {"model": digest(chain([probes], (part.numpy().tobytes() for part in parts)))}

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Return one embedding per sentence; without sentences, an array of 0 rows, whose width is the model's."""
        refuse_single_sentence(sentences)
        texts = list(sentences) or [_PROBES[0]]
        return as_array(self.open().encode(texts), len(texts))[: len(sentences)]

    def __call__(self, batch: Any) -> Any:
        """Return the batch with its embeddings."""
        if hasattr(batch, "collect"):
            raise ModelError(f"a {type(batch).__name__} has no rows yet: give the frame that its collect() returns")
        if not isinstance(batch, Mapping) and not hasattr(batch, "columns"):
            kind = type(batch).__name__
            raise ModelError(f"a batch has columns, and a {kind} has none: of a Dataset, map(encoder, batched=True)")
        names = batch.column_names if hasattr(batch, "append_column") else [*getattr(batch, "columns", batch)]
        if self.column not in names:
            raise ModelError(f"the batch has no column {self.column!r}, only {', '.join(names)}: give column")
        if hasattr(batch, "append_column"):
            vectors = self.encode(batch.column(self.column).to_pylist()).astype(self.vectors)
            return append_vectors(batch, self.output, vectors, self.identity)
        texts = batch[self.column]
        if isinstance(texts, str):  # a row, as datasets.map gives without batched=True
            return {**batch, self.output: self.encode([texts]).astype(self.vectors)[0]}
        vectors = self.encode(list(texts)).astype(self.vectors)
        if hasattr(batch, "assign"):
            return batch.assign(**{self.output: list(vectors)})
        if hasattr(batch, "with_columns"):  # polars
            return batch.with_columns(type(texts)(self.output, vectors))
        return {**batch, self.output: vectors}


def append_vectors(table: Any, name: str, vectors: np.ndarray, identity: dict[str, str]) -> Any:
    """Add vectors to an Arrow table as lists of fixed size, in place of a column of this name, if it has one.

    The metadata of the field identify the model.
    """
    import pyarrow as pa

    if name in table.schema.names:
        table = table.drop_columns([name])
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    return table.append_column(pa.field(name, lists.type, metadata={MADE_BY: json.dumps(identity)}), lists)


def open_encoder(settings: EncodingSettings, least_max_length: int = 0, searches: bool = True) -> Encoder:
    """Open the encoder of a command; with another engine, its workers open the model on their own devices.

    An object given as model has its device; that of the settings is the search's, if the command ``searches``.
    """
    options = {name: getattr(settings, name) for name in ("pooling", "max_length", "precision")}
    device = None if searches and not isinstance(settings.model, str | os.PathLike) else settings.device
    encoder = Encoder(settings.model, **options, device=device, least_max_length=least_max_length)
    encoder.open(None if getattr(settings, "engine", "local") == "local" else "cpu")
    return encoder
