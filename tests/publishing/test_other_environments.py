"""Exports of every method, opened by environments that have nothing of ours; `make test-openers` makes them.

The variable HF_XSENT_OPENERS names a folder with the virtual environments ``transformers``, ``sentence-transformers``
and ``sentence-transformers-oldest``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from hf_xsent import SentenceEmbedder, export_sentence_transformer
from hf_xsent.models import METHODS

CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "alignment": ("modernbert", {"pooling": "mean", "max_length": 16}),
    "dap": ("bert", {"pooling": "cls", "max_length": 16}),
    "ppa": ("bert", {"pooling": "cls", "max_length": 16}),
    "wacse": ("xlm-roberta", {"pooling": "mean", "max_length": 32, "normalize": True}),
    "dual-pivot": ("xlm-roberta", {"max_length": 32}),
}
WITH_SENTENCE_TRANSFORMERS = """
import sys
import numpy as np
from sentence_transformers import SentenceTransformer
folder, output, text = sys.argv[1:]
assert not any(name.startswith("hf_xsent") for name in sys.modules)
model = SentenceTransformer(folder, device="cpu")
np.save(output, model.encode(open(text, encoding="utf-8").read().splitlines()))
"""
WITH_TRANSFORMERS = """
import sys
import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer
folder, output, text = sys.argv[1:]
tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
assert "hf_xsent" not in sys.modules and "sentence_transformers" not in sys.modules
batch = tokenizer(open(text, encoding="utf-8").read().splitlines(), padding=True, truncation=True, return_tensors="pt")
with torch.no_grad():
    np.save(output, (model(**batch).last_hidden_state * batch["attention_mask"][..., None]).numpy())
"""


def _python(name: str) -> str:
    folder = os.environ.get("HF_XSENT_OPENERS")
    if folder is None:
        pytest.skip("HF_XSENT_OPENERS is unset: make test-openers sets it")
    return str(Path(folder) / name / "bin/python")


@pytest.fixture(params=sorted(METHODS))
def export(request: pytest.FixtureRequest, encoder_folders: dict[str, Path], tmp_path: Path) -> tuple[Path, Any]:
    """A folder and our own embedder of the same model."""
    family, settings = CHOICES[request.param]
    torch.manual_seed(0)
    model = METHODS[request.param][2].from_backbone(str(encoder_folders[family]), **settings).eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders[family])
    return export_sentence_transformer(model, tmp_path / "exported", tokenizer), SentenceEmbedder(model, tokenizer)


def _run(python: str, code: str, folder: Path, sentences: list[str]) -> np.ndarray:
    text, output = folder.parent / "text", folder.parent / "found.npy"
    text.write_text("\n".join(sentences), encoding="utf-8")
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [python, "-c", code, str(folder), str(output), str(text)], env=plain, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return np.load(output)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ["sentence-transformers", "sentence-transformers-oldest"])
def test_sentence_transformers_alone_gives_our_vectors(
    environment: str, export: tuple[Path, SentenceEmbedder], sentences: list[str]
) -> None:
    folder, ours = export
    theirs = _run(_python(environment), WITH_SENTENCE_TRANSFORMERS, folder, sentences)
    assert abs(ours.encode(sentences) - theirs).max() < 1e-5 * max(1, np.linalg.norm(theirs, axis=1).mean())


@pytest.mark.slow
def test_transformers_alone_gives_our_token_states(export: tuple[Path, SentenceEmbedder], sentences: list[str]) -> None:
    folder, _ = export
    theirs = _run(_python("transformers"), WITH_TRANSFORMERS, folder, sentences)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(sentences, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        ours = model(**batch).last_hidden_state * batch["attention_mask"][..., None]
    assert abs(ours.numpy() - theirs).max() < 1e-5
