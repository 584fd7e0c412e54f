"""An export that is fit to be published, and a Hub to publish it on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from card_facts import FACTS
from local_hub import TOKEN, LocalHub, command_at, environment_of
from transformers import AutoTokenizer

from hf_xsent import DapForSentenceEmbedding, export_sentence_transformer
from hf_xsent.publishing.model_card import compose_card, write_card

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def exported(encoder_folders: dict[str, Path], tmp_path: Path) -> Path:
    model = DapForSentenceEmbedding.from_backbone(str(encoder_folders["xlm-roberta"]), pooling="mean", max_length=16)
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["xlm-roberta"])
    folder = export_sentence_transformer(model.eval(), tmp_path / "exported", tokenizer, verify=False)
    write_card(folder, FACTS, compose_card(folder, FACTS, "org/dap-tiny"))
    return folder


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with LocalHub() as running:
        yield running


@pytest.fixture
def at_the_hub(hub: LocalHub, tmp_path: Path) -> Command:
    """Python code in a new process, or (with a tuple) an hf-xsent command in a fork, whose Hub is the local one."""

    def start(code: str | tuple[str, ...], token: str | None = TOKEN) -> subprocess.CompletedProcess[str]:
        if isinstance(code, tuple):
            return command_at(hub, code, tmp_path, token)
        program, environment = [sys.executable, "-c", code], environment_of(hub, tmp_path, token)
        return subprocess.run(program, env=environment, capture_output=True, text=True, check=False, timeout=300)

    return start
