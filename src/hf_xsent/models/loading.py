"""Load configs, encoders and tokenizers from the Hub or a folder, without unused heads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from itertools import chain
from os.path import isfile
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from hf_xsent.errors import ModelError
from hf_xsent.files import is_local
from hf_xsent.models.families import family
from hf_xsent.runs.hub import loading_errors, read_model_file
from hf_xsent.runs.run import check_finished

SETTINGS = "hf_xsent"  # the key of config.json with the settings of our model over the encoder
HUB_ARGUMENTS = ("revision", "cache_dir", "token", "local_files_only", "force_download", "subfolder", "proxies")
# Arguments of from_pretrained that choose how transformers loads the weights of an encoder, and where it places them.
LOADING_ARGUMENTS = (
    *HUB_ARGUMENTS,
    *("dtype", "torch_dtype", "attn_implementation", "low_cpu_mem_usage", "device_map", "max_memory"),
    *("offload_folder", "offload_buffers", "quantization_config", "weights_only", "key_mapping", "use_kernels"),
)
# Arguments of from_pretrained that AutoModel passes and that have no effect on a plain encoder.
UNUSED_ARGUMENTS = {
    *("_from_auto", "adapter_kwargs", "trust_remote_code", "use_safetensors", "code_revision", "add_pooling_layer")
}


def build_encoder(config: PreTrainedConfig) -> PreTrainedModel:
    """Build a new encoder of this config without a pooler."""
    return AutoModel.from_config(deepcopy(config), **family(config).arguments)


def load_encoder(
    name_or_path: str, config: PreTrainedConfig | None = None, dropout: float | None = None, **options: Any
) -> PreTrainedModel:
    """Load a pretrained encoder, or that of a model of this package, without pooler and heads.

    ``config`` and ``dropout`` replace those of the checkpoint. The dtype is float32 if ``options`` state none.
    """
    config = load_config(name_or_path, **hub_arguments(options)) if config is None else config
    config = deepcopy(split_config(config)[0])
    if dropout is not None:
        config.update(dict.fromkeys(family(config).dropouts, dropout))
    options |= family(config).arguments
    if options.get("dtype") is None:
        options["dtype"] = options.pop("torch_dtype", None) or torch.float32
    if read_model_file(name_or_path, "adapter_config.json", Path, **hub_arguments(options)):
        raise ModelError(f"{name_or_path!r} has an adapter (adapter_config.json): merge it, and save the encoder alone")
    cure = "save pickled weights as model.safetensors by save_pretrained of transformers, and give that folder"
    options |= {"use_safetensors": True, "output_loading_info": True}
    with quiet_loading(), loading_errors(name_or_path, "readable weights (model.safetensors)", cure):
        encoder, info = AutoModel.from_pretrained(name_or_path, config=config, **options)
    if missing := info["missing_keys"]:
        raise ModelError(
            f"{name_or_path!r} lacks {len(missing)} weights of the encoder in its config.json, such as {min(missing)}: "
            "save the whole encoder by save_pretrained of transformers"
        )
    return encoder


def hub_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``from_pretrained`` that concern the Hub, such as ``revision``."""
    return {name: arguments[name] for name in HUB_ARGUMENTS if arguments.get(name) is not None}


def loading_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Remove the arguments of ``from_pretrained`` that choose how to load an encoder, and return those with a value."""
    loading = {name: arguments.pop(name) for name in LOADING_ARGUMENTS if name in arguments}
    return {name: value for name, value in loading.items() if value is not None}


def load_config(name_or_path: str, **hub: Any) -> PreTrainedConfig:
    """Load the config of a model folder or Hub id."""
    if isfile(name_or_path):
        raise ModelError(f"{name_or_path} is a file: give the folder of the model, {Path(name_or_path).parent}")
    check_finished(Path(name_or_path, hub.get("subfolder", "")))
    with loading_errors(name_or_path, "readable config.json"):
        return AutoConfig.from_pretrained(name_or_path, **hub)


def split_config(config: PreTrainedConfig) -> tuple[PreTrainedConfig, dict[str, Any]]:
    """Return the config of the encoder, and the settings of our model over it: {} for a plain encoder."""
    if hasattr(config, "encoder_config"):
        return config.encoder_config, config.saved_settings()
    settings = getattr(config, SETTINGS, None)
    if settings is None:
        return config, {}
    config = copy(config)  # the caller's config stays as it is
    delattr(config, SETTINGS)
    return config, dict(settings)


def load_encoder_config(name_or_path: str, **hub: Any) -> PreTrainedConfig:
    """Load the config of an encoder, or of the encoder of a model of this package."""
    return split_config(load_config(name_or_path, **hub))[0]


def load_tokenizer(name_or_path: str, **hub: Any) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model folder or Hub id."""
    folder = Path(name_or_path, hub.get("subfolder", ""))
    check_finished(folder)
    if is_local(name_or_path) and not has_tokenizer(folder):
        raise ModelError(f"the model folder {str(folder)!r} holds no tokenizer: save one into it (tokenizer.json)")
    with loading_errors(name_or_path, "readable tokenizer"):
        return AutoTokenizer.from_pretrained(name_or_path, **hub)


def has_tokenizer(folder: Path) -> bool:
    """Return whether a folder has a file of a tokenizer."""
    files = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "sentencepiece.bpe.model", "spiece.model")
    return any((folder / file).is_file() for file in files)


def forget_last_call(tokenizer: Any) -> None:
    """Remove truncation and padding of a tokenizer's last call, which it would save; each call sets its own."""
    if (backend := getattr(tokenizer, "backend_tokenizer", None)) is not None:
        backend.no_truncation()
        backend.no_padding()


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, finds_words: bool = False) -> None:
    """Raise an error unless the encoder of this config has an embedding for each token, and the tokenizer can pad.

    With ``finds_words``, it must also state the characters of each piece.
    """
    if finds_words:
        check_offsets(tokenizer)
    if len(tokenizer) > config.vocab_size:
        raise ModelError(
            f"the tokenizer {tokenizer.name_or_path!r} has {len(tokenizer)} tokens, but the encoder only "
            f"{config.vocab_size} embeddings: use its own tokenizer, or add them by model.resize_token_embeddings"
        )
    if tokenizer.pad_token is None:
        raise ModelError(f"the tokenizer {tokenizer.name_or_path!r} has no padding token: set pad_token and save it")


def check_offsets(tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise an error if a tokenizer does not state the characters of each piece."""
    if not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer {tokenizer.name_or_path!r} runs in Python ({type(tokenizer).__name__}), which does not "
            "find the words of pieces: links of words and answers in texts need a model with a tokenizer.json"
        )


def check_ids(ids: Iterable[Iterable[int]], tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Raise an error if a token of these sentences has no embedding in the encoder of this config."""
    if (largest := max(chain.from_iterable(ids), default=0)) >= config.vocab_size:
        raise ModelError(
            f"the tokenizer {tokenizer.name_or_path!r} has the token {tokenizer.convert_ids_to_tokens(largest)!r}, but "
            "the encoder no embedding for it: use its own tokenizer, or add it by model.resize_token_embeddings"
        )


def token_ids(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the special token ids that objectives with masking need."""
    if tokenizer.mask_token_id is None:
        raise ModelError(f"the tokenizer {tokenizer.name_or_path!r} has no mask_token: set it and save the tokenizer")
    return {
        "mask_token_id": tokenizer.mask_token_id,
        "unknown_token_id": tokenizer.unk_token_id,
        "special_token_ids": sorted(tokenizer.all_special_ids),
    }


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Hide transformers' table of unused weights (poolers, heads) and its progress bars."""
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
