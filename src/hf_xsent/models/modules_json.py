"""Write the files by which SentenceTransformer opens a saved model with the model's own pooling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hf_xsent.files import write_json
from hf_xsent.models.encode_interface import DOCUMENT

TRANSFORMER = "sentence_transformers.models.Transformer"  # versions 2 to 6 read this name


def write_modules_json(folder: str | Path, config: Any) -> None:
    """Write modules.json with one module, which returns the ``sentence_embedding`` of the model's forward."""
    folder = Path(folder)
    text = {"method": "forward", "method_output_name": "sentence_embedding"}
    module: dict[str, Any] = {"max_seq_length": config.max_length, "module_output_name": "sentence_embedding"}
    write_json(folder / "sentence_bert_config.json", module | {"modality_config": {"text": text}})
    write_general_settings(folder, config, config.dim)
    write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}])


def write_general_settings(folder: Path, config: Any, dim: int | None) -> None:
    """Write prompts, similarity and the width of truncated embeddings, as SentenceTransformer reads them.

    ``SentenceTransformer.save`` writes this file, with ``__version__``, before it calls our ``save_pretrained``. Such a
    file has the settings that were changed in the SentenceTransformer, and is not replaced.

    SentenceTransformer adds an empty prompt ``document`` to models that have none, so that ``encode_document`` would
    not find ``passage`` or ``corpus``: their text is written as ``document``, too.
    """
    prompts = dict(config.prompts or {})
    if (name := next((one for one in DOCUMENT if one in prompts), None)) is not None:
        prompts["document"] = prompts[name]
    cut = {} if dim is None else {"truncate_dim": dim}
    names = {"prompts": prompts, "default_prompt_name": config.default_prompt_name}
    path = folder / "config_sentence_transformers.json"
    if not (path.is_file() and "__version__" in path.read_text(encoding="utf-8")):
        write_json(path, {**names, "similarity_fn_name": "cosine", **cut})
