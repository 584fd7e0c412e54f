"""``hf-xsent COMMAND …``: help comes before torch is loaded; an error of ours is one sentence and an exit code."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from typing import NoReturn

from hf_xsent import __version__
from hf_xsent.cli import (
    align_words,
    analyse,
    card,
    compare,
    cost,
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
)
from hf_xsent.errors import HfXsentError

COMMANDS = (
    quickstart,
    pretrain,
    align_words,
    finetune,
    evaluate,
    analyse,
    cost,
    compare,
    mine,
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
    """End the process; one of several first ends its process group, whose threads may abort a Python that is ending.

    destroy_process_group ends gloo's threads only where nothing holds the group: the collector frees the data-parallel
    model, which is part of reference cycles. Otherwise 2 of 40 small runs end by "terminate called without an active
    exception" (torch 2.13).
    """
    distributed = sys.modules.get("torch.distributed")  # a command that needs no torch does not load it here
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        gc.collect()
        distributed.destroy_process_group()
    sys.exit(exit_code)
