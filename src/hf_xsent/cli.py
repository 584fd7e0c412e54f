"""Run ``hf-xsent COMMAND …``: show help without loading torch; turn our errors into one sentence and an exit code."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from hf_xsent import __version__
from hf_xsent.errors import HfXsentError, RecipeError, did_you_mean, naming_flags
from hf_xsent.settings.declare import settings_of
from hf_xsent.settings.help import command_help, topic_help
from hf_xsent.settings.read import refuse_unknown_flags
from hf_xsent.settings.secrets import refuse_secret_arguments

# Each command: its settings class, in a file that imports no torch, and its function (settings.command.Command).
COMMANDS = {
    "quickstart": ("quickstart.settings:QuickstartSettings", "quickstart.quickstart:quickstart"),
    "pretrain": ("training.settings:PretrainHelp", "training.pretrain:pretrain"),
    "evaluate": ("evaluation.settings:EvaluateSettings", "evaluation.evaluate:evaluate"),
    "compare": ("comparison.settings:CompareSettings", "comparison.compare:compare"),
    "finetune": ("finetuning.settings:FineTuneHelp", "finetuning.finetune:finetune"),
    "mine": ("mining.settings:MineSettings", "mining.mine:mine_files"),
    "mine-negatives": ("mining.settings:MineNegativesSettings", "mining.hard_negatives:mine_negatives"),
    "score": ("mining.settings:ScoreSettings", "mining.score:score_pairs"),
    "align-documents": ("documents.settings:AlignDocumentsSettings", "documents.align_files:align_document_files"),
    "align-words": ("words.settings:AlignWordsSettings", "words.align:align_words"),
    "export": ("publishing.settings:ExportSettings", "publishing.sentence_transformer:export_sentence_transformer"),
    "trim-vocab": ("publishing.settings:TrimSettings", "publishing.vocabulary_trimming:trim_vocabulary"),
    "publish": ("publishing.settings:PublishSettings", "publishing.hub:publish"),
}


@naming_flags()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        refuse_secret_arguments(arguments)
        if not arguments or arguments[0] in ("-h", "--help"):
            _show(_overview())
        elif arguments[0] == "--version":
            _show(__version__)
        elif arguments[0] not in COMMANDS:
            meant = {"train": "pretrain", "align": "pretrain"}.get(arguments[0], arguments[0])
            hint = "; docs/search.md has lines of Python that search" if meant == "search" else ""
            raise RecipeError(f"unknown command {arguments[0]!r}{hint or did_you_mean(meant, COMMANDS)}")
        elif {"-h", "--help"} & {*arguments}:
            _show(_help(*arguments))
        else:
            _run(*arguments)
    except HfXsentError as error:
        print(f"hf-xsent: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        if (failure := _system_failure(error)) is None:
            raise
        print(f"hf-xsent: {failure}", file=sys.stderr)
        return HfXsentError.exit_code
    except KeyboardInterrupt:
        print("hf-xsent: stopped", file=sys.stderr)
        return 130
    return 0


def _system_failure(error: Exception) -> str | None:
    """Describe an error of the system, such as a full disk or a missing permission; None for other errors."""
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    # safetensors, tokenizers and torch.save raise other types
    return next((line for line in str(error).splitlines() if re.search(r"\(os error \d+\)|failed writing", line)), None)


def _show(result: object) -> None:
    """Print to standard output; stay quiet if its reader, such as head, has closed the pipe."""
    try:
        print(result, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more at exit


def settings_class(name: str) -> Any:
    """Import the settings class of a command, without torch."""
    return _load(COMMANDS[name][0])


def load_command(name: str) -> Any:
    """Import the function of a command."""
    return _load(COMMANDS[name][1])


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"hf_xsent.{module}"), name)


def _overview() -> str:
    head = "usage: hf-xsent COMMAND …\n\nTurn a multilingual encoder into a cross-lingual sentence encoder.\n\n"
    lines = [f"  {name:<16} {settings_class(name).__doc__.partition(chr(10))[0]}" for name in COMMANDS]
    return head + "\n".join(lines)


def _help(name: str, *arguments: str) -> str:
    kind = settings_class(name)
    topics: dict[str, str] = getattr(kind, "help_topics", {})
    topic = next((word for word in arguments if word in topics), None)
    if topic is None:
        return command_help(name, kind)
    content = _load(topics[topic])()
    return content if isinstance(content, str) else topic_help(content)


def _run(name: str, *arguments: str) -> None:
    """Run a command and print its result."""
    refuse_unknown_flags(arguments, names_of_flags(settings_class(name)))
    if sys.stderr.isatty():
        print(f"hf-xsent {name} starts", file=sys.stderr)  # loading torch takes seconds
    from hf_xsent.logs import configure_logging  # loads transformers, which help does not need

    command = load_command(name)
    configure_logging()
    settings = command.parse(arguments)
    result = command(settings)
    for item in result if isinstance(result, list) else [result]:
        if item is not None and type(item).__str__ is not object.__str__:  # type: ignore[comparison-overlap]
            _show(item)


def names_of_flags(kind: Any) -> set[str]:
    """Return the names of all settings of a command without loading torch and transformers, which takes seconds.

    Trainings also take those of objectives and of TrainingArguments: the names annotated in their sources.
    """
    groups: dict[str, tuple[type, ...]] = getattr(kind, "help_groups", {"": (kind,)})
    fields = [settings_of(part) for group in groups.values() for part in group]
    names = {alias for group in fields for name in group for alias in (name, *group[name].metadata.get("aliases", ()))}
    transformers = find_spec("transformers")
    if "training" in groups and transformers is not None and transformers.origin is not None:
        arguments = Path(transformers.origin).with_name("training_args.py")
        of_objectives = Path(__file__).with_name("objectives").glob("*.py")
        for file, value in [(arguments, ""), *((file, r"[^=\n]+ = setting\(") for file in of_objectives)]:
            names.update(re.findall(rf"^    (\w+): {value}", file.read_text(encoding="utf-8"), re.MULTILINE))
    return names


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
