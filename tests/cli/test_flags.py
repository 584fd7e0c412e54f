"""One word has one meaning in all commands: the flags of every parser, next to the table of CONTRIBUTING.md."""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path

import pytest

import hf_xsent
from hf_xsent.cli.main import build_parser
from hf_xsent.errors import RecipeError
from hf_xsent.finetuning.xnli import main as finetune_xnli
from hf_xsent.training.recipe import read_recipe

CONTRIBUTING = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
TRAINING = ("pretrain", "finetune")  # their flags are settings, read by settings/reading.py
CALLS = {  # the public call of each command; quickstart is a tour, whose Python is examples/quickstart.ipynb
    "align-documents": "align_document_files",
    "cost": "measure_cost",
    "export": "export_sentence_transformer",
    "mine": "mine_files",
    "score": "score_pairs",
    "trim-vocab": "trim_vocabulary",
    "quickstart": None,
}


@pytest.fixture(scope="module")
def commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = (one for one in build_parser()._actions if isinstance(one, argparse._SubParsersAction))
    return dict(found.choices)


def _flags(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    return {name: one for one in parser._actions for name in one.option_strings if name.startswith("--")}


def test_a_flag_of_two_commands_is_in_the_table(commands: dict[str, argparse.ArgumentParser]) -> None:
    table = set(re.findall(r"`(--\w+)`", CONTRIBUTING.partition("## Flags")[2].partition("\n## ")[0]))
    where = defaultdict(list)
    for command, parser in commands.items():
        for flag in _flags(parser):
            where[flag].append(command)
    shared = {flag for flag, some in where.items() if len(some) > 1 and set(some) - {*TRAINING}} - {"--help"}
    assert shared <= table, shared - table
    assert all(len(where[flag]) > 1 for flag in table - {"--output_dir"}), table


def test_every_command_writes_its_results_to_output(commands: dict[str, argparse.ArgumentParser]) -> None:
    for command, parser in commands.items():
        flags = {name for one in parser._actions for name in one.option_strings}
        assert command == "publish" or {"--output", "-o"} <= flags, command
        assert not flags & {"--out", "--outdir", "--corpus", "--lang", "--langs"}, command


def test_a_flag_takes_the_same_kind_of_value_everywhere(commands: dict[str, argparse.ArgumentParser]) -> None:
    kinds = defaultdict(set)
    for command, parser in commands.items():
        for name, one in _flags(parser).items():
            if command not in TRAINING:
                several = one.nargs is not None and one.nargs != 0
                if not (command == "evaluate" and name in ("--dim", "--layer", "--pooling")):  # measures several
                    kinds[name].add((several, one.nargs == 0, one.type))
    assert not {name: some for name, some in kinds.items() if len(some) > 1}


def test_help_states_the_type_and_the_default_of_every_flag(commands: dict[str, argparse.ArgumentParser]) -> None:
    for command, parser in commands.items():
        for name, one in _flags(parser).items():
            if one.nargs == 0 or one.required:
                continue
            said = any(word in str(one.help) for word in ("efault", "ithout", "required"))
            assert said and one.metavar not in ("…", "VALUE", "VALUE …"), (command, name)
            assert "default: ['" not in str(one.help) and str(one.help).count("default: ") <= 1, (command, name)


def test_training_takes_output_as_the_other_commands_do() -> None:
    for flag in ("--output", "-o", "--output_dir"):
        assert read_recipe([flag, "runs/mine", "--use_cpu"]).training.output_dir == "runs/mine"
    with pytest.raises(RecipeError, match="no encoder to start from"):
        finetune_xnli(["--output", "runs/mine"])
    with pytest.raises(RecipeError, match="--output"):
        finetune_xnli(["--model", "encoder"])


def test_every_command_has_a_call(commands: dict[str, argparse.ArgumentParser]) -> None:
    for command in commands:
        call = CALLS.get(command, command.replace("-", "_"))
        assert call is None or callable(getattr(hf_xsent, call)), command
