"""Run programs in forks of a server that has imported torch and hf_xsent: a new interpreter imports for seconds."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "torch",
        "torch._dynamo",  # the first optimizer imports it
        "transformers",
        "transformers.models.bert.modeling_bert",
        "sentence_transformers",
        "hf_xsent.cli",
        "hf_xsent.comparison.process",
        "hf_xsent.training.trainer",
        "hf_xsent.training.dual_pivot.trainer",
    ]
)


class Fork:
    """Run ``work(*arguments)`` in a fork that leads a process group; used like a ``subprocess.Popen``.

    An integer that ``work`` returns is the exit code. What it prints is appended to the file ``log``. Its variables
    are those of ``environment``, by default of this process.
    """

    def __init__(
        self, work: Callable[..., Any], *arguments: Any, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        options = {"environment": {**(environment or os.environ)}, "folder": os.getcwd(), "log": str(log)}
        self._process = CONTEXT.Process(target=_work, args=(work, arguments), kwargs=options)
        self._process.start()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float = 180) -> int:
        self._process.join(timeout)
        assert self.returncode is not None, f"it did not end within {timeout} seconds: {self.output[-4000:]}"
        return self.returncode

    @property
    def output(self) -> str:
        """What it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.is_file() else ""

    def communicate(self, timeout: float = 180) -> tuple[None, str]:
        self.wait(timeout)
        return None, self.output

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Fork:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


def launch(processes: int, work: Callable[..., Any], *arguments: Any, log: Path) -> str:
    """Run ``work`` in several forks, with the environment that torchrun would give them; return what they print."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    together = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    forks = []
    for rank in range(processes):
        names = {**together, "RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": 1, "CUDA_VISIBLE_DEVICES": ""}
        environment = os.environ | {name: str(value) for name, value in names.items()}
        forks.append(Fork(work, *arguments, log=log, environment=environment))
    try:
        codes = [fork.wait() for fork in forks]
    finally:
        for fork in forks:
            fork.kill()
    assert codes == [0] * processes, forks[0].output[-4000:]
    return forks[0].output


def kill_before_replacing(file: int, work: Callable[..., Any], *arguments: Any) -> None:
    """Run ``work`` until SIGKILL when all of this file, counted from 1, is written, but not in its place."""
    count, replace = [0], Path.replace

    def counted(self: Path, target: Path) -> Path:
        count[0] += 1
        if count[0] == file:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, target)

    Path.replace = counted  # type: ignore[method-assign, assignment]
    work(*arguments)


def _work(
    work: Callable[..., Any], arguments: tuple[Any, ...], environment: dict[str, str], folder: str, log: str
) -> None:
    gc.freeze()  # the objects of imported modules
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    torch.set_num_threads(1)  # as in all tests of tiny models; OMP_NUM_THREADS is read when torch is imported
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    code = 1
    try:
        code = work(*arguments)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    sys.exit(code if isinstance(code, int) else 0)
