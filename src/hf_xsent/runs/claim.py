"""Claim a folder or a result for one process; the system releases the claim of a process that ends or is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hf_xsent.errors import OutputError

CLAIM_FILE = "_lock"  # of a folder


@contextmanager
def claim(path: str | Path) -> Iterator[None]:
    """Hold the lock file ``path``; wait while another process or thread holds it."""
    with _locked(Path(path), timeout=-1):
        yield


@contextmanager
def try_claim(path: str | Path) -> Iterator[bool]:
    """Hold the lock file ``path`` unless another process or thread holds it; yield whether it is held here."""
    with _locked(Path(path), timeout=0) as held:
        yield held


@contextmanager
def claim_folder(folder: str | Path) -> Iterator[None]:
    """Claim a folder for this process; raise an error if another process or thread has claimed it."""
    path = Path(folder) / CLAIM_FILE
    with try_claim(path) as held:
        if not held:
            raise OutputError(
                f"{folder} is in use by another process: wait until it ends, stop it, or use another folder"
            )
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()


@contextmanager
def _locked(path: Path, timeout: float) -> Iterator[bool]:
    from filelock import FileLock, Timeout

    lock = FileLock(path, timeout=timeout)
    held = True
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire()
    except Timeout:
        held = False
    try:
        yield held
    finally:
        lock.release()
