"""Open the models to measure, by name or as objects with ``encode``, with the settings that reports state."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.evaluation.settings import EvaluateSettings
from hf_xsent.evaluation.task import Encode, EvaluationTask, ModelEncoder, Start
from hf_xsent.evaluation.vectors import SentenceVectors
from hf_xsent.files import digest
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.families import family
from hf_xsent.models.loading import load_config
from hf_xsent.models.sentence_encoder import SentenceEncoder, View
from hf_xsent.models.text_encoder import TextEncoder
from hf_xsent.runs.identity import identify_model

_LENGTHS = ("max_seq_length", "max_length")  # of SentenceTransformer, and of ours


@dataclass(frozen=True)
class OpenedModel:
    """A model to measure, with the settings of all its reports; ``variants`` are its views with theirs."""

    name: str
    short_name: str
    encoder: Any
    fingerprint: str
    settings: Mapping[str, Any]
    variants: Sequence[tuple[dict[str, Any], Encode]]
    vectors: SentenceVectors | None = None  # of a model by name, which encodes each text once for all variants

    def prepare(self, inputs: Iterable[tuple[str, str]]) -> None:
        """Encode these texts for all variants at once."""
        if self.vectors is not None:
            self.vectors.add(inputs)

    def as_start(self, inputs: Iterable[tuple[str, str]]) -> Start:
        """Return what later models are compared with on these texts; free the memory of a model by name."""
        if self.vectors is not None:
            self.vectors.release_model(inputs)
        described, encode = self.variants[0]
        reading = {name: described[name] for name in described if name != "model"}
        return Start(digest([self.fingerprint, reading]), encode)


def is_name(model: Any) -> bool:
    """Return whether a model is named by its folder or Hub id."""
    return isinstance(model, str) or (isinstance(model, os.PathLike) and not hasattr(model, "encode"))


def open_models(settings: EvaluateSettings, tasks: Sequence[EvaluationTask]) -> Generator[OpenedModel]:
    """Check the models, and return an iterator that opens one after the other."""
    models = settings.model.values() if isinstance(settings.model, Mapping) else settings.model
    return (_by_name if all(map(is_name, models)) else _objects)(settings, tasks)


def _by_name(settings: EvaluateSettings, tasks: Sequence[EvaluationTask]) -> Generator[OpenedModel]:
    """Open models by folder or Hub id."""
    layers: list[int | None] = [*parse_layers(settings.layers or ())]
    poolings = [name for names in settings.pooling or () for name in names.split(",")]
    by_name = settings.model if isinstance(settings.model, Mapping) else {}
    models = [os.path.expanduser(model) for model in by_name.values() or settings.model]
    if len({*map(os.path.realpath, models)}) < len(models):
        raise RecipeError(f"evaluate compares different models, but one is given twice: {', '.join(models)}")
    names = dict(zip(models, map(str, by_name), strict=True)) if by_name else short_names(models)
    choices: dict[str, Sequence[Any]] = {"pooling": poolings, "layers": layers, "dims": settings.dims or ()}
    asked = [name for name, values in choices.items() if values]
    if asked and (without := [task.name for task in tasks if not task.has_views]):
        raise RecipeError(f"{without[0]} chooses the layer itself: drop {asked[0]}, or measure it separately")
    varied = [name for name in asked if len(choices[name]) > 1]
    if varied and (len(names) > 1 or settings.page is not None):
        raise RecipeError(f"--{varied[0]} takes one value if models are compared, or with --page")
    for model in names:
        if not Path(model).is_dir():
            load_config(model)  # a name that nothing has is an error before the first model is measured

    def opened() -> Generator[OpenedModel]:
        reading: dict[str, Any] = {name: getattr(settings, name) for name in ("max_length", "precision", "device")}
        for model, short_name in names.items():
            embedder = SentenceEmbedder.from_pretrained(model, **reading)
            views = [
                View(layer, pooling)
                for pooling in poolings or [embedder.view.pooling]
                for layer in (layers or [embedder.view.layer])
            ]
            texts = (text for task in tasks for text in task.inputs())
            described, dims = describe(embedder, model), settings.dims or [embedder.width]
            yield open_views(embedder, described, short_name, views, dims, texts)

    return opened()


def open_views(
    embedder: SentenceEmbedder,
    described: Mapping[str, Any],
    short_name: str,
    views: Sequence[View],
    dims: Sequence[int],
    inputs: Iterable[tuple[str, str]],
) -> OpenedModel:
    """Open views and dimensions of a model with these settings (``describe``), which encodes these texts."""
    check_views(embedder, views, dims)
    vectors = SentenceVectors(embedder, views, inputs)
    variants: list[tuple[dict[str, Any], Encode]] = [
        ({**described, "pooling": view.pooling, "layer": view.layer, "dim": dim}, vectors.of(view, dim))
        for view, dim in product(views, dims)
    ]
    fingerprint = described["model_fingerprint"]
    return OpenedModel(described["model"], short_name, embedder, fingerprint, described, variants, vectors)


def _objects(settings: EvaluateSettings, _: Sequence[EvaluationTask]) -> Generator[OpenedModel]:
    """Open objects with ``encode``, and folders or Hub ids beside them."""
    names = ("pooling", "layers", "dims", "precision", "device", "output")
    if unused := [name for name in names if getattr(settings, name) != getattr(EvaluateSettings, name)]:
        listed = f"{' and '.join(unused)} {'need' if len(unused) > 1 else 'needs'}"
        raise ModelError(
            f"{listed} models that are named by a folder or Hub id: save the opened ones, name the folders"
        )
    given = settings.model
    if not isinstance(given, Mapping):
        several = len(given) > 1
        given = {
            os.fspath(model) if is_name(model) else f"{type(model).__name__}{f' {place}' if several else ''}": model
            for place, model in enumerate(given, 1)
        }
    for model in given.values():
        if not is_name(model) and not hasattr(model, "encode"):
            kind = type(model).__name__
            raise ModelError(f"{kind} has no encode: give a folder, a Hub id or a model that encodes text")
    models = {str(name): _with_length(model) for name, model in given.items()}

    def opened() -> Generator[OpenedModel]:
        with _reading(models.values(), settings.max_length):
            for name, model in models.items():
                length = getattr(model, "max_length" if isinstance(model, TextEncoder) else "max_seq_length", None)
                described = {"model": name} | ({"max_length": length} if isinstance(length, int) else {})
                yield OpenedModel(name, name, model, name, described, [(described, ModelEncoder(model))])

    return opened()


def _with_length(model: Any) -> Any:
    """Open a model by name; wrap one of our classes, such as from AutoModel, which has its length in the config."""
    if is_name(model):
        return SentenceEmbedder.from_pretrained(os.path.expanduser(model))
    return SentenceEmbedder(model, model.tokenizer) if isinstance(model, SentenceEncoder) else model


@contextmanager
def _reading(models: Iterable[Any], max_length: int | None) -> Iterator[None]:
    """Let opened models read up to ``max_length`` tokens of a text in the block."""
    if max_length is None:
        yield
        return
    before = []
    try:
        for model in models:
            name = next((name for name in _LENGTHS if isinstance(getattr(model, name, None), int)), None)
            if name is None:
                kind = type(model).__name__
                raise ModelError(f"{kind} has no limit of tokens, which max_length could change: drop max_length")
            if not 3 <= max_length <= (longest := _longest_input(model) or max_length):
                raise ModelError(f"max_length {max_length} does not fit: this encoder takes 3 to {longest} tokens")
            before.append((model, name, getattr(model, name)))
            setattr(model, name, max_length)
        yield
    finally:
        for model, name, length in reversed(before):
            setattr(model, name, length)


def _longest_input(model: Any) -> int | None:
    """Return the most tokens that an opened model can read; None if it is not known."""
    if isinstance(model, TextEncoder):
        return model.longest_input
    modules = list(model.children()) if isinstance(model, torch.nn.Module) else []
    config = getattr(getattr(modules[0], "auto_model", None), "config", None) if modules else None
    with suppress(ModelError):  # an encoder that only its library supports
        return None if config is None else family(config).max_length(config)
    return None


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Map models to names without their first folders, as far as they still differ.

    >>> short_names(["org/e5", "runs/a/model", "runs/b/model"])
    {'org/e5': 'e5', 'runs/a/model': 'a/model', 'runs/b/model': 'b/model'}
    """
    parts = [Path(model).parts or (model,) for model in models]
    endings = [[str(Path(*path[-count:])) for count in range(1, 1 + len(path))] for path in parts]
    counts = Counter(ending for of_model in endings for ending in of_model)
    return {
        model: next((ending for ending in of_model if counts[ending] == 1), of_model[-1])
        for model, of_model in zip(models, endings, strict=True)
    }


def describe(embedder: SentenceEmbedder, name_or_path: str | Path) -> dict[str, Any]:
    """Return the settings that all reports of a model share: all except view and dimension."""
    return {
        "model": str(name_or_path),
        "model_fingerprint": identify_model(str(name_or_path)),
        "max_length": embedder.max_length,
        "dtype": str(embedder.model.dtype).removeprefix("torch."),
    } | ({"prompt": embedder.prompt} if embedder.prompt else {})


def parse_layers(values: Sequence[int | str]) -> list[int]:
    """Return the layers that numbers and ranges name, each once.

    >>> parse_layers(["0-2,8", 2])
    [0, 1, 2, 8]
    """
    layers: list[int] = []
    for part in (part for value in values for part in str(value).split(",") if part):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if ends is None or (ends[2] and int(ends[2]) < int(ends[1])):
            raise RecipeError(f"--layers takes numbers and ranges such as 8 or 0-12, not {part!r}")
        layers += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return list(dict.fromkeys(layers))


def check_views(embedder: SentenceEmbedder, views: Sequence[View], dims: Sequence[int]) -> None:
    """Raise an error if the model lacks a view or a dimension, or has language embeddings."""
    embedder.check_views(views)
    for dim in dims:
        if not 1 <= dim <= embedder.width:
            raise ModelError(f"dim {dim} does not exist: the embeddings of this model have {embedder.width} dimensions")
    if embedder.model.config.languages:
        raise ModelError(
            "evaluate does not support models with language embeddings (their config has languages): in "
            "Python, use hf_xsent.evaluation.pairs.retrieval_by_language(model, {language: (sources, targets)}, "
            "target_language)"
        )
