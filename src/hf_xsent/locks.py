"""Lock files and folders, so that one process at a time writes them, and record what a folder was made from."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from hf_xsent.errors import OutputError
from hf_xsent.files import write_errors, write_json

STAMP_FILE = "made-from.json"
LOCK_FILE, HOLDER_FILE = "_lock", "_lock.json"  # of a folder that one process at a time may write to


@contextmanager
def lock(path: str | Path, busy: str | None = None) -> Iterator[None]:
    """Hold a lock file; wait if another process holds it, or raise an error with the message ``busy`` if given."""
    with try_lock(path, timeout=-1 if busy is None else 0) as held:
        if not held:
            raise OutputError(busy or f"another process holds {path}")
        yield


@contextmanager
def try_lock(path: str | Path, timeout: float = 0) -> Iterator[bool]:
    """Hold a lock file unless another process holds it for ``timeout`` seconds (-1: wait); yield whether it is held."""
    from filelock import FileLock, Timeout

    path, file = Path(path), FileLock(path, timeout=timeout)
    held = True
    with write_errors(path, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file.acquire()
        except Timeout:
            held = False
    try:
        yield held
    finally:
        file.release()


@contextmanager
def lock_folder(folder: str | Path) -> Iterator[None]:
    """Lock a folder for this process; raise an error that names the process that holds it.

    The system releases the lock of a process that ends or is killed.
    """
    folder = Path(folder)
    with lock(folder / LOCK_FILE, busy=_in_use(folder)):
        now = datetime.now().astimezone().isoformat(" ", "seconds")
        write_json(folder / HOLDER_FILE, {"process": os.getpid(), "host": socket.gethostname(), "since": now})
        try:
            yield
        finally:
            _remove_lock(folder)


def check_not_locked(folder: str | Path) -> None:
    """Raise an error if another process holds a folder; delete the lock of a killed one."""
    if (folder := Path(folder)).joinpath(LOCK_FILE).is_file():
        with lock(folder / LOCK_FILE, busy=_in_use(folder)):
            _remove_lock(folder)


def _remove_lock(folder: Path) -> None:
    for name in (HOLDER_FILE, LOCK_FILE):
        with suppress(OSError):
            (folder / name).unlink()


def _in_use(folder: Path) -> str:
    """Describe who holds a folder, if it is held."""
    try:
        holder = json.loads((folder / HOLDER_FILE).read_text(encoding="utf-8"))
        who = f"process {holder['process']} on {holder['host']}, since {holder['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return f"{folder} is in use by {who}: wait until it ends, stop it, or use another folder"


def stamp_folder(folder: Path, stamp: Mapping[str, Any], holds: str, cure: str) -> None:
    """Record the settings that produced a folder's content (``holds``, for errors); raise an error if they differ."""
    path = folder / STAMP_FILE
    with lock(folder / "lock"):
        if not path.is_file():
            write_json(path, stamp)
    try:
        found = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise OutputError(f"{path}, which says what {folder} holds, is damaged: {cure}, or delete it") from error
    for name in {**stamp, **found}:
        if found.get(name) != stamp.get(name):
            difference = f"another {name} ({found.get(name)}, not {stamp.get(name)})"
            raise OutputError(f"{folder} holds {holds} of {difference}: {cure}, or delete it")
