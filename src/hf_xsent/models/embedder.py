"""Open any supported model with its tokenizer, to encode text for evaluation, mining and search."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers import AutoModel

from hf_xsent.errors import ModelError
from hf_xsent.models.exported import open_exported
from hf_xsent.models.families import family
from hf_xsent.models.loading import check_weights, load_config, load_tokenizer, loading_errors, quiet_loading
from hf_xsent.models.modules_json import sentence_transformer_settings
from hf_xsent.models.precision import compute_dtype
from hf_xsent.models.sentence_encoder import SentenceEncoder, SentenceEncoderConfig
from hf_xsent.models.text_encoder import TextEncoder

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
        of the computation: float32, bfloat16, float16, or auto, which is bfloat16 on devices that compute it in
        hardware.
        """
        device = _device(device)
        dtype = compute_dtype(precision, device)
        config = load_config(name_or_path)
        if isinstance(config, SentenceEncoderConfig):
            if pooling is not None:
                config = type(config).from_dict(config.to_dict() | {"pooling": pooling})
            with quiet_loading(), loading_errors(name_or_path, "readable weights (model.safetensors)"):
                model = AutoModel.from_pretrained(name_or_path, config=config, dtype=dtype)
        else:
            stated = sentence_transformer_settings(name_or_path)
            default_dim = stated.pop("dim", None)
            dim = default_dim if dim is None else dim
            if pooling is not None and "extraction" in stated:
                raise ModelError(f"{name_or_path!r} mixes its layers and has no pooling {pooling!r}: omit it")
            stated["pooling"] = pooling or stated.get("pooling", "mean")
            longest = family(config).max_length(config)
            stated["max_length"] = min(max_length or stated.get("max_length", 512), longest)
            model = open_exported(name_or_path, dtype, stated)
        check_weights(model, name_or_path)
        return cls(model.to(device).eval(), load_tokenizer(name_or_path), max_length, layer, dim=dim)


def _device(device: str | torch.device | None) -> torch.device:
    """Return the device, by default a GPU if available; raise an error if it is not usable."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:  # unknown, or not in this machine
        reason = str(error).splitlines()[0]
        raise ModelError(f"device {str(device)!r} is not available, use cpu or cuda: {reason}") from error
    return chosen
