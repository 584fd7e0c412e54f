"""Run commands in forks of this process, which has imported everything, so that a run takes no time to start."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LONGEST = 300.0  # seconds of one command
WRITES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")


def preload() -> None:
    """Import what commands import; this process itself must not compute, because a fork copies only one thread."""
    import hf_xsent

    for module in pkgutil.walk_packages(hf_xsent.__path__, "hf_xsent."):
        if not module.name.endswith(("ray_engine", "mteb_tasks")) and ".metrics" not in module.name:
            importlib.import_module(module.name)
    for name in ("transformers.models.bert.modeling_bert", "sentence_transformers", "datasets", "pyarrow.dataset"):
        importlib.import_module(name)


@dataclass(frozen=True)
class Kill:
    """A signal, after some seconds or before a numbered change of a file or folder."""

    number: signal.Signals
    seconds: float | None = None
    change: int | None = None

    def __str__(self) -> str:
        moment = f"after {self.seconds:.3f} s" if self.seconds is not None else f"before change {self.change} of a file"
        return f"{self.number.name} {moment}"


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int  # of the process; negative: the signal
    seconds: float
    changes: int  # of files and folders
    said: str

    @property
    def killed(self) -> bool:
        """Return whether the signal ended it, with or without a handler."""
        return self.code in (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)


def run(work: Callable[[], int | None], folder: Path, kill: Kill | None = None) -> Ended:
    """Run a function in a fork, in ``folder``; its output goes to a file beside the folder."""
    log, counted = folder.with_name(f"{folder.name}.log"), folder.with_name(f"{folder.name}.changes")
    folder.mkdir(parents=True, exist_ok=True)
    counted.write_bytes(bytes(8))
    started = time.monotonic()
    process = os.fork()
    if process == 0:
        try:
            _child(work, folder, log, counted, kill)
        finally:
            os._exit(128 + signal.SIGTERM)  # a handler raised while the child ended; it must not go on as the parent
    limit = LONGEST if kill is None or kill.seconds is None else kill.seconds
    status = _wait(process, limit)
    if status is None and limit < LONGEST:
        os.kill(process, kill.number if kill else signal.SIGKILL)
        status = _wait(process, LONGEST)
    if status is None:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return Ended(-1, LONGEST, 0, f"did not end within {LONGEST:g} seconds: {log.read_text(errors='replace')}")
    changes = int.from_bytes(counted.read_bytes(), "little")
    return Ended(status, time.monotonic() - started, changes, log.read_text(encoding="utf-8", errors="replace"))


def command(*arguments: str) -> Callable[[], int]:
    """Return a function that runs ``hf-xsent arguments``."""

    def work() -> int:
        from hf_xsent.cli import main

        return main(arguments)

    return work


def _wait(process: int, seconds: float) -> int | None:
    """Return the exit code of a child, or None if it still runs."""
    until = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= until:
            return None
        time.sleep(min(0.002, max(0.0, until - time.monotonic())))


def _child(work: Callable[[], int | None], folder: Path, log: Path, counted: Path, kill: Kill | None) -> None:
    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        _fork_processes_of_studies()
        _count_changes(counted, kill)
        code = work() or 0
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
        elif event not in WRITES:
            return
        if os.getpid() != parent:
            return
        count += 1
        os.pwrite(file, count.to_bytes(8, "little"), 0)
        if kill is not None and kill.change == count:
            os.kill(parent, kill.number)

    sys.addaudithook(hook)


def _fork_processes_of_studies() -> None:
    """Let a comparison fork the processes of its runs; a new interpreter would import for seconds."""
    from hf_xsent.comparison import compare as comparing

    real: Any = comparing.subprocess
    names = {name: getattr(real, name) for name in ("DEVNULL", "STDOUT", "PIPE")}
    comparing.subprocess = SimpleNamespace(Popen=_ForkedRun, **names)  # type: ignore[assignment]


class _ForkedRun:
    """What a comparison uses of ``subprocess.Popen``."""

    def __init__(self, arguments: Sequence[str], stdout: Any, **_: Any) -> None:
        self.returncode: int | None = None
        self.process = os.fork()
        if self.process:
            return
        code = 1
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.dup2(stdout.fileno(), 1)
            os.dup2(stdout.fileno(), 2)
            code = importlib.import_module("hf_xsent.comparison.process").main(arguments[-1])
        except BaseException:  # the log of the run shows it
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = _wait(self.process, 0)
        return self.returncode

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.01)
        return self.returncode or 0

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.process, signal.SIGTERM)

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.process, signal.SIGKILL)

    def __enter__(self) -> _ForkedRun:
        return self

    def __exit__(self, *_: Any) -> None:
        self.wait()


def answers_of(world: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Return what ``work(rank, *arguments)`` returns in each of ``world`` forks, which form a process group."""
    import torch
    import torch.distributed as dist

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def join(rank: int) -> int:
            meeting, limit = f"file://{folder}/meeting", timedelta(seconds=LONGEST)
            dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=limit)
            torch.save(work(rank, *arguments), folder / f"{rank}.pt")
            dist.barrier()
            return 0

        processes = []
        for rank in range(world):
            processes.append(os.fork())
            if processes[-1] == 0:
                _child(partial(join, rank), folder, folder / f"{rank}.log", folder / f"{rank}.changes", None)
        for rank, process in enumerate(processes):
            if _wait(process, LONGEST) != 0:
                said = (folder / f"{rank}.log").read_text(errors="replace")
                for other in processes[rank:]:
                    with suppress(OSError):
                        os.kill(other, signal.SIGKILL)
                raise AssertionError(f"process {rank} of {world} failed: {said[-3000:]}")
        return [torch.load(folder / f"{rank}.pt") for rank in range(world)]


def empty(folder: Path) -> None:
    """Delete a folder with all that is in it."""
    shutil.rmtree(folder, ignore_errors=True)
