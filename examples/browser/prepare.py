"""Write the model, the sentences and their embeddings for the page, from an export with onnx/model_quantized.onnx.

hf-xsent trim-vocab runs/mine --output trimmed --text de=news.de.txt en=news.en.txt fr=news.fr.txt ru=news.ru.txt
hf-xsent export trimmed --output exported --onnx int8
python examples/browser/prepare.py exported news.de.txt news.en.txt news.fr.txt news.ru.txt
"""

from __future__ import annotations

import argparse
import json
import shutil
from itertools import islice
from pathlib import Path

import numpy as np

from hf_xsent.publishing.onnx import OnnxEncoder

FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "onnx/model_quantized.onnx")
SENTENCES = 1000

parser = argparse.ArgumentParser(description="Prepare the page.")
parser.add_argument("export", type=Path, help="an export with onnx/model_quantized.onnx")
parser.add_argument("texts", type=Path, nargs="+", help="text files with one sentence per line")
parser.add_argument("--site", type=Path, default=Path(__file__).parent / "site", help="write into this folder")
arguments = parser.parse_args()

sentences: list[str] = []
for path in arguments.texts:
    with path.open(encoding="utf-8") as lines:
        sentences += [line.strip() for line in islice(lines, SENTENCES // len(arguments.texts))]
for name in FILES:
    target = arguments.site / "model" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(arguments.export / name, target)
encoder = OnnxEncoder(arguments.export, "onnx/model_quantized.onnx")
embeddings = encoder.encode(sentences)
embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
(arguments.site / "embeddings.bin").write_bytes(embeddings.tobytes())
content = {"sentences": sentences, "dimensions": embeddings.shape[1], "prompt": encoder.prompt}
(arguments.site / "sentences.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
