from __future__ import annotations

import pickle

import pytest

from hf_xsent.errors import DataError, HfXsentError, did_you_mean, naming_flags, shortened


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31mred", "a\u2028b", "\ud800"])
def test_messages_are_one_line_that_can_be_written(text: str) -> None:
    message = str(DataError(f"file.tsv:7: {text}; fix the file"))
    assert message.isprintable()
    assert message.startswith("file.tsv:7: ") and message.endswith("; fix the file")
    message.encode()


def test_settings_are_arguments_in_python_and_flags_on_a_command_line() -> None:
    message = "give --data or --max-pairs, or use hf-xsent evaluate --output, or torchrun --nproc_per_node 2: a--b -- 1"
    with naming_flags():
        assert str(DataError(message)) == message
    expected = "give data or max-pairs, or use hf-xsent evaluate --output, or torchrun --nproc_per_node 2: a--b -- 1"
    assert str(DataError(message)) == expected


def test_errors_survive_another_process() -> None:
    error = pickle.loads(pickle.dumps(DataError("a: b")))
    assert type(error) is DataError and str(error) == "a: b"
    assert str(HfXsentError()) == ""


def test_long_values_are_shortened_and_similar_names_suggested() -> None:
    assert shortened("x" * 10**7) == "'" + "x" * 99 + "…"
    assert did_you_mean("maen", ["mean", "max"]) == "; did you mean 'mean'?"
