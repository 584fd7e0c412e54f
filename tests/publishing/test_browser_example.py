"""The page of examples/browser, built from a small export, searches in Chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from hf_xsent import DapForSentenceEmbedding, export_sentence_transformer
from hf_xsent.publishing import onnx

EXAMPLE = Path(__file__).parents[2] / "examples" / "browser"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.skipif(not (EXAMPLE / "node_modules").is_dir(), reason="npm install was not run in examples/browser"),
    pytest.mark.skipif(find_spec("onnxruntime") is None, reason="the extra onnx is not installed"),
]


def test_each_sentence_is_its_own_first_result(
    encoder_folders: dict[str, Path], pairs: list[tuple[str, str]], tmp_path: Path
) -> None:
    prompt = {"prompts": {"query": "the dog: "}, "default_prompt_name": "query"}
    model = DapForSentenceEmbedding.from_backbone(
        str(encoder_folders["xlm-roberta"]), pooling="mean", normalize=False, max_length=40, **prompt
    )
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["xlm-roberta"])
    folder = export_sentence_transformer(model.eval(), tmp_path / "exported", tokenizer, verify=False)
    onnx.export_onnx(folder)
    onnx.quantize_onnx(folder)
    texts = [tmp_path / "de.txt", tmp_path / "en.txt"]
    for side, text in enumerate(texts):
        text.write_text("".join(f"{sentence}\n" for sentence in sorted({pair[side] for pair in pairs})), "utf-8")
    page = tmp_path / "page"
    shutil.copytree(EXAMPLE, page, ignore=shutil.ignore_patterns("node_modules", "site"))
    (page / "node_modules").symlink_to(EXAMPLE / "node_modules", target_is_directory=True)
    subprocess.run([sys.executable, page / "prepare.py", folder, *texts], check=True)
    subprocess.run(["npm", "run", "build"], cwd=page, check=True)
    done = subprocess.run(
        [sys.executable, page / "measure.py", "--queries", "5"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"5 queries: median \d+ ms", done.stdout)
