"""``hf-xsent COMMAND …``: help comes before torch is loaded; an error of ours is one sentence and an exit code."""

from __future__ import annotations

import argparse
import atexit
import os
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from hf_xsent import __version__
from hf_xsent.cli import (
    align_documents,
    align_words,
    analyse,
    card,
    compare,
    cost,
    dual_pivot,
    evaluate,
    export,
    finetune,
    mine,
    onnx,
    pretrain,
    publish,
    quickstart,
    score,
    trim_vocab,
    vocabulary,
)
from hf_xsent.errors import HfXsentError

COMMANDS = (
    quickstart,
    pretrain,
    dual_pivot,
    vocabulary,
    align_words,
    finetune,
    evaluate,
    analyse,
    cost,
    compare,
    mine,
    align_documents,
    score,
    export,
    trim_vocab,
    onnx,
    card,
    publish,
)
# Every field of TrainingArguments is a flag of these, too many to list here: they read their flags themselves.
TRAINING = {"pretrain": pretrain, "finetune": finetune}


def build_parser() -> argparse.ArgumentParser:
    """Every command with its flags."""
    parser = argparse.ArgumentParser(
        prog="hf-xsent", description="Turn a multilingual encoder into a cross-lingual sentence encoder."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        description = (module.__doc__ or "").strip()
        command = commands.add_parser(
            module.__name__.rsplit(".", 1)[-1].replace("_", "-"),
            help=description.splitlines()[0],
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code says how it went."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if arguments and arguments[0] in TRAINING and not {"-h", "--help"} & set(arguments):
            TRAINING[arguments[0]].run(arguments[1:])
        else:
            parsed = build_parser().parse_args(arguments)
            parsed.run(parsed)
    except HfXsentError as error:
        print(f"hf-xsent: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("hf-xsent: stopped", file=sys.stderr)
        return 130
    return 0


def program(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process."""
    leave(main(arguments))


def leave(exit_code: int) -> NoReturn:
    """End the process; one of several ends before its interpreter is taken down, which gloo's threads may abort.

    Such a thread may still hold the last exchange of a backward pass, whose objects only a living interpreter frees.
    Python's own threads (an upload, for instance) end their work first, and exit functions run, as they always do.
    """
    if not _is_one_of_several():
        sys.exit(exit_code)
    threading._shutdown()  # type: ignore[attr-defined]  # an interpreter's own first step, without which pools never end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def _is_one_of_several() -> bool:
    distributed = sys.modules.get("torch.distributed")  # a command that needs no torch does not load it here
    return distributed is not None and distributed.is_available() and distributed.is_initialized()
