"""Claim a folder or a result for one process; the system releases the claim of a process that ends or is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hf_xsent.errors import OutputError
from hf_xsent.files import make_folder, refuse_uri

CLAIM_FILE = "_lock"  # of a folder


@contextmanager
def claim(path: str | Path, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file ``path``, and yield whether it is held here; without ``wait``, another holder may keep it."""
    from filelock import FileLock, Timeout

    refuse_uri(path)
    path = Path(path)
    make_folder(path.parent)
    lock = FileLock(path, timeout=-1 if wait else 0)
    with suppress(Timeout):
        lock.acquire()
    try:
        yield lock.is_locked
    finally:
        lock.release()


@contextmanager
def claim_folder(folder: str | Path) -> Iterator[None]:
    """Claim a folder for this process; raise an error if another process or thread has claimed it."""
    path = Path(folder) / CLAIM_FILE
    with claim(path, wait=False) as held:
        if not held:
            raise OutputError(
                f"{folder} is in use by another process: wait until it ends, stop it, or use another folder"
            )
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
