"""List the runtimes that open an export, with the code that does so and the files that they read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from hf_xsent.pages.tables import Table

ONNX, ONNX_INT8, OPENVINO = "onnx/model.onnx", "onnx/model_quantized.onnx", "openvino/openvino_model.xml"
GGUF = {"float16": "gguf/model-f16.gguf", "q8_0": "gguf/model-q8_0.gguf"}
_WEIGHTS = {"model.safetensors": ""}  # in the precision of the export
_ONNX = {ONNX: "float32", ONNX_INT8: "int8"}
_GGUF = {file: precision for precision, file in GGUF.items()}


@dataclass(frozen=True)
class Runtime:
    """A runtime: its code in ``snippets/``, the files that it opens, with their precision, and the package it needs.

    ``token_ids`` is code in the names of the snippet, which returns the token ids of ``sentences``. A runtime without
    it is not checked. A runtime with ``fast_tokenizer`` reads tokenizer.json. ``poolings`` are those of a runtime that
    pools and normalizes hidden states itself, so that a linear layer between the two is lost; others take what the
    export computes.
    """

    title: str
    snippet: str
    files: Mapping[str, str]
    package: str = ""
    token_ids: str = ""
    fast_tokenizer: bool = False
    poolings: tuple[str, ...] = ()

    @property
    def language(self) -> str:
        """The language of the snippet."""
        return {"py": "python", "mjs": "js", "sh": "bash"}[self.snippet.rpartition(".")[2]]

    def code(self, facts: Mapping[str, Any], file: str, folder: str, repository: str) -> str:
        """Render the snippet for a file of the export in ``folder``; ``facts`` are those of ``encoding_facts``."""
        snippets = Environment(loader=PackageLoader("hf_xsent.publishing", "snippets"), undefined=StrictUndefined)
        text = json.dumps(facts["prompt"], ensure_ascii=False)
        prompts = {
            "prompt_plus": f"{text} + " if facts["prompt"] else "",
            "prompt_in_shell": text[1:-1].replace("'", r"'\''"),
        }
        names = {"name": Path(folder).name, "parent": str(Path(folder).parent), "repository": repository}
        values = {**facts, **names, **prompts, "file": file, "folder": folder}
        return snippets.get_template(f"{self.snippet}.jinja").render(values)


_ENCODE = "tokenizer.encode(prompt + sentence)"
_IDS = f"[{_ENCODE}.ids for sentence in sentences]"
_PREPROCESS = 'preprocess([sentence], prompt=prompt)["input_ids"][0].tolist() for sentence in sentences]'
RUNTIMES = (  # the first is the reference of the others
    Runtime(
        "sentence-transformers",
        "sentence_transformers.py",
        _WEIGHTS,
        "sentence-transformers",
        f"[model.{_PREPROCESS}",
    ),
    Runtime(
        "transformers",
        "transformers.py",
        _WEIGHTS,
        "transformers",
        '[tokenizer(prompt + sentence, truncation=True)["input_ids"] for sentence in sentences]',
        poolings=("cls", "mean", "max"),
    ),
    Runtime("ONNX Runtime", "onnxruntime.py", _ONNX, "onnxruntime", _IDS, fast_tokenizer=True),
    Runtime("OpenVINO", "openvino.py", {OPENVINO: "float32"}, "openvino", _IDS, fast_tokenizer=True),
    Runtime(
        "fastembed",
        "fastembed.py",
        _ONNX,
        "fastembed",
        "[model.model.tokenize([prompt + sentence])[0].ids for sentence in sentences]",
        fast_tokenizer=True,
        poolings=("cls", "mean"),
    ),
    Runtime(
        "LangChain",
        "langchain.py",
        _WEIGHTS,
        "langchain-huggingface",
        f"[model._client.{_PREPROCESS}".replace("[sentence]", r'[sentence.replace("\n", " ")]'),
    ),
    Runtime(
        "transformers.js",
        "transformers_js.mjs",
        _ONNX,
        "@huggingface/transformers",
        f"sentences.map((sentence) => shorten({_ENCODE}))",
        fast_tokenizer=True,
    ),
    Runtime(
        "llama.cpp (node-llama-cpp)",
        "node_llama_cpp.mjs",
        _GGUF,
        "node-llama-cpp",
        "sentences.map((sentence) => tokenize(prompt + sentence))",
        poolings=("cls", "mean"),
    ),
    Runtime("llama.cpp (llama-server), Ollama", "llama_server.sh", _GGUF, poolings=("cls", "mean")),
    Runtime(
        "text-embeddings-inference",
        "text_embeddings_inference.sh",
        _WEIGHTS,
        fast_tokenizer=True,
        poolings=("cls", "mean"),
    ),
    Runtime("vLLM", "vllm.py", _WEIGHTS, poolings=("cls", "mean")),
    Runtime("Infinity", "infinity.py", _WEIGHTS),
)
SERVED_FILES = (ONNX, ONNX_INT8, OPENVINO, *_GGUF)  # beside the weights


def runtimes_of(facts: Mapping[str, Any]) -> list[Runtime]:
    """Return the runtimes that compute the embeddings of an export, from the facts of ``encoding_facts``."""
    pooling = None if facts["linear_map"] else facts["pooling"]
    return [
        runtime
        for runtime in RUNTIMES
        if (not runtime.poolings or pooling in runtime.poolings)
        and (facts["fast_tokenizer"] or not runtime.fast_tokenizer)
    ]


def runtimes_table(opened: Sequence[Mapping[str, Any]]) -> Table:
    """Tabulate the runtimes in which an export was opened, from ``runtimes.json``."""
    header = ["runtime", "file", "equal token ids", "smallest cosine: equal ids", "all texts", "text alone", "size"]
    rows: list[list[object]] = []
    for each in opened:
        name, size = f"{each['runtime']} {each['version']}".strip(), f"{each['bytes'] / 1e3:,.0f} kB"
        if each["smallest_cosine_of_all"] is None:
            rows.append([name, each["file"], each["problem"], "", "", "", size])
            continue
        equal = each["texts"] - len(each["different_token_ids"])
        cosines = [each[f"smallest_cosine{of}"] for of in ("", "_of_all", "_alone")]
        shown = ["" if cosine is None else f"{cosine:.6f}" for cosine in cosines]
        rows.append([name, each["file"], f"{equal} of {each['texts']}", *shown, size])
    return Table(header, rows)


def resource(name: str) -> str:
    """Read a file of this room that is not code."""
    return (files("hf_xsent.publishing") / name).read_text(encoding="utf-8")
