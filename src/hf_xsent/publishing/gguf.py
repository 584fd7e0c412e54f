"""Write an export as a GGUF file, which llama.cpp, Ollama and LM Studio open: BERT, XLM-R and ModernBERT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hf_xsent.errors import ModelError, import_extra
from hf_xsent.files import writing
from hf_xsent.models.families import RobertaBackbone, family
from hf_xsent.models.loading import load_encoder, load_tokenizer
from hf_xsent.models.saved_form import full_attention_period
from hf_xsent.models.sentence_transformer_files import read_modules
from hf_xsent.publishing.export_folder import check_export
from hf_xsent.publishing.gguf_tokenizer import add_tokenizer
from hf_xsent.publishing.runtimes import GGUF
from hf_xsent.settings.convert import converting

_POOLINGS = {"mean": 1, "cls": 2}
_BERT = {  # our tensor: llama.cpp's; {} is the number of the layer
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "encoder.layer.{}.attention.self.query": "blk.{}.attn_q",
    "encoder.layer.{}.attention.self.key": "blk.{}.attn_k",
    "encoder.layer.{}.attention.self.value": "blk.{}.attn_v",
    "encoder.layer.{}.attention.output.dense": "blk.{}.attn_output",
    "encoder.layer.{}.attention.output.LayerNorm": "blk.{}.attn_output_norm",
    "encoder.layer.{}.intermediate.dense": "blk.{}.ffn_up",
    "encoder.layer.{}.output.dense": "blk.{}.ffn_down",
    "encoder.layer.{}.output.LayerNorm": "blk.{}.layer_output_norm",
}
_MODERNBERT = {
    "embeddings.tok_embeddings": "token_embd",
    "embeddings.norm": "token_embd_norm",
    "layers.{}.attn_norm": "blk.{}.attn_norm",
    "layers.{}.attn.Wqkv": "blk.{}.attn_qkv",
    "layers.{}.attn.Wo": "blk.{}.attn_output",
    "layers.{}.mlp_norm": "blk.{}.ffn_norm",
    "layers.{}.mlp.Wi": "blk.{}.ffn_up",
    "layers.{}.mlp.Wo": "blk.{}.ffn_down",
    "final_norm": "output_norm",
}
_NAMES = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta"), ("bert", _BERT)),
    "modernbert": ("modern-bert", _MODERNBERT),
}
_BLOCK = 32  # weights of q8_0 that share a scale
_FLOAT32 = ("position_embd", "token_types")  # llama.cpp adds them to float32 states


@converting
def export_gguf(folder: str | Path, precision: str = "float16") -> Path:
    """Write ``gguf/model-f16.gguf``, or ``gguf/model-q8_0.gguf`` with 8 bits per weight, into an export.

    ```python
    from hf_xsent import export_gguf

    export_gguf("exported-mine", "q8_0")
    ```
    """
    gguf = import_extra("gguf", "gguf", "gguf")
    folder = Path(folder)
    check_export(folder)
    settings, encoder = read_modules(str(folder)), load_encoder(str(folder))
    config: Any = encoder.config
    if config.model_type not in _NAMES or settings["pooling"] not in _POOLINGS or {"mix", "map"} & {*settings}:
        raise ModelError(
            f"llama.cpp cannot compute {config.model_type} with {settings['pooling']} pooling: a GGUF file needs BERT, "
            "XLM-R or ModernBERT, their last layer, and cls or mean pooling without a linear layer"
        )
    activation = getattr(config, "hidden_act", None) or config.hidden_activation  # the latter of ModernBERT
    if not activation.startswith("gelu"):
        raise ModelError(
            f"llama.cpp cannot compute {config.model_type} with {activation}, but only with GELU: see --onnx"
        )
    if precision == "q8_0" and (config.hidden_size % _BLOCK or config.hidden_size == _BLOCK):
        raise ModelError(
            f"llama.cpp cannot compute q8_0 with {config.hidden_size} dimensions (it needs a multiple of {_BLOCK}, and "
            f"returns NaN with {_BLOCK}): write float16"
        )
    architecture, names = _NAMES[config.model_type]
    path = folder / GGUF[precision]
    with writing(path) as part:
        writer = gguf.GGUFWriter(part, architecture)
        _add_settings(writer, config, settings)
        add_tokenizer(writer, load_tokenizer(str(folder)), config.vocab_size)
        kinds = gguf.GGMLQuantizationType
        for name, tensor in _tensors(encoder, names, settings["max_length"]):
            if tensor.ndim == 1 or name.startswith(_FLOAT32):
                writer.add_tensor(name, tensor)
            elif precision == "q8_0" and tensor.shape[-1] % _BLOCK == 0:
                writer.add_tensor(name, gguf.quantize(tensor, kinds.Q8_0), raw_dtype=kinds.Q8_0)
            else:
                writer.add_tensor(name, tensor.astype(np.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return path


def _add_settings(writer: Any, config: Any, settings: Mapping[str, Any]) -> None:
    writer.add_name(f"{config.model_type} sentence encoder")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_causal_attention(False)
    writer.add_context_length(settings["max_length"])
    writer.add_uint32(f"{writer.arch}.pooling_type", _POOLINGS[settings["pooling"]])
    writer.add_vocab_size(config.vocab_size)
    writer.add_token_type_count(getattr(config, "type_vocab_size", 1))
    if config.model_type != "modernbert":
        writer.add_layer_norm_eps(config.layer_norm_eps)
        return
    if config.attention_bias or config.mlp_bias or config.norm_bias:
        raise ModelError("llama.cpp cannot compute a ModernBERT with biases: see --onnx")
    full, local = (config.rope_parameters[kind]["rope_theta"] for kind in ("full_attention", "sliding_attention"))
    period, regular = full_attention_period(config.layer_types)
    if not regular:
        raise ModelError("llama.cpp needs global attention in each Nth layer, which this ModernBERT lacks: see --onnx")
    writer.add_layer_norm_eps(config.norm_eps)
    writer.add_rope_freq_base(full)
    writer.add_rope_freq_base_swa(local)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_sliding_window(config.local_attention)
    writer.add_sliding_window_pattern(period)


def _tensors(encoder: Any, names: Mapping[str, str], longest: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the encoder's tensors by llama.cpp's names; XLM-R's positions start after the id of its padding token."""
    for name, tensor in encoder.state_dict().items():
        module, _, kind = name.rpartition(".")
        layer = next((part for part in module.split(".") if part.isdigit()), "")
        known = names.get(module.replace(f".{layer}.", ".{}.", 1) if layer else module)
        if known is None:
            continue
        values = tensor.float().numpy()
        if known == "position_embd":  # the runtime reads the maximum length from its size
            first = encoder.config.pad_token_id + 1 if issubclass(family(encoder.config), RobertaBackbone) else 0
            values = values[first : first + longest]
        yield f"{known.format(layer)}.{kind}", np.ascontiguousarray(values)
