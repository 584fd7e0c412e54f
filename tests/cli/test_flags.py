"""One word has one meaning in all commands: the settings of every command, next to the table of CONTRIBUTING.md."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import Field
from pathlib import Path
from typing import Any

import pytest

import hf_xsent
from hf_xsent.cli import COMMANDS, load_command, settings_class
from hf_xsent.errors import RecipeError
from hf_xsent.finetuning.finetune import finetune
from hf_xsent.settings.command import Command
from hf_xsent.settings.declare import help_of, settings_of
from hf_xsent.training.pretrain import pretrain

CONTRIBUTING = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
TRAINING = ("pretrain", "finetune")
CALLS = {  # the public function of each command whose name differs; quickstart is a tour
    "align-documents": "align_document_files",
    "export": "export_sentence_transformer",
    "mine": "mine_files",
    "score": "score_pairs",
    "trim-vocab": "trim_vocabulary",
    "quickstart": None,
}


def _settings(command: str) -> dict[str, Field[Any]]:
    kind = settings_class(command)
    groups = getattr(kind, "help_groups", {"": (kind,)})
    return {name: field for kinds in groups.values() for part in kinds for name, field in settings_of(part).items()}


FLAGS = {command: _settings(command) for command in COMMANDS}


def test_a_flag_of_two_commands_is_in_the_table() -> None:
    table = set(re.findall(r"`--(\w+)`", CONTRIBUTING.partition("## Flags")[2].partition("\n## ")[0]))
    where = defaultdict(list)
    for command, fields in FLAGS.items():
        for name, field in fields.items():
            if field.metadata["shown"] and not field.metadata["positional"]:
                where[name].append(command)
    shared = {name for name, commands in where.items() if len(commands) > 1 and {*commands} - {*TRAINING}}
    assert shared <= table, shared - table


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_writes_its_results_to_output(command: str) -> None:
    names = {*FLAGS[command]}
    aliases = {alias for field in FLAGS[command].values() for alias in field.metadata["aliases"]}
    assert command == "publish" or (names & {"output", "output_dir"} and "o" in aliases)
    assert not names & {"out", "outdir", "corpus", "lang", "langs"}


def test_a_flag_takes_the_same_kind_of_value_everywhere() -> None:
    types = defaultdict(set)
    several = {
        "pooling",
        "layers",
        "dim",
        "model",
        "languages",
        "columns",
        "data",
        "tasks",
        "methods",
    }  # lists in some commands
    for command, fields in FLAGS.items():
        for name, field in fields.items():
            if command not in TRAINING and name not in several and not field.metadata["positional"]:
                types[name].add(str(field.type).removesuffix(" | None"))
    assert not {name: kinds for name, kinds in types.items() if len(kinds) > 1}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_setting_has_help_with_its_default(command: str) -> None:
    for name, field in FLAGS[command].items():
        said = any(word in help_of(field) for word in ("efault", "ithout", "required"))
        assert field.metadata["help"] and (said or field.metadata["required"] or field.metadata["positional"]), name
        assert help_of(field).count("default: ") <= 1, name


def test_training_takes_output_as_the_other_commands_do() -> None:
    for flag in ("--output", "-o", "--output_dir"):
        assert pretrain.parse([flag, "runs/mine", "--use_cpu"]).training.output_dir == "runs/mine"
    with pytest.raises(RecipeError, match="no encoder to start from"):
        finetune.run(["xnli", "--output", "runs/mine"])
    with pytest.raises(RecipeError, match="--output"):
        finetune.run(["xnli", "--model", "encoder"])


@pytest.mark.parametrize("command", COMMANDS)
def test_the_public_function_is_the_command(command: str) -> None:
    call = CALLS.get(command, command.replace("-", "_"))
    if call is not None:
        function = getattr(hf_xsent, call)
        assert isinstance(function, Command) and function is load_command(command)
