"""Export an exported folder to ONNX and OpenVINO, and quantize the ONNX model.

``onnx/model.onnx`` maps token ids to hidden states (``last_hidden_state``) and to pooled, normalized and truncated
embeddings (``sentence_embedding``). ``onnx/model_quantized.onnx`` has int8 weights.
``openvino/openvino_model.xml`` is the same graph.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hf_xsent.errors import ModelError, import_extra
from hf_xsent.files import writing
from hf_xsent.models.batching import batches_by_length
from hf_xsent.models.loading import load_encoder, load_tokenizer
from hf_xsent.models.sentence_transformer_files import read_map, read_modules
from hf_xsent.models.text_encoder import named_prompts, refuse_single_sentence
from hf_xsent.publishing.export_folder import check_export
from hf_xsent.publishing.runtimes import ONNX, ONNX_INT8, OPENVINO
from hf_xsent.settings.convert import converting

_LARGEST_DIFFERENCE = 1e-4
_CHARACTERS_PER_BATCH = 4096
_SAMPLES = (["A dog."], ["Ein zweiter, etwas längerer Satz.", "第三句话。", "Третье предложение."] * 2)


class OnnxEncoder:
    """An exported folder, run by onnxruntime: from text to sentence embeddings."""

    def __init__(self, folder: str | Path, file: str = ONNX) -> None:
        self.session = load_onnxruntime().InferenceSession(str(Path(folder) / file), providers=["CPUExecutionProvider"])
        self.settings = read_modules(str(folder))
        self.tokenizer = load_tokenizer(str(folder))
        self.prompt = self.settings.get("prompts", {}).get(self.settings.get("default_prompt_name")) or ""

    def encode(self, sentences: Sequence[str], prompt: str | None = None) -> np.ndarray:
        """Return N × d float32 embeddings; row i is that of sentence i, by default after the default prompt."""
        refuse_single_sentence(sentences)
        prompt, encoded = self.prompt if prompt is None else prompt, list(sentences) or [""]
        rows: list[Any] = [None] * len(encoded)
        for batch in batches_by_length([len(sentence) for sentence in encoded], _CHARACTERS_PER_BATCH):
            texts = [prompt + encoded[i] for i in batch]
            inputs = self.tokenizer(
                texts, padding=True, truncation=True, max_length=self.settings["max_length"], return_tensors="np"
            )
            for i, vector in zip(batch, self.session.run(["sentence_embedding"], dict(inputs))[0], strict=True):
                rows[i] = vector
        return np.stack(rows)[: len(sentences)]

    def encode_query(self, sentences: Sequence[str]) -> np.ndarray:
        """Encode with the prompt of queries."""
        return self.encode(sentences, named_prompts(self.settings.get("prompts"))["query"])

    def encode_document(self, sentences: Sequence[str]) -> np.ndarray:
        """Encode with the prompt of documents."""
        return self.encode(sentences, named_prompts(self.settings.get("prompts"))["document"])


@converting
def export_onnx(folder: str | Path) -> Path:
    """Write ``onnx/model.onnx`` into an export, with dynamic batch size and length; compare its outputs with torch's.

    Weights of more than 1.5 GB are in a second file, ``onnx/model.onnx.data``. An earlier folder ``onnx`` is replaced.

    ```python
    from hf_xsent import export_onnx

    export_onnx("exported-mine")
    ```
    """
    folder = Path(folder)
    check_export(folder)
    load_onnxruntime()
    settings = read_modules(str(folder))
    if "mix" in settings:
        raise ModelError("a model that mixes its layers has no ONNX or OpenVINO file: open it with SentenceTransformer")
    tokenizer = load_tokenizer(str(folder))
    batches = [dict(tokenizer(sentences, padding=True, return_tensors="pt")) for sentences in _SAMPLES]
    encoder = load_encoder(str(folder), attn_implementation="eager")
    linear_map = read_map(str(folder), settings)
    model = _Sentences(encoder, list(batches[0]), settings, linear_map or nn.Identity()).eval()
    with writing((folder / ONNX).parent, folder=True) as part:
        path = part / Path(ONNX).name  # the name of a second file, of large weights, follows from it
        _export(model, batches[1], path)
        difference = max(_difference(model, path, batch) for batch in batches)
        if difference > _LARGEST_DIFFERENCE:
            raise ModelError(f"outputs of onnxruntime differ from torch's by {difference:.1e}: nothing was written")
    return folder / ONNX


def export_openvino(folder: str | Path) -> Path:
    """Write ``openvino/openvino_model.xml`` from ``onnx/model.onnx``, with float32 weights."""
    openvino = import_extra("openvino", "openvino", "openvino")
    path = Path(folder) / OPENVINO
    path.parent.mkdir(parents=True, exist_ok=True)
    openvino.save_model(openvino.convert_model(Path(folder) / ONNX), path, compress_to_fp16=False)
    return path


def quantize_onnx(folder: str | Path) -> float:
    """Write ``onnx/model_quantized.onnx``; return the smallest cosine of its embeddings with those of float32."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    folder, samples = Path(folder), [text for batch in _SAMPLES for text in batch]
    with writing(folder / ONNX_INT8) as part:
        with _quiet():
            quantize_dynamic(str(folder / ONNX), str(part), weight_type=QuantType.QInt8, per_channel=True)
        sides = [OnnxEncoder(folder, file).encode(samples) for file in (ONNX, os.path.relpath(part, folder))]
    units = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
    return float((units[0] * units[1]).sum(1).min())


class _Sentences(nn.Module):
    """The encoder with a fixed order of inputs, which returns hidden states and embeddings of the sentences."""

    def __init__(self, encoder: Any, names: Sequence[str], settings: Mapping[str, Any], linear_map: nn.Module) -> None:
        super().__init__()
        self.encoder, self.names, self.settings, self.linear_map = encoder, list(names), settings, linear_map

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Map N × L ids and mask (and token types) to N × L × d hidden states and N × dim embeddings."""
        batch = dict(zip(self.names, inputs, strict=True))
        states: Tensor = self.encoder(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        if self.settings["pooling"] == "cls":
            embeddings = states[:, 0]
        elif self.settings["pooling"] == "mean":
            embeddings = (states * mask).sum(1) / mask.sum(1)
        else:
            embeddings = states.masked_fill(mask == 0, -torch.inf).amax(1)
        embeddings = self.linear_map(embeddings)
        if self.settings["normalize"]:
            embeddings = nn.functional.normalize(embeddings, dim=-1)
        return states, embeddings[:, : self.settings.get("dim")]


def _export(model: _Sentences, batch: dict[str, Tensor], path: Path) -> None:
    sizes = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("length", min=2)}
    with _quiet():
        torch.onnx.export(
            model,
            tuple(batch.values()),
            str(path),
            input_names=list(batch),
            output_names=["last_hidden_state", "sentence_embedding"],
            dynamic_shapes={"inputs": tuple(sizes for _ in batch)},
            dynamo=True,
            external_data=False,
            verbose=False,
        )


@torch.inference_mode()
def _difference(model: _Sentences, path: Path, batch: dict[str, Tensor]) -> float:
    """Return the largest difference between outputs of torch and onnxruntime, padding excluded."""
    session = load_onnxruntime().InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = {node.name: batch[node.name].numpy() for node in session.get_inputs()}
    states, embeddings = (
        np.abs(theirs - ours.numpy())
        for theirs, ours in zip(session.run(None, inputs), model(*batch.values()), strict=True)
    )
    return float(max(states[batch["attention_mask"].numpy() == 1].max(), embeddings.max()))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warnings and log lines of the exporters."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def load_onnxruntime() -> Any:
    """Return the module onnxruntime; raise an error if onnxruntime, onnx or onnxscript is missing."""
    return import_extra("onnx", "onnx", "onnxruntime", "onnx", "onnxscript")
