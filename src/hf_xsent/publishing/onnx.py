"""Export the encoder of an exported folder to ONNX, and quantize it.

``onnx/model.onnx`` maps token ids to hidden states; the program that opens it computes the pooling.
``onnx/model_quantized.onnx`` has int8 weights and is saved only if it is accurate enough.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hf_xsent.errors import MissingExtraError, ModelError
from hf_xsent.files import writing
from hf_xsent.models.batching import batches_by_length
from hf_xsent.models.encode_interface import SupportsEncode
from hf_xsent.models.loading import load_encoder, load_tokenizer
from hf_xsent.models.sentence_transformer_files import read_modules
from hf_xsent.publishing.export_folder import check_export

PLAIN, QUANTIZED = "onnx/model.onnx", "onnx/model_quantized.onnx"
_LARGEST_DIFFERENCE = 1e-4
_CHARACTERS_PER_BATCH = 4096
_SAMPLES = (["A dog."], ["Ein zweiter, etwas längerer Satz.", "第三句话。", "Третье предложение."] * 2)


class OnnxEncoder:
    """An exported folder, run by onnxruntime: from text to sentence embeddings."""

    def __init__(self, folder: str | Path, file: str = PLAIN) -> None:
        self.session = load_onnxruntime().InferenceSession(str(Path(folder) / file), providers=["CPUExecutionProvider"])
        self.settings = read_modules(str(folder))
        self.tokenizer = load_tokenizer(str(folder))
        self.prompt = self.settings.get("prompts", {}).get(self.settings.get("default_prompt_name")) or ""
        self.inputs = [node.name for node in self.session.get_inputs()]

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Return N × d float32 embeddings; row i is the embedding of sentence i."""
        rows: list[Any] = [None] * len(sentences)
        for batch in batches_by_length([len(sentence) for sentence in sentences], _CHARACTERS_PER_BATCH):
            for i, vector in zip(batch, self._embed([sentences[i] for i in batch]), strict=True):
                rows[i] = vector
        return np.stack(rows)

    def _embed(self, sentences: list[str]) -> np.ndarray:
        texts = [self.prompt + sentence for sentence in sentences]
        batch = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self.settings["max_length"], return_tensors="np"
        )
        (states,) = self.session.run(["last_hidden_state"], {name: batch[name] for name in self.inputs})
        mask, pooling = batch["attention_mask"][..., None], self.settings["pooling"]
        if pooling == "cls":
            vectors = states[:, 0]
        elif pooling == "mean":
            vectors = (states * mask).sum(1) / mask.sum(1)
        else:
            vectors = np.where(mask == 1, states, -np.inf).max(1)
        if self.settings.get("normalize"):
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors[:, : self.settings.get("dim")], dtype=np.float32)


def export_onnx(folder: str | Path) -> Path:
    """Write ``onnx/model.onnx`` into an export, with dynamic batch size and length; compare its states with torch's.

    ```python
    from hf_xsent import export_onnx

    export_onnx("exported/mine")
    ```
    """
    folder = Path(folder)
    check_export(folder)
    load_onnxruntime()
    if "mix" in read_modules(str(folder)):
        raise ModelError(f"{folder} needs all layers, but ONNX files return only the last: use it with torch")
    encoder = load_encoder(str(folder), attn_implementation="eager").eval()
    tokenizer = load_tokenizer(str(folder))
    batches = [dict(tokenizer(sentences, padding=True, return_tensors="pt")) for sentences in _SAMPLES]
    with writing(folder / PLAIN) as part:
        _export(encoder, batches[1], part)
        difference = max(_difference(encoder, part, batch) for batch in batches)
        if difference > _LARGEST_DIFFERENCE:
            raise ModelError(
                f"hidden states of onnxruntime differ from torch's by {difference:.1e}: nothing was written"
            )
    _drop_model_arguments(folder)
    return folder / PLAIN


def _drop_model_arguments(folder: Path) -> None:
    """Remove ``model_args``, which sentence-transformers' ONNX backend passes to a loader that refuses it."""
    path = folder / "sentence_bert_config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if settings.pop("model_args", None) is not None:
        with writing(path) as part:
            part.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def quantize_onnx(
    folder: str | Path, accuracy: Callable[[SupportsEncode], float], largest_drop: float
) -> tuple[float, float, bool]:
    """Write ``onnx/model_quantized.onnx`` if accuracy (in percent) falls by at most ``largest_drop``.

    Return accuracy before, accuracy after, and whether the file was saved.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    folder = Path(folder)
    before = accuracy(OnnxEncoder(folder))
    with writing(folder / QUANTIZED) as part:
        with _quiet():
            quantize_dynamic(str(folder / PLAIN), str(part), weight_type=QuantType.QInt8, per_channel=True)
        after = accuracy(OnnxEncoder(folder, os.path.relpath(part, folder)))
        saved = before - after <= largest_drop
        if not saved:
            part.unlink()
            (folder / QUANTIZED).unlink(missing_ok=True)
    return before, after, saved


class _States(nn.Module):
    """The encoder with a fixed order of inputs and one output, as all runtimes expect."""

    def __init__(self, encoder: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.encoder, self.names = encoder, list(names)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Map N × L ids and mask (and token types) to N × L × d hidden states."""
        states: Tensor = self.encoder(**dict(zip(self.names, inputs, strict=True))).last_hidden_state
        return states


def _export(encoder: Any, batch: dict[str, Tensor], path: Path) -> None:
    sizes = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("length", min=2)}
    with _quiet():
        torch.onnx.export(
            _States(encoder, list(batch)),
            tuple(batch.values()),
            str(path),
            input_names=list(batch),
            output_names=["last_hidden_state"],
            dynamic_shapes={"inputs": tuple(sizes for _ in batch)},
            dynamo=True,
            external_data=False,
            verbose=False,
        )


@torch.inference_mode()
def _difference(encoder: Any, path: Path, batch: dict[str, Tensor]) -> float:
    """Return the largest difference between hidden states of torch and onnxruntime, padding excluded."""
    session = load_onnxruntime().InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = {node.name: batch[node.name].numpy() for node in session.get_inputs()}
    (theirs,) = session.run(None, inputs)
    ours = encoder(**batch).last_hidden_state.numpy()
    return float(np.abs(ours - theirs)[batch["attention_mask"].numpy() == 1].max())


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
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError('ONNX files need an extra: pip install "hf-xsent[onnx]"') from error
    return onnxruntime
