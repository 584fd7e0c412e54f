"""Run ``hf-xsent COMMAND …``: show help without loading torch; turn our errors into one sentence and an exit code."""

from __future__ import annotations

import argparse
import errno
import gc
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from os.path import exists
from types import ModuleType
from typing import Any, NoReturn

from hf_xsent import __version__
from hf_xsent.cli import (
    export,
    publish,
    trim_vocab,
)
from hf_xsent.cli.help import command_help, topic_help
from hf_xsent.errors import HfXsentError, RecipeError, did_you_mean, shortened
from hf_xsent.files import describe_disk_failure
from hf_xsent.settings.secrets import refuse_secret_arguments


@dataclass(frozen=True)
class CommandPlace:
    """Where the settings class of a command, which imports no torch, and its function are."""

    settings: str  # file:class
    function: str  # file:function

    def load(self) -> Any:
        """Import the function."""
        return _load(self.function)


COMMANDS = {
    "quickstart": CommandPlace("quickstart.settings:QuickstartSettings", "quickstart.quickstart:quickstart"),
    "pretrain": CommandPlace("training.settings:PretrainHelp", "training.pretrain:pretrain"),
    "finetune": CommandPlace("finetuning.settings:FineTuneHelp", "finetuning.finetune:finetune"),
    "evaluate": CommandPlace("evaluation.settings:EvaluateSettings", "evaluation.evaluate:evaluate"),
    "analyse": CommandPlace("evaluation.settings:AnalyseSettings", "evaluation.analyse:analyse"),
    "cost": CommandPlace("training.cost_settings:CostSettings", "training.cost:measure_cost"),
    "compare": CommandPlace("comparison.settings:CompareSettings", "comparison.compare:compare"),
    "mine": CommandPlace("mining.settings:MineSettings", "mining.mine:mine_files"),
    "mine-negatives": CommandPlace("mining.settings:MineNegativesSettings", "mining.hard_negatives:mine_negatives"),
    "score": CommandPlace("mining.settings:ScoreSettings", "mining.score:score_pairs"),
    "align-documents": CommandPlace(
        "documents.settings:AlignDocumentsSettings", "documents.align_files:align_document_files"
    ),
    "align-words": CommandPlace("words.settings:AlignWordsSettings", "words.align:align_words"),
}
OLD: dict[str, ModuleType] = {
    module.__name__.rsplit(".", 1)[-1].replace("_", "-"): module for module in (export, trim_vocab, publish)
}


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"hf_xsent.{module}"), name)


def overview() -> str:
    """Return one line for each command."""
    lines = [f"  {name:<16} {settings_class(name).__doc__.partition(chr(10))[0]}" for name in COMMANDS]
    lines += [f"  {name:<16} {str(module.__doc__).partition(chr(10))[0]}" for name, module in OLD.items()]
    return "\n".join(
        [
            "usage: hf-xsent COMMAND …",
            "",
            "Turn a multilingual encoder into a cross-lingual sentence encoder.",
            "",
            *lines,
        ]
    )


def settings_class(name: str) -> Any:
    """Import the settings class of a command, without torch."""
    return _load(COMMANDS[name].settings)


def run_command(name: str, arguments: Sequence[str]) -> None:
    """Print the help of a command, or run it and print its result."""
    if {"-h", "--help"} & {*arguments}:
        kind = settings_class(name)
        topics: dict[str, str] = getattr(kind, "help_topics", {})
        topic = next((word for word in arguments if word in topics), None)
        print(command_help(name, kind) if topic is None else topic_help(_load(topics[topic])()))
        return
    command = COMMANDS[name].load()
    settings = command.parse(arguments)
    _show_logs()
    with _resumable(settings):
        result = command(settings)
    for item in result if isinstance(result, list) else [result]:
        if item is not None and type(item).__str__ is not object.__str__:
            print(item)


@contextmanager
def _resumable(settings: Any) -> Iterator[None]:
    """On SIGTERM, name the work folder from which the same command resumes, if it has one."""
    from hf_xsent.runs.stopping import raising_on_sigterm

    work = getattr(settings, "work_folder", None)
    with (
        nullcontext()
        if work is None
        else raising_on_sigterm(f"finished work is in {work}, from which the same command continues")
    ):
        yield


class CommandParser(argparse.ArgumentParser):
    """Parse flags; in help, write N or X for numbers and append each flag's default."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        """Declare a flag; its help says what it does and in which unit."""
        default = settings.get("default")
        optional = names[0].startswith("-") and not settings.get("required") and "action" not in settings
        if optional and default in (None, []) and "default: " not in settings["help"]:
            settings["help"] += " (default: none)"
        if default not in (None, [], argparse.SUPPRESS):
            shown = default if isinstance(default, str | int | float) else " ".join(default)
            settings["help"] += f" (default: {shown})"
        if settings.get("type") in (int, float):
            settings.setdefault("metavar", "N" if settings["type"] is int else "X")
        return super().add_argument(*names, **settings)

    def error(self, message: str) -> NoReturn:
        """Raise a mistake in the flags as one sentence, without argparse's usage."""
        raise RecipeError(f"{message}; {self.prog} --help lists all flags")

    def check_known(self, unknown: Sequence[str]) -> None:
        """Raise an error for the first argument that a command does not have."""
        for one in unknown:
            if one.startswith("-"):
                flag = one.partition("=")[0]
                known = re.findall(r"--\w+", self.format_usage())
                raise RecipeError(f"unknown flag {flag}{did_you_mean(flag, known)}")
            hint = f"{self.prog} --help lists all arguments"
            if exists(one):
                hint = 'put a pattern of several files in quotes, such as "books/*.txt", for the shell not to expand it'
            raise RecipeError(f"unexpected argument {one!r}: {hint}")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands with their flags."""
    description = "Turn a multilingual encoder into a cross-lingual sentence encoder."
    parser = CommandParser(prog="hf-xsent", description=description)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in OLD.values():
        description = (module.__doc__ or "").strip()
        command = commands.add_parser(
            module.__name__.rsplit(".", 1)[-1].replace("_", "-"),
            help=description.splitlines()[0],
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run, parser=command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        refuse_secret_arguments(arguments)
        if not arguments or arguments[0] in ("-h", "--help"):
            print(overview())
        elif arguments[0] == "--version":
            print(__version__)
        elif arguments[0] in COMMANDS:
            run_command(arguments[0], arguments[1:])
        elif arguments[0] not in OLD:
            raise RecipeError(f"unknown command {arguments[0]!r}{did_you_mean(arguments[0], [*COMMANDS, *OLD])}")
        else:
            parsed, unknown = build_parser().parse_known_args(arguments)
            parsed.parser.check_known(unknown)
            _show_logs()
            parsed.run(parsed)
    except HfXsentError as error:
        print(f"hf-xsent: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            failure: str | None = f"{shortened(error.filename)}: {error.strerror}; give another path"
        else:
            failure = describe_disk_failure(error)
        if failure is None:
            raise
        print(f"hf-xsent: {failure}", file=sys.stderr)
        return HfXsentError.exit_code
    except KeyboardInterrupt:
        print("hf-xsent: stopped", file=sys.stderr)
        return 130
    return 0


def _show_logs() -> None:
    """Set up the log lines; this loads transformers, which --help does not need."""
    from hf_xsent.logs import configure_logging

    configure_logging()


def program(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process."""
    logging.captureWarnings(True)  # as log lines, which do not begin in the middle of a progress bar
    leave(main(arguments))


def leave(exit_code: int) -> NoReturn:
    """End the process, after destroying the torch process group if there is one.

    A thread of gloo that still runs may abort Python at exit ("terminate called without an active exception": 2 of 40
    small runs with torch 2.13). destroy_process_group ends the threads only if nothing references the group, so collect
    garbage first: the data-parallel model is part of reference cycles.
    """
    distributed = sys.modules.get("torch.distributed")  # not imported: many commands do not need torch
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        gc.collect()
        distributed.destroy_process_group()
    sys.exit(exit_code)
