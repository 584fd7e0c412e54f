from __future__ import annotations

import ast
import pickle
import re
from dataclasses import fields
from pathlib import Path

import pytest
from transformers import TrainingArguments

from hf_xsent.errors import DataError, HfXsentError, did_you_mean, naming_flags, shortened, without_dashes


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31mred", "a\u2028b", "\ud800"])
def test_messages_are_one_line_that_can_be_written(text: str) -> None:
    message = str(DataError(f"file.tsv:7: {text}; fix the file"))
    assert message.isprintable()
    assert message.startswith("file.tsv:7: ") and message.endswith("; fix the file")
    message.encode()


def test_settings_are_arguments_in_python_and_flags_on_a_command_line() -> None:
    commands = "hf-xsent evaluate --output, torchrun --nproc_per_node 8 --no-python hf-xsent, ray start --head, "
    commands += "hf download NAME --local-dir FOLDER"
    message = f"give --data or --max-pairs, or use {commands}: a--b -- 1"
    with naming_flags():
        assert str(DataError(message)) == message
    assert str(DataError(message)) == f"give data or max-pairs, or use {commands}: a--b -- 1"


def test_only_names_of_settings_lose_their_dashes() -> None:
    """Else, a command that a message advises would be broken."""
    root, flag = Path(__file__).parents[1], re.compile(r"--([a-z][\w-]*)")
    known = {name for page in (root / "docs" / "cli").glob("*.md") for name in flag.findall(page.read_text("utf-8"))}
    known |= {field.name for field in fields(TrainingArguments)}
    for path in (root / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if " " in text and "\n" not in text:  # neither a name nor a long docstring
                assert {*flag.findall(text)} - {*flag.findall(without_dashes(text))} <= known, f"{path}:{node.lineno}"


def test_errors_survive_another_process() -> None:
    error = pickle.loads(pickle.dumps(DataError("a: b")))
    assert type(error) is DataError and str(error) == "a: b"
    assert str(HfXsentError()) == ""


def test_long_values_are_shortened_and_similar_names_suggested() -> None:
    assert shortened("x" * 10**7) == "'" + "x" * 99 + "…"
    assert did_you_mean("maen", ["mean", "max"]) == "; did you mean 'mean'?"
    assert did_you_mean(1, ["mean", 1.0]) == ""  # a name that YAML reads as a number
