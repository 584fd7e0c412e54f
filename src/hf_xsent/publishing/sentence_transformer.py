"""Export a model to a plain folder that AutoModel and sentence-transformers 3 to 6 open without our code."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import Trainer

from hf_xsent.errors import ModelError, import_extra
from hf_xsent.files import file_digest, is_local, writing
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import SETTINGS, check_tokenizer, load_tokenizer, quiet_loading
from hf_xsent.models.saved_form import save_model
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.models.sentence_transformer_files import read_json
from hf_xsent.publishing.averaging import average_weights
from hf_xsent.publishing.check import check_runtimes
from hf_xsent.publishing.export_folder import check_replaceable
from hf_xsent.publishing.facts import ModelFacts
from hf_xsent.publishing.gguf import export_gguf
from hf_xsent.publishing.language_subspace import language_free_map, read_texts
from hf_xsent.publishing.model_card import compose_card, facts_of_mean, write_card
from hf_xsent.publishing.onnx import export_onnx, export_openvino, load_onnxruntime, quantize_onnx
from hf_xsent.publishing.settings import ExportSettings
from hf_xsent.runs.identity import identify_model
from hf_xsent.runs.origin import Origin
from hf_xsent.settings.command import command

logger = logging.getLogger(__name__)

_TASK_HEADS = ("ForSequenceClassification", "ForQuestionAnswering", "ForTokenClassification", "ForMultipleChoice")
_SAMPLE = ("A sentence to compare.", "Ein zweiter Satz.", "第三句话。", "Третье предложение, немного длиннее.")
_LARGEST_DIFFERENCE = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 5e-2}  # relative; wrong pooling: 0.5


@command(ExportSettings)
def export_sentence_transformer(settings: ExportSettings) -> Path:
    """Write a model to a folder as a plain encoder, its tokenizer, and modules of sentence-transformers.

    ``model`` is a loaded model, a trainer, or the path of a run or checkpoint. After an error nothing is written.
    ``verify`` opens the folder with SentenceTransformer and compares embeddings. ``dim`` is the number of dimensions
    that SentenceTransformer truncates embeddings to (its ``truncate_dim``). The model card states what is known of the
    run; ``publish`` adds licence and results.

    ```python
    from hf_xsent import export_sentence_transformer

    export_sentence_transformer("runs/mine", "exported-mine")
    ```
    """
    model: Any = settings.model.model if isinstance(settings.model, Trainer) else settings.model
    folder = Path(settings.output)
    check_replaceable(folder, settings.overwrite)
    _import_extras(settings)
    texts = read_texts(settings.remove_language, settings.target_language) if settings.remove_language else {}
    embedder = _embedder(model, settings)
    if settings.average:
        if not isinstance(model, str | Path):
            raise ModelError("average is for a model in a folder: save this one, and export its folder")
        average_weights(embedder, str(model), settings.average)
    if embedder.model.not_plain is not None:
        raise ModelError(f"this model cannot be exported: {embedder.model.not_plain}")
    check_tokenizer(embedder.tokenizer, embedder.model.config.encoder_config)

    config_file = read_json(str(model), "config.json") if isinstance(model, str | Path) else {}
    if any(name.endswith(_TASK_HEADS) for name in config_file.get("architectures") or ()):
        logger.warning("%s is fine-tuned for a task: only its encoder is exported, without the task's layer", model)

    with writing(folder, folder=True) as part, _as_exported(embedder, texts):
        embedder.model.tokenizer = embedder.tokenizer
        save_model(embedder.model, part, heads=False, dtype=getattr(torch, settings.dtype), dim=embedder.width)
        facts = _facts(model, part, embedder.width, texts, settings)
        if settings.verify:
            _verify(embedder, part, getattr(torch, settings.dtype))
        _add_formats(settings, part)
        if settings.check:
            check_runtimes(part, settings.node)
        write_card(part, facts, compose_card(part, facts, folder.name))
    logger.info('exported to %s: open it with SentenceTransformer("%s")', folder, folder)
    return folder


def _import_extras(settings: ExportSettings) -> None:
    """Import what the files besides the model need, before the model is loaded."""
    if settings.onnx is not None or settings.openvino:
        load_onnxruntime()
    for extra in ("openvino", "gguf"):
        if getattr(settings, extra):
            import_extra(extra, extra, extra)


def _facts(
    model: SentenceEncoder | str | Path, part: Path, width: int, texts: Iterable[str], settings: ExportSettings
) -> ModelFacts:
    """Return what is known of the export in ``part``: that of its run, of whose measurements those that hold for it."""
    if isinstance(model, SentenceEncoder):
        origin = Origin.of(model)
        run = origin.name or ""
        if run and is_local(run):
            run = str(Path(run, origin.hub.get("subfolder", "")))
        facts = origin.facts or ModelFacts.read(run)
        same = bool(run) and _embeds_as(part, Path(run))  # others may have trained or changed it since
    else:
        run, facts = str(model), facts_of_mean([str(model), *(settings.average or ())])
        same = settings.tokenizer is None
    facts = replace(
        facts,
        base_model=facts.base_model or ("" if not run or is_local(run) else run),  # a folder may be a copy
        languages=facts.languages or [*texts],
        language_removed=sorted({*texts, *facts.language_removed}),
    )
    if not same or settings.remove_language or settings.average:
        return replace(facts.not_measured(), exported_from="", results=[], name="")
    results = [each for each in facts.results if each["settings"].get("dim", width) == width]
    facts = facts if settings.dim is None and settings.max_length is None else facts.not_measured()
    return replace(facts, exported_from=identify_model(run), results=results)


def _embeds_as(part: Path, run: Path) -> bool:
    """Return whether a run has the files of an export: its weights, its modules and its tokenizer."""
    files = [path.relative_to(part) for path in sorted(part.rglob("*")) if path.is_file()]
    return all((run / name).is_file() and _same_content(part / name, run / name) for name in files)


def _same_content(file: Path, other: Path) -> bool:
    if file.name == "config.json":  # what its settings state of embeddings is also in the modules
        dropped = {SETTINGS: None, "transformers_version": None}
        ours, theirs = (json.loads(path.read_text(encoding="utf-8")) | dropped for path in (file, other))
        return bool(ours == theirs)
    if file_digest(file) != file_digest(other) and file.parent.name.endswith("WeightedLayerPooling"):
        weights, others = (load_file(path)["layer_weights"] for path in (file, other))
        return torch.allclose(weights, others, atol=0)  # a model has their logarithms
    return file_digest(file) == file_digest(other)


@contextmanager
def _as_exported(embedder: SentenceEmbedder, texts: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Give the model its length and the layer that removes the language; afterwards, the caller's is as it was."""
    earlier, length = embedder.model.linear_map, embedder.model.config.max_length
    try:
        embedder.model.config.max_length = embedder.max_length
        if texts:
            embedder.model.linear_map = language_free_map(embedder, texts)
        yield
    finally:
        embedder.model.linear_map, embedder.model.config.max_length = earlier, length


def _add_formats(settings: ExportSettings, folder: Path) -> None:
    """Write ONNX, OpenVINO and GGUF files into the export."""
    if settings.onnx is not None or settings.openvino:
        export_onnx(folder)
    if settings.openvino:
        export_openvino(folder)
    for precision in settings.gguf or ():
        export_gguf(folder, precision)
    if settings.onnx == "int8":
        logger.info("int8: the smallest cosine with float32 over sample sentences is %.4f", quantize_onnx(folder))


def _embedder(model: SentenceEncoder | str | Path, settings: ExportSettings) -> SentenceEmbedder:
    tokenizer = settings.tokenizer
    options: dict[str, Any] = {"max_length": settings.max_length, "dim": settings.dim}
    if isinstance(tokenizer, str | Path):
        tokenizer = load_tokenizer(str(tokenizer))
    if isinstance(model, SentenceEncoder):
        tokenizer = tokenizer or model.find_tokenizer()
        if tokenizer is None:
            raise ModelError("the model's folder has no tokenizer: pass one with the model")
        return SentenceEmbedder(model, tokenizer, **options)
    if not isinstance(model, str | Path):
        raise ModelError(
            f"export writes models of this package, not {type(model).__name__}: save a SentenceTransformer by its own "
            "save_pretrained, or export that folder; give the model of a SentenceEmbedder"
        )
    opened = SentenceEmbedder.from_pretrained(str(model), device="cpu", **options)
    return SentenceEmbedder(opened.model, tokenizer or opened.tokenizer, opened.max_length, dim=opened.width)


def _verify(embedder: SentenceEmbedder, folder: Path, dtype: torch.dtype) -> None:
    """Compare the embeddings of the model and of the folder opened with SentenceTransformer, in the dtype of each."""
    from sentence_transformers import SentenceTransformer

    with quiet_loading():
        plain = {SETTINGS: None}  # open it as if this package were not imported
        opened = SentenceTransformer(str(folder), device="cpu", local_files_only=True, config_kwargs=plain)
        theirs = opened.encode(list(_SAMPLE))
    ours, theirs = embedder.encode(_SAMPLE), np.asarray(theirs, dtype=np.float32)
    if embedder.pooling == "sum":
        ours, theirs = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (ours, theirs))
    difference = np.abs(ours - theirs).max() / max(np.linalg.norm(ours, axis=1).mean(), 1e-12)
    allowed = max(_LARGEST_DIFFERENCE.get(each, 0.0) for each in (dtype, embedder.model.dtype))
    if not difference <= allowed:  # also if it is NaN, as with weights too large for float16
        raise ModelError(
            f"embeddings of the export differ from the model's by {difference:.1e} (relative): nothing was written"
        )
