"""An export that is fit to be published, and a Hub to publish it on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from card_facts import FACTS
from local_hub import TOKEN, LocalHub, command_at, environment_of
from transformers import AutoTokenizer, PhobertTokenizer, RobertaConfig, RobertaModel

from hf_xsent import DapForSentenceEmbedding, export_sentence_transformer
from hf_xsent.publishing.model_card import compose_card, write_card

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def exported_phobert(tmp_path: Path) -> Path:
    """An export with PhoBERT's tokenizer, which runs in Python."""
    (tmp_path / "vocab.txt").write_text("".join(f"{piece} 1\n{piece}@@ 1\n" for piece in "thedog"), "utf-8")
    (tmp_path / "bpe.codes").write_text("t h 1\n", "utf-8")
    tokenizer = PhobertTokenizer(str(tmp_path / "vocab.txt"), str(tmp_path / "bpe.codes"))
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 32}
    RobertaModel(RobertaConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(tmp_path / "phobert")
    model = DapForSentenceEmbedding.from_backbone(str(tmp_path / "phobert"), pooling="mean", max_length=16)
    return export_sentence_transformer(model.eval(), tmp_path / "exported", tokenizer, verify=False)


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
