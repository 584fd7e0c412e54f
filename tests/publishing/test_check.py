"""The check opens an export in fresh processes and names what differs; `make test-runtimes` runs it in all runtimes."""

from __future__ import annotations

import json
import shlex
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from card_facts import ENCODING

from hf_xsent import check_runtimes
from hf_xsent.errors import ModelError, OutputError
from hf_xsent.publishing import check, runtimes
from hf_xsent.publishing.check import Opened, check_sentences, compare
from hf_xsent.publishing.runtimes import RUNTIMES, Runtime, runtimes_table

OPENED = Opened("a runtime", "1.0", "onnx/model.onnx", "float32", 1, 200)


def _answer(**changed: Any) -> dict[str, Any]:
    rows = np.eye(200) + 0.5
    return {
        "embeddings": rows.tolist(),
        "alone": rows[:: check._ALONE].tolist(),
        "token_ids": [[0, number, 2] for number in range(200)],
        "seconds": 2.0,
    } | changed


def test_the_texts_are_of_many_kinds() -> None:
    texts = check_sentences(128)
    scripts = {unicodedata.name(character, "?").split()[0] for text in texts for character in text}
    assert len(texts) == len(set(texts)) == 200 and len(scripts) > 25
    assert {"", " ", "\n"} < set(texts) and all(len(text) >= 1280 for text in texts[-3:])
    assert all(len(text) > 80_000 for text in check_sentences(8192)[-3:])


def test_equal_answers_have_no_problem() -> None:
    result = compare(OPENED, _answer(), _answer())
    assert result.problem == "" and result.different_token_ids == [] and result.sentences_per_second == 96.0
    assert result.smallest_cosine == pytest.approx(1) and result.smallest_cosine_alone == pytest.approx(1)


WRONG = np.eye(200) + 0.5
WRONG[7] = WRONG[8]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"embeddings": WRONG.tolist()}, "embeddings differ at equal token ids: the smallest cosine is 0.98"),
        ({"embeddings": (2 * np.eye(200) + 1).tolist()}, "embeddings have other lengths"),
        ({"embeddings": np.ones((200, 3)).tolist()}, r"it returns \(200, 3\) values, not \(200, 200\)"),
        ({"embeddings": np.full((200, 200), None).tolist()}, "it returns NaN or infinite values"),
        ({"token_ids": [[1]] * 200}, "no text has the token ids"),
    ],
    ids=["embeddings", "lengths", "shape", "NaN", "token ids"],
)
def test_a_difference_is_named(changed: dict[str, Any], problem: str) -> None:
    import re

    assert re.search(problem, compare(OPENED, _answer(), _answer(**changed)).problem)


def test_texts_with_other_token_ids_are_counted_and_no_problem() -> None:
    ids = _answer()["token_ids"]
    ids[7] = [0, 2]
    result = compare(OPENED, _answer(), _answer(embeddings=WRONG.tolist(), token_ids=ids))
    assert result.problem == "" and result.different_token_ids == [7]
    assert result.smallest_cosine == pytest.approx(1) and result.smallest_cosine_of_all < 0.99
    assert "| a runtime 1.0 | onnx/model.onnx | 199 of 200 | 1.000000 |" in runtimes_table([vars(result)]).markdown()


def test_a_folder_that_is_no_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=f"{tmp_path} is not an export: write one with hf-xsent export"):
        check_runtimes(tmp_path)


def test_a_mix_of_layers_is_not_opened_where_only_the_last_layer_is_pooled() -> None:
    mix = {"pooling": "mean of layers", "linear_map": False, "fast_tokenizer": True}
    assert not any(runtime.poolings for runtime in runtimes.runtimes_of(mix))
    assert runtimes.runtimes_of(mix | {"pooling": "mean"}) == [*RUNTIMES]


def test_the_maximum_over_the_tokens_is_opened_where_it_is_computed() -> None:
    facts = {"pooling": "max", "linear_map": False, "fast_tokenizer": True}
    titles = [runtime.title for runtime in runtimes.runtimes_of(facts)]
    assert titles == [
        *(
            "sentence-transformers",
            "transformers",
            "ONNX Runtime",
            "OpenVINO",
            "LangChain",
            "transformers.js",
            "Infinity",
        )
    ]


@pytest.mark.parametrize("snippet", ["llama_server.sh", "text_embeddings_inference.sh"])
def test_a_prompt_with_quotes_and_line_ends_is_json_in_the_shell(snippet: str) -> None:
    runtime = next(runtime for runtime in RUNTIMES if runtime.snippet == snippet)
    prompt = 'Represent the user\'s "query":\nText: '
    facts = {"prompt": prompt, "pooling": "mean", "max_length": 64, "normalize": True, "truncated": False}
    code = runtime.code(facts, next(iter(runtime.files)), "exported", "org/mine")
    bodies = [json.loads(word) for line in code.splitlines() for word in shlex.split(line) if word[0] == "{"]
    assert bodies
    assert all((body.get("input") or body["inputs"])[0] == f"{prompt}A dog runs." for body in bodies)


@pytest.mark.parametrize("snippet", ["llama_server.sh", "text_embeddings_inference.sh"])
def test_a_folder_with_spaces_is_one_word_in_the_shell(snippet: str) -> None:
    runtime = next(runtime for runtime in RUNTIMES if runtime.snippet == snippet)
    facts = {"prompt": "", "pooling": "mean", "max_length": 64, "normalize": True, "truncated": False}
    words = shlex.split(runtime.code(facts, next(iter(runtime.files)), "my export", "my export"))
    assert not {"my", "export"} & {*words} and any("my export" in word for word in words)


@pytest.mark.parametrize("precision", ["float16", "float64"])
def test_the_reference_computes_in_float32_whatever_the_precision_of_the_export(
    exported: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    config = json.loads((exported / "config.json").read_text("utf-8"))
    (exported / "config.json").write_text(json.dumps(config | {"dtype": precision}), "utf-8")
    codes: list[str] = []
    monkeypatch.setattr(runtimes, "RUNTIMES", RUNTIMES[:1])
    monkeypatch.setattr(check, "_run", lambda _, code, *__: codes.append(code) or _answer())
    assert [result.precision for result in check_runtimes(exported)] == [precision]
    assert ".float()" in codes[0] and ".float()" not in RUNTIMES[0].code(ENCODING, "", "out", "out")


@pytest.mark.slow
def test_an_export_is_opened_in_fresh_processes(
    exported: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reference = RUNTIMES[0]
    absent = Runtime("absent", "openvino.py", {"model.safetensors": "float32"}, "no-such-package", "[]")
    monkeypatch.setattr(runtimes, "RUNTIMES", (reference, absent))
    results = check_runtimes(exported)
    assert [result.problem for result in results] == ["", "not checked: it is not installed"]
    assert results[0].smallest_cosine == pytest.approx(1)
    written = json.loads((exported / "runtimes.json").read_text("utf-8"))
    assert [each["runtime"] for each in written] == ["sentence-transformers", "absent"]
    broken = replace(reference, title="broken", token_ids="[no_such_name]")
    monkeypatch.setattr(runtimes, "RUNTIMES", (broken,))
    with pytest.raises(ModelError, match="model.safetensors in broken .*: it does not open: .NameError: name 'no_such"):
        check_runtimes(exported)
