"""Save a model in the one form of runs, checkpoints and exports, and load its weights again.

The folder is a plain encoder with its tokenizer and the modules of sentence-transformers, which AutoModel and
SentenceTransformer open without this package. The key ``hf_xsent`` of its config.json has the settings of our model,
and ``heads.safetensors`` the weights that only training needs. An export has no heads.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from hf_xsent.errors import ModelError, RecipeError, shortened
from hf_xsent.files import remove, write_json
from hf_xsent.models.adapters import plain_weights, refuse_other_adapters
from hf_xsent.models.families import family
from hf_xsent.models.loading import SETTINGS, forget_last_call, load_config, quiet_loading, split_config
from hf_xsent.models.sentence_transformer_files import write_modules, write_own_module
from hf_xsent.runs.hub import loading_errors, read_model_file
from hf_xsent.runs.run import RUN_FACTS, RUN_STATE_FILE, missing_from_checkpoint

logger = logging.getLogger(__name__)

HEADS_FILE = "heads.safetensors"
RUNTIMES_FILE = "runtimes.json"  # the runtimes in which an export was opened
OF_EXPORTS = [  # in patterns, * is also /
    *("model*.safetensors*", HEADS_FILE, "[0-9]_*/*", "onnx/*", "openvino/*", "gguf/*"),
    *("modules.json", RUN_FACTS, RUNTIMES_FILE),
]
_OF_OTHER_WEIGHTS = ("onnx", "openvino", "gguf", RUNTIMES_FILE, "README.md")  # that an export has beside its weights
_TRAINING_ONLY = ("encoder.", "objectives.", "training_mlp.")


def save_model(
    model: Any,
    folder: Path,
    state: Mapping[str, Tensor] | None = None,
    *,
    heads: bool = True,
    dtype: torch.dtype | None = None,
    dim: int | None = None,
    max_shard_size: int | str = "50GB",
) -> None:
    """Write a model, with ``heads`` for training; ``encode`` of the saved model truncates embeddings to ``dim``.

    ``state`` are the model's weights, gathered from several processes. A model that no plain encoder can express has
    the same files, but its config.json is of our type, so that only this package opens it. If the folder holds an
    export, its facts, its card and its files of other formats, which are of other weights, are removed.
    """
    refuse_other_adapters(model, model.config.lora_rank)
    is_export = (folder / RUN_FACTS).is_file() and not (folder / RUN_STATE_FILE).is_file()
    for name in (*_OF_OTHER_WEIGHTS, RUN_FACTS) if is_export else ():
        remove(folder / name)
    dtype = dtype or model.encoder.dtype
    state = model.state_dict() if state is None else state
    encoder = {name.removeprefix("encoder."): weight for name, weight in state.items() if name.startswith("encoder.")}
    plain = plain_weights(model.encoder, encoder)
    others = {name: weight for name, weight in state.items() if plain.get(name.removeprefix("encoder.")) is not weight}
    if not heads:
        encoding = {name: weight for name, weight in others.items() if not name.startswith(_TRAINING_ONLY)}
        others = {} if model.not_plain is None else encoding
    plain |= _pooler(model.encoder.config)
    plain = {name: weight.to(dtype).contiguous() for name, weight in plain.items()}
    with quiet_loading():
        model.encoder.save_pretrained(folder, state_dict=plain, max_shard_size=max_shard_size)
    sharded = any(folder.glob("model-?????-of-?????.safetensors"))
    remove(folder / ("model.safetensors" if sharded else "model.safetensors.index.json"))
    (folder / HEADS_FILE).unlink(missing_ok=True)
    if others:
        save_file({name: weight.detach().cpu().contiguous() for name, weight in others.items()}, folder / HEADS_FILE)
    _write_tokenizer(model, folder)
    config, full = model.config, model.config.encoder_config.hidden_size
    width = dim or config.dim or full
    dim = width if width < full else None
    if model.not_plain is None:
        _write_config(config, folder, dtype, width, {**config.saved_settings(heads), "dim": dim})
        write_modules(model, folder, dim)
    else:
        config.copied(encoder_config=model.encoder.config, dim=dim).save_pretrained(folder)
        write_own_module(config, folder, dim)
    for path in (*folder.glob("*.safetensors"), *folder.glob("[0-9]_*/*.safetensors")):
        shutil.copymode(folder / "config.json", path)  # safetensors writes files that only their owner can read


def read_heads(name_or_path: str, **hub: Any) -> dict[str, Tensor]:
    """Read the weights that only training needs; empty for an export or a plain encoder."""
    return read_model_file(name_or_path, HEADS_FILE, load_file, **hub) or {}


def saved_weights(folder: str | Path) -> dict[str, Tensor]:
    """Read the weights in a folder, by their names in the model that was trained."""
    weights: dict[str, Tensor] = {}
    with loading_errors(str(folder), "readable weights (model.safetensors)"):
        for path in Path(folder).glob("model*.safetensors"):
            plain = {name: weight for name, weight in load_file(path).items() if not name.startswith("pooler.")}
            weights |= {f"encoder.{name}": weight for name, weight in plain.items()}
    return weights | read_heads(str(folder))


def check_languages(name: str, config: Any, saved: Mapping[str, Any]) -> None:
    """Raise an error if a saved model has embeddings of other languages than a config; their rows would not match."""
    objectives = saved.get("objectives") or {}
    parts = {"": saved.get("languages")} | {part: objectives[part].get("predicted_languages") for part in objectives}
    for part, languages in parts.items():
        if languages and config.languages_by_part.get(part, languages if part else None) != languages:
            raise RecipeError(
                f"{name!r} has embeddings of the languages {', '.join(languages)}: set languages to the same list, in "
                "this order (it cannot learn further ones: train those from the encoder that it started from)"
            )


def load_saved_weights(model: Any, folder: str | Path) -> None:
    """Load all weights of a checkpoint into the model that was trained; raise an error if they do not fit."""
    saved = split_config(load_config(str(folder)))[1]
    check_languages(str(folder), model.config, saved)
    weights, names = saved_weights(folder), model.state_dict().keys()
    adapted = {name.replace(".base_layer.", ".") for name in names if ".base_layer." in name}  # saved merged, too
    try:
        model.load_state_dict({name: weights[name] for name in weights if name not in adapted or name in names})
    except RuntimeError as error:
        lost = any(not name.startswith("encoder.") for name in names - weights.keys())
        same = all(saved.get(name) == value for name, value in model.config.saved_settings().items())
        if lost and same and not (Path(folder) / HEADS_FILE).is_file():
            raise missing_from_checkpoint(folder, [HEADS_FILE]) from error
        reason = " ".join(str(error).partition(":")[2].split())
        raise ModelError(
            f"{folder} is of another model: {shortened(reason)}: resume with the recipe of that run"
        ) from error


def _write_tokenizer(model: Any, folder: Path) -> None:
    """Write the tokenizer, if it is known, such that it truncates and pads as plain encoders need.

    Only ``model_max_length`` states the length. Else, tokenizer.json would hold the truncation and padding of the last
    call, from which transformers writes a second length, ``max_length``; fastembed takes the smaller of the two.
    """
    tokenizer = model.find_tokenizer()
    if tokenizer is None:
        return
    longest, side = tokenizer.model_max_length, tokenizer.padding_side
    tokenizer.model_max_length = model.config.max_length
    tokenizer.padding_side = "right"  # plain encoders would count positions from left padding
    forget_last_call(tokenizer)
    try:
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.model_max_length, tokenizer.padding_side = longest, side
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    if settings.get("tokenizer_class") == "TokenizersBackend":  # transformers 4 knows PreTrainedTokenizerFast
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    of_calls = ("max_length", "stride", "truncation_strategy")  # in the folder that the tokenizer was loaded from
    write_json(path, {key: value for key, value in settings.items() if key not in of_calls})
    added = {str(token): token for token in tokenizer.added_tokens_decoder.values()}
    fields = ("content", "lstrip", "normalized", "rstrip", "single_word")
    special = {  # fastembed reads this file, which transformers 5 does not write
        name: {field: getattr(added[token], field) for field in fields} if token in added else token
        for name, token in tokenizer.special_tokens_map.items()
    }
    write_json(folder / "special_tokens_map.json", special)


def _write_config(config: Any, folder: Path, dtype: torch.dtype, width: int, settings: Mapping[str, Any]) -> None:
    """Add our settings, and the keys that other libraries read, to the config.json of the encoder."""
    path = folder / "config.json"
    plain = json.loads(path.read_text(encoding="utf-8"))
    plain.pop("_name_or_path", None)
    plain |= {"dtype": str(dtype).removeprefix("torch."), **_matryoshka(config, width)}
    settings = {name: value for name, value in settings.items() if value is not None}
    write_json(path, plain | _keys_of_transformers_4(plain) | {SETTINGS: settings})


def _keys_of_transformers_4(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names by which transformers 4 reads the rotary embeddings and global layers of ModernBERT."""
    if config["model_type"] != "modernbert":
        return {}
    (every, regular), rope = full_attention_period(config["layer_types"]), config["rope_parameters"]
    if not regular or any(settings["rope_type"] != "default" for settings in rope.values()):
        logger.warning("transformers 4 cannot compute this ModernBERT: open the model with transformers 5")
    return {
        "global_rope_theta": rope["full_attention"]["rope_theta"],
        "local_rope_theta": rope["sliding_attention"]["rope_theta"],
        "global_attn_every_n_layers": every,
    }


def full_attention_period(kinds: Sequence[str]) -> tuple[int, bool]:
    """Return N if the first layer of a ModernBERT and each Nth after it are global, and whether only they are."""
    every = [*kinds, "full_attention"].index("full_attention", 1)
    regular = [("sliding" if number % every else "full") + "_attention" for number in range(len(kinds))]
    return every, [*kinds] == regular


def _pooler(config: Any) -> dict[str, Tensor]:
    """Return weights for the pooler of BERT's classes; without them, AutoModel warns of missing weights.

    The pooler is the identity with tanh. No embedding of this package uses it.
    """
    if "add_pooling_layer" not in family(config).arguments:
        return {}
    width = config.hidden_size
    return {"pooler.dense.weight": torch.eye(width), "pooler.dense.bias": torch.zeros(width)}


def _matryoshka(config: Any, width: int) -> dict[str, Any]:
    """Return the config keys from which vLLM reads the widths that its parameter ``dimensions`` accepts."""
    objective = getattr(config, "objectives", {}).get("matryoshka")
    full = config.encoder_config.hidden_size
    earlier = getattr(config.encoder_config, "matryoshka_dimensions", None)  # of an export
    dims = {full, width, *(objective.dims or [] if objective else earlier or [])}
    return {"is_matryoshka": True, "matryoshka_dimensions": sorted(dims)} if len(dims) > 1 else {}
