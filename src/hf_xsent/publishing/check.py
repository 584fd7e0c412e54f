"""Open an export in other runtimes and compare token ids and embeddings with those of SentenceTransformer.

Each runtime is a fresh process that runs the code of the model card (``snippets/``), which imports nothing of this
package.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hf_xsent.errors import ModelError, shortened
from hf_xsent.files import write_json
from hf_xsent.models.saved_form import RUNTIMES_FILE
from hf_xsent.publishing.export_folder import check_export, encoding_facts
from hf_xsent.publishing.runtimes import Runtime, resource, runtimes_of, runtimes_table
from hf_xsent.settings.convert import converting

logger = logging.getLogger(__name__)

# at equal token ids
SMALLEST_COSINE = {"float64": 0.9999, "float32": 0.9999, "float16": 0.999, "bfloat16": 0.99, "q8_0": 0.99, "int8": 0.95}
_LARGEST_LENGTH_DIFFERENCE = 0.02
_BATCH = 32
_ALONE = 5  # each fifth text is also encoded alone
_LONG_TEXTS = 3


@dataclass(frozen=True)
class Opened:
    """How a runtime opens a file. Cosines are with SentenceTransformer, over the texts with equal token ids or all."""

    runtime: str
    version: str
    file: str
    precision: str
    bytes: int
    texts: int
    different_token_ids: list[int] = field(default_factory=list)  # numbers of the texts
    smallest_cosine: float | None = None
    smallest_cosine_of_all: float | None = None
    smallest_cosine_alone: float | None = None  # each fifth text alone against the same text in a batch of 32
    sentences_per_second: float | None = None
    problem: str = ""


@converting
def check_runtimes(folder: str | Path, node: str | None = None) -> list[Opened]:
    """Open an export in each installed runtime, and write ``runtimes.json`` into it.

    Raise an error if a file does not open, or if embeddings differ although token ids are equal. A runtime whose
    tokenizer differs is no error: the results state how many texts have other token ids. ``node`` is the folder in
    which npm installed the JavaScript packages.

    ```python
    from hf_xsent import check_runtimes

    check_runtimes("exported-mine")
    ```
    """
    check_export(folder)
    folder, node_folder = Path(folder).resolve(), Path(node or ".").resolve()
    facts = encoding_facts(folder)
    sentences = check_sentences(facts["max_length"])
    expected, results = None, []
    for runtime in (each for each in runtimes_of(facts) if each.token_ids):
        installed = _installed_version(runtime, node_folder)
        for file, precision in runtime.files.items():
            size = sum(path.stat().st_size for path in (folder / file).parent.glob(f"{Path(file).stem}.*"))
            if not size:
                continue
            opened = Opened(runtime.title, installed, file, precision or facts["dtype"], size, len(sentences))
            if not installed:
                results.append(replace(opened, problem="not checked: it is not installed"))
                continue
            logger.info("opening %s in %s %s", file, runtime.title, installed)
            try:
                code = runtime.code(facts, file, str(folder), folder.name)
                answer = _run(runtime, code, node_folder, sentences, facts["prompt"])
            except ModelError as error:
                results.append(replace(opened, problem=str(error)))
                continue
            expected = expected or answer
            results.append(compare(opened, expected, answer))
    write_json(folder / RUNTIMES_FILE, [asdict(result) for result in results])
    logger.info("\n%s", runtimes_table([asdict(result) for result in results]))
    if wrong := [each for each in results if each.version and each.problem]:
        raise ModelError("; ".join(f"{each.file} in {each.runtime} {each.version}: {each.problem}" for each in wrong))
    return results


def check_sentences(max_length: int) -> list[str]:
    """Return 200 texts in 27 scripts; the last three are longer than ``max_length`` tokens."""
    texts = [json.loads(line) for line in resource("check_texts.txt").splitlines()]
    words = " ".join(texts[:80])
    while len(words) < 10 * max_length:
        words += f" {words}"
    return [*texts, *(words[100 * number :][: 10 * max_length] for number in range(_LONG_TEXTS))]


def compare(opened: Opened, expected: Mapping[str, Any], answer: Mapping[str, Any]) -> Opened:
    """Compare the token ids and embeddings of a runtime with the expected ones."""
    ours, theirs, alone = (
        np.array(rows, dtype=float) for rows in (expected["embeddings"], answer["embeddings"], answer["alone"])
    )
    if ours.shape != theirs.shape:
        return replace(opened, problem=f"it returns {theirs.shape} values, not {ours.shape}")
    if not np.isfinite(theirs).all() or not np.isfinite(alone).all():
        return replace(opened, problem="it returns NaN or infinite values")
    equal = np.array([a == b for a, b in zip(expected["token_ids"], answer["token_ids"], strict=True)])
    cosines = _cosines(ours, theirs)
    lengths = np.linalg.norm(theirs, axis=1) / np.linalg.norm(ours, axis=1)
    problem = ""
    if not equal.any():
        problem = "no text has the token ids of SentenceTransformer"
    elif not cosines[equal].min() >= SMALLEST_COSINE[opened.precision]:  # NaN if it returns zeros
        problem = f"embeddings differ at equal token ids: the smallest cosine is {cosines[equal].min():.6f}"
    elif not abs(np.median(lengths[equal]) - 1) <= _LARGEST_LENGTH_DIFFERENCE:
        problem = "embeddings have other lengths: one of the two does not normalize them"
    return replace(
        opened,
        different_token_ids=np.flatnonzero(~equal).tolist(),
        smallest_cosine=float(cosines[equal].min()) if equal.any() else None,
        smallest_cosine_of_all=float(cosines.min()),
        smallest_cosine_alone=float(_cosines(theirs[::_ALONE], alone).min()),
        sentences_per_second=round((len(ours) - 1) // _BATCH * _BATCH / answer["seconds"], 1),
        problem=problem,
    )


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1))


def _installed_version(runtime: Runtime, node_folder: Path) -> str:
    """Return the version of a runtime's package; empty if it is not installed."""
    if runtime.snippet.endswith(".py"):
        try:
            return metadata.version(runtime.package)
        except metadata.PackageNotFoundError:
            return ""
    manifest = node_folder / "node_modules" / runtime.package / "package.json"
    if shutil.which("node") is None or not manifest.is_file():
        return ""
    return str(json.loads(manifest.read_text(encoding="utf-8"))["version"])


def _run(runtime: Runtime, snippet: str, node_folder: Path, sentences: list[str], prompt: str) -> dict[str, Any]:
    """Run the snippet of a runtime in a fresh process on the sentences."""
    kind = runtime.snippet.rpartition(".")[2]
    code = resource(f"snippets/check.{kind}.jinja").replace("TOKEN_IDS", runtime.token_ids)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with TemporaryDirectory() as work:
        Path(work, "request.json").write_text(json.dumps([sentences, prompt, _BATCH, _ALONE]), encoding="utf-8")
        Path(work, f"check.{kind}").write_text(f"{snippet}\n\n{code}", encoding="utf-8")
        if kind == "mjs":
            Path(work, "node_modules").symlink_to(node_folder / "node_modules", target_is_directory=True)
        program = [sys.executable] if kind == "py" else ["node"]
        done = subprocess.run(
            [*program, f"check.{kind}"],
            cwd=work,
            env=environment | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "true"},
            capture_output=True,
            text=True,
            check=False,
        )
        answer = Path(work, "answer.json")
        if not answer.is_file():
            raise ModelError(f"it does not open: {shortened(_last_error(done.stderr))}")
        content: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return content


def _last_error(stderr: str) -> str:
    """Return the line of an error message in the output of Python or Node."""
    lines = [line.strip() for line in stderr.splitlines() if "Error" in line] or stderr.split("\n")[-2:]
    return lines[-1]
