"""An export that is fit to be published, and a Hub to publish it on."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from card_facts import STORED
from forks import Fork
from local_hub import TOKEN, LocalHub
from transformers import AutoTokenizer

from hf_xsent import DapForSentenceEmbedding, export_sentence_transformer
from hf_xsent.publishing.model_card import compose_card, write_card

SOURCE = Path(__file__).parents[2] / "src"
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def exported(encoder_folders: dict[str, Path], tmp_path: Path) -> Path:
    model = DapForSentenceEmbedding.from_backbone(str(encoder_folders["xlm-roberta"]), pooling="mean", max_length=16)
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["xlm-roberta"])
    folder = export_sentence_transformer(model.eval(), tmp_path / "exported", tokenizer, verify=False)
    write_card(folder, STORED, compose_card(folder, STORED, "org/dap-tiny"))
    return folder


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with LocalHub() as running:
        yield running


@pytest.fixture
def at_the_hub(hub: LocalHub, tmp_path: Path) -> Command:
    """Python code in a new process, or (with a tuple) an hf-xsent command in a fork, whose Hub is the local one."""

    def start(code: str | tuple[str, ...], token: str | None = TOKEN) -> subprocess.CompletedProcess[str]:
        prefixes = ("HF_", "HUGGING")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)} | {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / f"home of {token}"),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_XET": "1",  # the LFS way, which the local Hub speaks
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(SOURCE),
        }
        environment |= {} if token is None else {"HF_TOKEN": token}
        if isinstance(code, str):
            return subprocess.run(
                [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=300
            )
        files = [tmp_path / f"{name} of a command" for name in ("output", "errors")]
        for file in files:
            file.write_text("", "utf-8")
        fork = Fork(_command, code, str(files[1]), log=files[0], environment=environment, inherit=False)
        return subprocess.CompletedProcess(code, fork.wait(300), *(file.read_text("utf-8") for file in files))

    return start


def _command(arguments: Sequence[str], errors: str) -> int:
    """Run the console script; the constants of huggingface_hub, which are imported, are those of this environment."""
    import huggingface_hub.constants

    from hf_xsent_cli import main

    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
    importlib.reload(huggingface_hub.constants)
    return main([*arguments])
