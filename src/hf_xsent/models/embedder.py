"""Text in, vectors out: a sentence encoder with its tokenizer, for evaluation, mining and search."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoModel, PreTrainedTokenizerBase
from transformers.utils import cached_file

from hf_xsent.errors import ModelError, nearest
from hf_xsent.models.families import family
from hf_xsent.models.loading import load_config, load_tokenizer, one_sentence, quiet_loading
from hf_xsent.models.sentence_encoder import SentenceEncoder, SentenceEncoderConfig, View
from hf_xsent.packing import POOLINGS

if TYPE_CHECKING:
    from typing_extensions import Self

_SENTENCES_PER_TOKENIZER_CALL = 4096


class SentenceEmbedder:
    """Encodes sentences through the lean path: sorted by length, packed, a bounded number of tokens at a time."""

    def __init__(
        self,
        model: SentenceEncoder,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int | None = None,
        layer: int | None = None,
        tokens_per_batch: int = 8192,
        dim: int | None = None,
        prompt: str = "",
    ) -> None:
        self.longest_input: int = family(model.config.encoder_config).max_length(model.config.encoder_config)
        if max_length is not None and not 2 <= max_length <= self.longest_input:
            takes = f"this encoder takes 2 to {self.longest_input} tokens"
            raise ModelError(f"max_length {max_length} does not fit: {takes}")
        width = model.config.encoder_config.hidden_size
        if dim is not None and not 1 <= dim <= width:
            raise ModelError(f"dim {dim} does not exist: the vectors of this model have {width} dimensions")
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = max_length or model.config.max_length
        self.tokens_per_batch = tokens_per_batch
        self.width: int = dim or width
        self.prompt = prompt  # put before each sentence
        self.view = View(model.own_layer if layer is None else layer, model.config.pooling)
        self.check_views([self.view])

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str,
        pooling: str | None = None,
        max_length: int | None = None,
        layer: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device | None = None,
        dim: int | None = None,
    ) -> Self:
        """Open a model of ours, a sentence-transformers folder (transformer and pooling), or any supported encoder.

        Pooling, length and prompt are the model's own where it states them; a plain encoder is pooled by its mean. With
        ``dim`` only so many numbers of each vector are kept, as sentence-transformers' ``truncate_dim`` does.
        """
        device = _device(device)
        prompt = ""
        config = load_config(name_or_path)
        if isinstance(config, SentenceEncoderConfig):
            if pooling is not None:
                config = type(config).from_dict(config.to_dict() | {"pooling": pooling})
            with quiet_loading(), one_sentence(name_or_path, "readable weights (model.safetensors)"):
                model = AutoModel.from_pretrained(name_or_path, config=config, dtype=dtype)
        else:
            stated = sentence_transformer_settings(name_or_path)
            kept, prompt = stated.pop("dim", None), stated.pop("prompt", "")
            dim = kept if dim is None else dim
            if pooling is not None and "extraction" in stated:
                raise ModelError(f"{name_or_path!r} mixes its layers: it has no other pooling, leave {pooling!r} out")
            stated["pooling"] = pooling or stated.get("pooling", "mean")
            longest = family(config).max_length(config)
            stated["max_length"] = min(max_length or stated.get("max_length", 512), longest)
            model = _open_plain(name_or_path, dtype, stated)
        return cls(model.to(device).eval(), load_tokenizer(name_or_path), max_length, layer, dim=dim, prompt=prompt)

    @property
    def last_layer(self) -> int:
        """The number of the highest one; the embeddings are number 0."""
        return len(self.model.backbone.layers)

    @property
    def pooling(self) -> str:
        """How token states become a sentence vector."""
        return self.model.config.pooling

    def check_views(self, views: Sequence[View]) -> None:
        """Tell of layers and poolings that do not exist before any work."""
        for view in views:
            if view.layer is not None and not 0 <= view.layer <= self.last_layer:
                layers = f"this encoder has layers 0 (embeddings) to {self.last_layer}"
                raise ModelError(f"layer {view.layer} does not exist: {layers}")
            if view.pooling not in POOLINGS:
                choices = f"use one of {', '.join(POOLINGS)}{nearest(view.pooling, POOLINGS)}"
                raise ModelError(f"unknown pooling {view.pooling!r}: {choices}")
            if view.layer is None and view.pooling != self.pooling:
                raise ModelError(
                    f"this model mixes its layers: it has no other pooling, leave {view.pooling!r} out or name layers"
                )

    def encode(self, sentences: Sequence[str], language: str | None = None, show_progress: bool = False) -> np.ndarray:
        """N × width float32 vectors, row i for sentence i; ``language`` for models with language embeddings."""
        return self.encode_views(sentences, [self.view], language, show_progress)[0]

    @torch.inference_mode()
    def encode_views(
        self,
        sentences: Sequence[str],
        views: Sequence[View],
        language: str | None = None,
        show_progress: bool = False,
        into: Sequence[np.ndarray] | None = None,
    ) -> list[np.ndarray]:
        """As ``encode``, in several views of one pass through the encoder; ``into`` is filled where it is given."""
        if isinstance(sentences, str):
            raise ModelError("encode takes a list of sentences: put the one sentence into a list")
        self.check_views(views)
        ids = self._tokenize(sentences)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]), reverse=True)  # longest first: memory peaks at once
        vectors = [np.empty((len(ids), self.width), np.float32) for _ in views] if into is None else list(into)
        bar = tqdm(total=len(ids), desc="encoding", unit="sentence", disable=None if show_progress else True)
        start = 0
        with bar, _evaluating(self.model):
            while start < len(order):
                count = max(1, self.tokens_per_batch // len(ids[order[start]]))
                rows = order[start : start + count]
                for whole, some in zip(vectors, self._embed([ids[i] for i in rows], views, language), strict=True):
                    whole[rows] = some[:, : self.width].float().cpu().numpy()
                start += count
                bar.update(len(rows))
        return vectors

    def _tokenize(self, sentences: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = []
        for start in range(0, len(sentences), _SENTENCES_PER_TOKENIZER_CALL):
            some = [self.prompt + one for one in sentences[start : start + _SENTENCES_PER_TOKENIZER_CALL]]
            ids += self.tokenizer(some, truncation=True, max_length=self.max_length)["input_ids"]
        return ids

    def _embed(self, ids: list[list[int]], views: Sequence[View], language: str | None) -> list[Tensor]:
        device = self.model.device
        longest = max(map(len, ids))
        mask = torch.arange(longest) < torch.tensor([len(row) for row in ids])[:, None]
        padded = torch.zeros(mask.shape, dtype=torch.long)
        padded[mask] = torch.tensor([token for row in ids for token in row])
        languages = None
        if self.model.config.languages:
            languages = torch.full((len(ids),), self._language_id(language), device=device)
        return self._run([padded.to(device)], [mask.long().to(device)], views, languages)

    def _run(
        self, ids: list[Tensor], masks: list[Tensor], views: Sequence[View], languages: Tensor | None
    ) -> list[Tensor]:
        return self.model.embed_views(ids, masks, views, languages)

    def _language_id(self, language: str | None) -> int:
        known: list[str] = self.model.config.languages
        if language is None or language not in known:
            raise ModelError(f"this model has language embeddings for {', '.join(known)}: pass one as language")
        return known.index(language)


def _device(device: str | torch.device | None) -> torch.device:
    """One that is there, told before anything is opened; by default the GPU if there is one."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:  # no such kind, or none in this machine
        reason = str(error).splitlines()[0]
        raise ModelError(f"the device {str(device)!r} is not to be had here, try cpu or cuda: {reason}") from error
    return chosen


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout; afterwards each part is in the mode it was in, also after an error."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _open_plain(name_or_path: str, dtype: torch.dtype, stated: dict[str, Any]) -> SentenceEncoder:
    """A model without a config of ours, by what its modules state."""
    if "extraction" in stated:
        from hf_xsent.models.exported_extraction import open_extraction

        return open_extraction(name_or_path, stated.pop("extraction"), dtype, **stated | {"pooling": "sum"})
    return SentenceEncoder.from_backbone(name_or_path, dtype=dtype, **stated)


def sentence_transformer_settings(name_or_path: str) -> dict[str, Any]:
    """What a sentence-transformers folder or Hub id states, from pooling to prompt; empty for a plain encoder."""
    modules = _stated(name_or_path, "modules.json")
    if modules is None:
        return {}
    settings: dict[str, Any] = {}
    whole = _stated(name_or_path, "config_sentence_transformers.json") or {}
    if prompt := whole.get("prompts", {}).get(whole.get("default_prompt_name")):
        settings["prompt"] = prompt
    for module in modules:
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Pooling":
            pooling = _stated(name_or_path, f"{module['path']}/config.json") or {}
            settings["pooling"] = _pooling(pooling)
            if prompt and not pooling.get("include_prompt", True):
                raise ModelError(
                    f"{name_or_path!r} pools without its prompt: open it with sentence_transformers.SentenceTransformer"
                )
        elif kind == "Normalize":
            settings["normalize"] = True
        elif kind == "WeightedLayerPooling" or (kind == "Dense" and _is_map(name_or_path, module["path"], settings)):
            settings.setdefault("extraction", {})[kind] = module["path"]
        elif kind != "Transformer":
            raise ModelError(
                f"{name_or_path!r} has a module {kind}: open it with sentence_transformers.SentenceTransformer"
            )
    places = {"max_length": [("sentence_bert_config.json", "max_seq_length"),  # before version 6
                             ("tokenizer_config.json", "model_max_length")],
              "dim": [("config_sentence_transformers.json", "truncate_dim")]}  # fmt: skip
    for setting, files in places.items():
        stated = [(_stated(name_or_path, file) or {}).get(key) for file, key in files]
        if any(stated):
            settings[setting] = int(next(filter(None, stated)))
    return settings


def _is_map(name_or_path: str, module: str, settings: dict[str, Any]) -> bool:
    """Whether a Dense module is the linear map after a mix of layers."""
    stated = _stated(name_or_path, f"{module}/config.json") or {}
    linear = not stated.get("bias", True) and str(stated.get("activation_function")).endswith("Identity")
    return linear and "extraction" in settings


def _stated(name_or_path: str, file: str) -> Any:
    """A JSON file of a model folder or Hub id; None where there is none."""
    found = cached_file(
        name_or_path,
        file,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else json.loads(Path(found).read_text(encoding="utf-8"))


def _pooling(config: dict[str, Any]) -> str:
    """Both layouts: ``pooling_mode`` of version 6, one ``pooling_mode_*`` flag each before."""
    legacy = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
    modes = [mode for key, mode in legacy.items() if config.get(key)] or [str(config.get("pooling_mode"))]
    if len(modes) != 1 or modes[0] not in legacy.values():
        raise ModelError(f"this pooling is not supported: {config}")
    return modes[0]
