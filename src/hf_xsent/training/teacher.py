"""Embed the sentences of a batch by the frozen teachers of its objectives."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, TrainingArguments

from hf_xsent.errors import ModelError, RecipeError, shortened
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.encoder import Encoder
from hf_xsent.models.families import family
from hf_xsent.models.loading import load_config, load_tokenizer, quiet_loading
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.models.sentence_transformer_files import read_json, stated_settings
from hf_xsent.models.text_encoder import as_array
from hf_xsent.objectives.base import SIDES
from hf_xsent.objectives.registry import objective_class
from hf_xsent.runs.origin import Origin

logger = logging.getLogger(__name__)

Encode = Callable[[list[str]], Any]  # returns an embedding of each sentence


@dataclass(frozen=True)
class Teacher:
    """A frozen model, and the Hub id or folder of its weights, if it is known."""

    encode: Encode
    name: str | None
    by_embeddings: bool = False  # whether its embeddings identify it, because the config cannot


def load_teachers(
    config: AlignmentConfig, arguments: TrainingArguments, teachers: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """Open each teacher that objectives name, and join ``teachers``, which take precedence; of ``{}``, open none.

    Equal names are opened once; None is the model before training.
    """
    if not isinstance(teachers, Mapping | None):
        raise RecipeError(f"teachers is a mapping, such as {{'distillation': model}}, not {shortened(teachers)}")
    if teachers is not None and not teachers:
        return teachers
    names = config.teachers(teachers or ())
    opened = {name: _open(name, config, arguments) for name in dict.fromkeys(names.values()) if name is not None}
    return {objective: None if name is None else opened[name] for objective, name in names.items()} | dict(
        teachers or {}
    )


def copy_of_start(model: Any, arguments: TrainingArguments) -> Teacher:
    """Copy the model before training."""
    start = deepcopy(model).to(torch.bfloat16 if arguments.bf16 else model.dtype)
    return Teacher(partial(start.encode, truncate_dim=model.config.encoder_config.hidden_size), None)  # not truncated


class Teachers:
    """Frozen models with their own tokenizers, by objective; they are not saved with the student.

    A teacher is a model, its ``encode``, its name or None, a copy of the model before training, which ``start`` must
    be set to. One that shares weights with the model, which would train with it, is a frozen copy. The model's config
    names the teachers, so that the recipe and the identity of a run do.
    """

    start: Any = None  # a Teacher

    def __init__(self, teachers: Mapping[str, Any], model: Any, arguments: TrainingArguments) -> None:
        for name in teachers:
            if not objective_class(name).needs.teacher or name not in model.config.objectives:
                raise RecipeError(f"the model has no objective {name} with a teacher: add it to objectives, or drop it")
        self.by_objective: dict[str, Teacher | None] = {}
        for name, given in teachers.items():
            settings, teacher = model.config.objectives[name], given
            if isinstance(given, str | PathLike):
                opened = _open(str(given), model.config, arguments)
                teacher = replace(opened, by_embeddings=not hasattr(settings, "teacher"))
            elif not isinstance(given, Teacher | None):
                teacher = Teacher(_encode_of_object(given, model), _source_of(given), True)
            self.by_objective[name] = teacher
            if teacher is not None and hasattr(settings, "teacher"):
                model.config.objectives = model.config.objectives | {name: replace(settings, teacher=teacher.name)}

    @property
    def need_start(self) -> bool:
        """Whether an objective learns from the model before training."""
        return None in self.by_objective.values()

    def identity(self) -> dict[str, str]:
        """Return a hash of some embeddings of each teacher that the config does not identify."""
        others = {name: teacher for name, teacher in self.by_objective.items() if teacher and teacher.by_embeddings}
        return {f"teacher of {name}": Encoder(teacher).identity["model"] for name, teacher in others.items()}

    def __call__(self, batch: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
        """Replace the texts of the batch by the teachers' embeddings; equal teachers embed each side once."""
        texts = {side: batch[f"{side}_texts"] for side in SIDES if f"{side}_texts" in batch}
        taught = {name: value for name, value in batch.items() if not name.endswith("_texts")}
        vectors: dict[Any, Tensor] = {}
        for objective, teacher in self.by_objective.items():
            encode = (teacher or self.start).encode
            for side in sorted(objective_class(objective).needs.teacher & texts.keys()):
                if (encode, side) not in vectors:
                    embeddings = as_array(encode(texts[side]), len(texts[side])).astype(np.float32, copy=False)
                    vectors[encode, side] = torch.as_tensor(embeddings).to(device)
                taught[f"{objective}_teacher_{side}"] = vectors[encode, side]
        return taught


def _encode_of_object(given: Any, model: Any) -> Encode:
    """Return the ``encode`` of a teacher in memory; that of a model is checked, a function is taken as it is."""
    encode: Any = getattr(given, "encode", None if isinstance(given, nn.Module) else given)
    kind = type(owner := getattr(given, "__self__", given)).__name__
    if not callable(encode):
        raise ModelError(f"the teacher {kind} has no encode: give a folder, a Hub id or a model that encodes text")
    encode = _frozen(encode, model)
    return _checked(encode, kind, model.config) if hasattr(owner, "encode") else encode


def _frozen(encode: Encode, model: nn.Module) -> Encode:
    """Return a method of a copy if ``encode`` is that of a module with weights of the model, else ``encode``."""
    owner: Any = getattr(encode, "__self__", None)
    module = owner if isinstance(owner, nn.Module) else getattr(owner, "model", None)
    weights = module.parameters() if isinstance(module, nn.Module) else ()
    return encode if {*map(id, weights)}.isdisjoint(map(id, model.parameters())) else deepcopy(encode)


def _source_of(given: Any) -> str | None:
    """Return the Hub id or folder that holds a teacher's weights."""
    owner: Any = getattr(given, "__self__", given)
    model = getattr(owner, "transformers_model", None) or getattr(owner, "model", owner)
    return Origin.of(model).name


def _open(name_or_path: str, student: AlignmentConfig, arguments: TrainingArguments) -> Teacher:
    """Open a teacher by its name."""
    device, precision = arguments.device, "bfloat16" if arguments.bf16 else "float32"
    try:
        config, stated = stated_settings(name_or_path, load_config(name_or_path))
        family(config)
    except ModelError as error:
        encode = _open_sentence_transformer(name_or_path, device, error)
    else:
        encode = _encode_of(name_or_path, config, stated, student, device, precision)
    return Teacher(_checked(encode, repr(name_or_path), student), name_or_path)


def _checked(encode: Any, name: str, student: AlignmentConfig) -> Encode:
    """Check that a teacher encodes text into embeddings of the student's width; truncate none to less."""
    width = student.encoder_config.hidden_size
    try:
        found = len(as_array(encode(["A sentence."]), 1)[0])
        if found < width and "truncate_dim" in signature(encode).parameters:
            encode = partial(encode, truncate_dim=sys.maxsize)
            found = len(as_array(encode(["A sentence."]), 1)[0])
    except ModelError as error:
        raise ModelError(f"the teacher {name} cannot encode text alone: {error}") from error
    if found != width:
        raise ModelError(
            f"the teacher {name} has embeddings of width {found}, the student of {width}: choose models of equal width"
        )
    return encode


def _encode_of(
    name_or_path: str,
    config: PreTrainedConfig,
    stated: Mapping[str, Any],
    student: AlignmentConfig,
    device: torch.device,
    precision: str,
) -> Encode:
    """Open a model with the pooling that it states; a plain encoder, which states none, embeds like the student."""
    if stated:
        return SentenceEmbedder.from_pretrained(name_or_path, device=device, precision=precision).encode
    settings = {name: getattr(student, name) for name in ("pooling", "normalize", "prompts", "default_prompt_name")}
    settings["pooling"] = settings["pooling"].replace("sum", "mean")  # sums of dual pivot have the same cosines
    settings["max_length"] = min(student.max_length, family(config).max_length(config))
    model: Any = SentenceEncoder.from_backbone(name_or_path, dtype=getattr(torch, precision), **settings)
    return SentenceEmbedder(model.to(device).eval(), load_tokenizer(name_or_path)).encode


def _open_sentence_transformer(name_or_path: str, device: torch.device, reason: ModelError) -> Encode:
    """Open a model that only SentenceTransformer opens; ``reason`` is why this package does not."""
    from sentence_transformers import SentenceTransformer

    try:
        with quiet_loading():
            model = SentenceTransformer(name_or_path, device=str(device), model_kwargs={"use_safetensors": True})
    except Exception as error:  # files of other authors can raise anything
        raise ModelError(f"the teacher cannot be loaded: {reason}") from error
    if not read_json(name_or_path, "modules.json", list):
        logger.warning("the teacher %s states no pooling: SentenceTransformer averages its hidden states", name_or_path)
    return partial(model.eval().encode, show_progress_bar=False)
