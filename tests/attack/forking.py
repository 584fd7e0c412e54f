"""Run commands in forks of this process, which has imported everything, so that a run takes no time to start."""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST = 300.0  # seconds of a command
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")


def preload() -> None:
    """Import what commands import; this process itself must not compute, because a fork copies only one thread."""
    import hf_xsent

    for module in pkgutil.walk_packages(hf_xsent.__path__, "hf_xsent."):
        if not module.name.endswith("ray_engine") and ".metrics" not in module.name:
            importlib.import_module(module.name)
    for name in ("transformers.models.bert.modeling_bert", "sentence_transformers", "datasets", "pyarrow.dataset"):
        importlib.import_module(name)


@dataclass(frozen=True)
class Kill:
    """A signal before a numbered change of a file or folder."""

    number: signal.Signals
    change: int

    def __str__(self) -> str:
        return f"{self.number.name} before change {self.change} of a file"


@dataclass(frozen=True)
class Ended:
    """The exit code of a run (negative: the signal), its number of changes of files, and what it printed."""

    code: int
    changes: int
    output: str

    @property
    def killed(self) -> bool:
        """Return whether the signal ended it, with or without a handler."""
        return self.code in (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)


def run(arguments: list[str], folder: Path, kill: Kill | None = None) -> Ended:
    """Run ``hf-xsent arguments`` in a fork, in ``folder``; its output goes to a file next to the folder."""
    log, counted = folder.with_name(f"{folder.name}.log"), folder.with_name(f"{folder.name}.changes")
    folder.mkdir(parents=True, exist_ok=True)
    counted.write_bytes(bytes(8))
    process = os.fork()
    if process == 0:
        try:
            _child(arguments, folder, log, counted, kill)
        finally:
            os._exit(128 + signal.SIGTERM)  # a handler raised while the child ended; it must not continue as the parent
    until = time.monotonic() + LONGEST
    while not (waited := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.002)
    changes = int.from_bytes(counted.read_bytes(), "little")
    return Ended(os.waitstatus_to_exitcode(waited[1]), changes, log.read_text(encoding="utf-8", errors="replace"))


def _child(arguments: list[str], folder: Path, log: Path, counted: Path, kill: Kill | None) -> None:
    from hf_xsent.cli import main

    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        _count_changes(counted, kill)
        code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 2
    except BaseException:  # the report shows it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _count_changes(counted: Path, kill: Kill | None) -> None:
    """Count renames, deletions and files opened for writing; send the signal before the chosen one."""
    file, count, parent = os.open(counted, os.O_RDWR | os.O_CREAT), 0, os.getpid()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open":
            mode, flags = arguments[1:3]
            if not (isinstance(mode, str) and set(mode) & set("wax+")) and not (flags or 0) & os.O_CREAT:
                return
        elif event not in CHANGES:
            return
        if os.getpid() != parent:
            return
        count += 1
        os.pwrite(file, count.to_bytes(8, "little"), 0)
        if kill is not None and kill.change == count:
            os.kill(parent, kill.number)

    sys.addaudithook(hook)
