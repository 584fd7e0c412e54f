"""What a model card must say before it is published. Free of torch."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCard

from hf_xsent.errors import OutputError

REQUIRED = {
    "license": "--license apache-2.0",
    "language": "--languages de sw en",
    "base_model": "--base_model FacebookAI/xlm-roberta-base",
    "pipeline_tag": "",
    "library_name": "",
}


def check_card(path: Path) -> None:
    """Refuse a card that is missing, unreadable or says too little, with the flag that fills the gap."""
    if not path.is_file():
        raise OutputError(f"{path} is missing: write the model card with hf-xsent card {path.parent}")
    try:
        said = ModelCard(path.read_text(encoding="utf-8")).data.to_dict()
    except Exception as error:  # whatever YAML or the Hub's own classes raise
        raise OutputError(f"{path} has metadata that cannot be read: {' '.join(str(error).split())}") from error
    for field, flag in REQUIRED.items():
        if not said.get(field):
            raise OutputError(
                f"{path} states no {field}: write it anew with hf-xsent card {path.parent} {flag}".strip()
            )
