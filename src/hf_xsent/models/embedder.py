"""Open any supported model with its tokenizer, to encode text for evaluation, mining and search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hf_xsent.errors import ModelError
from hf_xsent.models.dual_pivot import DualPivotForSentenceEmbedding
from hf_xsent.models.families import family
from hf_xsent.models.loading import load_config, load_tokenizer, quiet_loading
from hf_xsent.models.methods import METHODS
from hf_xsent.models.precision import choose_device, compute_dtype
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.models.sentence_transformer_files import stated_settings
from hf_xsent.models.text_encoder import TextEncoder
from hf_xsent.settings.convert import convert

if TYPE_CHECKING:
    from typing_extensions import Self


class SentenceEmbedder(TextEncoder):
    """A model and its tokenizer, which encode sentences in packed batches of similar lengths."""

    model: SentenceEncoder

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str,
        pooling: str | None = None,
        max_length: int | None = None,
        layer: int | None = None,
        precision: str | torch.dtype = "float32",
        device: str | torch.device | None = None,
        dim: int | None = None,
    ) -> Self:
        """Open a model of this package, a sentence-transformers model (transformer and pooling) or a supported encoder.

        Pooling (mean, if the model states none) and max_length are by default the model's, as is the prompt of
        ``encode``. ``dim`` truncates embeddings, like ``truncate_dim`` of sentence-transformers. ``precision`` is that
        of the computation: float32, bfloat16, float16, or auto, the faster of the first two, which is measured.
        """
        device, max_length = choose_device(device), convert("max_length", max_length, int | None)
        config = load_config(name_or_path)
        encoder_config, stated = stated_settings(name_or_path, config)
        method = METHODS.get(stated.get("model_type", ""))
        kind: type[SentenceEncoder] = SentenceEncoder if method is None else method[2]
        if pooling is not None and issubclass(kind, DualPivotForSentenceEmbedding):
            raise ModelError(f"{name_or_path!r} mixes its layers and has no pooling {pooling!r}: omit it")
        dtype = compute_dtype(precision, device, encoder_config.hidden_size)
        options: dict[str, Any] = {"config": config, "dtype": dtype, "pooling": pooling}
        if "model_type" not in stated:
            longest = family(encoder_config).max_length(encoder_config)
            options["max_length"] = min(max_length or stated.get("max_length", 512), longest)
        with quiet_loading():
            model = kind.from_pretrained(name_or_path, **options)
        dim = stated.get("dim") if dim is None else dim
        return cls(model.to(device).eval(), load_tokenizer(name_or_path), max_length, layer, dim=dim)
