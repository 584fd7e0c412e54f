"""Write the files by which SentenceTransformer opens a saved model with the model's own pooling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hf_xsent.files import write_json

TRANSFORMER = "sentence_transformers.models.Transformer"  # versions 2 to 6 read this name


def write_modules_json(folder: str | Path, max_length: int) -> None:
    """Write modules.json with one module, which returns the ``sentence_embedding`` of the model's forward."""
    folder = Path(folder)
    text = {"method": "forward", "method_output_name": "sentence_embedding"}
    module: dict[str, Any] = {"max_seq_length": max_length, "module_output_name": "sentence_embedding"}
    write_json(folder / "sentence_bert_config.json", module | {"modality_config": {"text": text}})
    general: dict[str, Any] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    write_json(folder / "config_sentence_transformers.json", general)
    write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}])
