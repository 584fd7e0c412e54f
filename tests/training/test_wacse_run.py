"""WACSE from pairs and links on disk to a model that the Auto classes open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel

from hf_xsent import SentenceEmbedder, WacseForSentenceEmbedding
from hf_xsent.cli import main as command
from hf_xsent.errors import RecipeError
from hf_xsent.training.pretrain import pretrain

Pairs = list[tuple[str, str]]


@pytest.fixture
def flags(tmp_path: Path, encoder_folders: dict[str, Path], pairs: Pairs) -> dict[str, Any]:
    """German with links, French without."""
    for language, some in (("de", pairs[:10]), ("fr", pairs[10:])):
        text = "".join(f"{source}\t{target}\n" for source, target in some)
        (tmp_path / f"{language}.tsv").write_text(text, encoding="utf-8")
    links = ["0-0 1-1"] * 9 + [""]
    records = [
        {"source": pair[0], "target": pair[1], "links": of_pair} for pair, of_pair in zip(pairs, links, strict=False)
    ]
    (tmp_path / "de.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return {
        "model": encoder_folders["bert-mlm"],
        "method": "wacse",
        "output_dir": tmp_path / "out",
        "cache_dir": tmp_path / "cache",
        "clean": False,
        "dev_pairs": 0,
        "max_length": 24,
        "learning_rate": 1e-3,
        "per_device_train_batch_size": 4,
        "max_steps": 3,
        "logging_steps": 1,
        "save_strategy": "no",
        "eval_strategy": "no",
        "use_cpu": True,
        "report_to": "none",
    }


def _start(flags: dict[str, Any], *more: str, german: str = "de.jsonl") -> Any:
    folder = Path(flags["cache_dir"]).parent
    data = ["--data", f"de={folder}/{german}", f"fr={folder}/fr.tsv"]
    return pretrain.run([*(f"--{key}={value}" for key, value in flags.items()), *data, *more])


def test_a_run_trains_all_three_and_keeps_the_encoder(flags: dict[str, Any], tmp_path: Path) -> None:
    trainer = _start(flags)
    logs = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    for name in ("translation_ranking", "aligned_word_prediction", "word_translation_ranking"):
        assert sum(line.get(f"loss_{name}", 0) for line in logs) > 0
    assert isinstance(AutoModel.from_pretrained(tmp_path / "out"), WacseForSentenceEmbedding)
    vectors = SentenceEmbedder.from_pretrained(str(tmp_path / "out"), device="cpu").encode(["Wo ist der Bahnhof?"])
    expected = SentenceEmbedder(trainer.model, trainer.tokenizer).encode(["Wo ist der Bahnhof?"])
    torch.testing.assert_close(torch.tensor(vectors), torch.tensor(expected))


def test_from_align_words_to_a_trained_model(flags: dict[str, Any], tmp_path: Path) -> None:
    pairs, jsonl = str(tmp_path / "de.tsv"), str(tmp_path / "de.jsonl")
    assert command(["align-words", pairs, "--model", str(flags["model"]), "-o", jsonl]) == 0
    trainer = pretrain.run([*(f"--{key}={value}" for key, value in flags.items()), "--data", f"de={jsonl}"])
    assert trainer.train_dataset.count_pairs_with("links") == 10


def test_without_any_link_nothing_is_trained(flags: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no pair has any: train on the JSONL of hf-xsent align-words"):
        _start(flags, german="de.tsv")
    assert not (tmp_path / "out").exists()
