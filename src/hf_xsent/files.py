"""Write files atomically, hash content, check free space, distinguish Hub ids from paths.

The rest of the package writes through this module, so that a killed process or a power failure leaves the old file
or the new one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_128

from hf_xsent.errors import OutputError

if TYPE_CHECKING:
    import numpy as np

_HUB_ID = re.compile(r"(?P<owner>[\w-][\w.-]*/)?[\w-][\w.-]*(:[\w.-]+)?(@[\w./-]+)?")
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


# Write


@contextmanager
def writing(path: str | Path, folder: bool = False) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, rename it to ``path`` at the end, or remove it after an error.

    ``folder`` creates a folder. If the block writes nothing, nothing changes. A killed process leaves the temporary
    path, which no other process uses.
    """
    refuse_uri(path)
    path = Path(os.path.realpath(path) if folder else path)  # a link to a folder stays
    part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    make_folder(path.parent)
    if folder:
        part.mkdir()
    try:
        with naming_file(path):
            yield part
            if part.exists():
                move_into_place(part, path)
    finally:
        remove(part)


def make_folder(folder: Path) -> None:
    """Create a folder and those above it unless they exist; raise an error if one is a file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        file = next(filter(os.path.isfile, (folder, *folder.parents)), folder)
        raise OutputError(f"{file} is a file, not a folder: choose another output, work or cache folder") from error


def refuse_uri(path: str | Path) -> None:
    """Raise an error for a URI, of which pathlib would make a folder such as ``s3:``."""
    if re.match("[a-z][a-z0-9]+:/", str(path)):
        raise OutputError(f"{path} is a URI, to which nothing is written: give a path that this machine mounts")


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Add the path to errors of the system that name no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def write_text(path: str | Path, text: str | Iterable[str]) -> None:
    """Write a text, or the concatenation of several, as UTF-8."""
    with writing(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines([text] if isinstance(text, str) else text)


def write_json(path: str | Path, content: Any) -> None:
    """Write indented JSON; raise an error for NaN and infinity."""
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise OutputError(f"{path} is not written: a value is NaN or infinite, which JSON does not support") from error
    write_text(path, text + "\n")


def write_arrays(path: str | Path, arrays: np.ndarray | Mapping[str, Any]) -> None:
    """Write one array (.npy), or several by name (.npz)."""
    import numpy as np

    with writing(path) as part, part.open("wb") as file:
        try:
            np.savez(file, **arrays) if isinstance(arrays, Mapping) else np.save(file, arrays)
        except OSError as error:
            if error.errno is None:  # numpy counts the bytes that it wrote
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from error
            raise


def append_text(path: Path, text: str) -> None:
    """Append to a text file."""
    with naming_file(path), path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(text)


def move_into_place(part: Path, path: Path) -> None:
    """Rename a finished file or folder to its final name; replace an existing one.

    Flush the content to the disk before, and the name after, so that what is written next, such as the state of a run,
    is never on the disk without what it speaks of.
    """
    with naming_file(path):
        _flush(part)
    old = part.with_name(f"{part.name.removesuffix('.part')}-old.part")  # deleting a folder takes time
    if path.is_dir():
        path.replace(old)
    try:
        part.replace(path)
    except BaseException:
        if old.exists():
            old.replace(path)
        raise
    _flush_entries(path.parent)
    remove(old)


def _flush(path: Path) -> None:
    """Wait until a file, or a folder with all that is in it, is on the disk."""
    if path.is_symlink():
        return
    if path.is_dir():
        for inner in path.iterdir():
            _flush(inner)
        _flush_entries(path)
    else:
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _flush_entries(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the file system supports this."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def remove(path: Path) -> None:
    """Delete a file or folder if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def check_writable(path: str | Path, others: Iterable[str | Path] = ()) -> None:
    """Raise an error if a file cannot be written or is one of ``others``; create its folder."""
    path = Path(path)
    if os.path.exists(path) and not os.path.isfile(path):  # a folder, or a device such as /dev/stdout
        raise OutputError(f"{path} cannot be written: name a file in a folder where you may write")
    with writing(path) as part:  # also finds names that are too long, and paths outside a disk
        part.touch()
        part.unlink()
    taken, place = [os.path.realpath(other) for other in others], os.path.realpath(path)
    if place in taken:
        raise OutputError(f"{path} would overwrite an input or another output: choose another name")
    if path.suffix.lower() == ".parquet" and os.path.dirname(place) in taken:
        raise OutputError(f"{path} would be read as a part of an input: choose a place outside")


# Hash


def digest(content: Any) -> str:
    """Hash content to 16 hexadecimal digits: text, bytes, an iterator over them, or any value as JSON.

    >>> digest("Hund") == digest(b"Hund") == digest(iter(["Hu", "nd"]))
    True
    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    if not isinstance(content, str | bytes | Iterator):
        content = json.dumps(content, sort_keys=True, default=str)
    total = hashlib.sha256()
    for piece in content if isinstance(content, Iterator) else [content]:
        total.update(piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece)
    return total.hexdigest()[:16]


def file_digest(path: str | Path) -> str:
    """Hash a file's content, at the speed of the disk; read 16 MiB or more again only if size or time changed."""
    name, size, changed = file_stamp(path)
    return (_file_digest if size >> 24 else _file_digest.__wrapped__)(name, size, changed)


@cache
def _file_digest(path: str, _size: int, _changed: int) -> str:
    content = xxh3_128()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            content.update(block)
    return content.hexdigest()


def file_stamp(path: str | Path) -> tuple[str, int, int]:
    """Return path, size and modification time, to detect a changed file without reading it."""
    path = os.path.realpath(path)  # Path.resolve raises an error for cyclic links
    stat = os.stat(path)
    return path, stat.st_size, stat.st_mtime_ns


# Free space


def check_free_space(folder: str | Path, needed: int, what: str, cure: str) -> None:
    """Raise an error if ``what`` needs more bytes than the disk of ``folder`` has free."""
    folder = Path(folder)
    disk = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(disk).free
    if free < needed:
        raise OutputError(f"{folder} has {readable_size(free)} free but {what} need {readable_size(needed)}: {cure}")


def readable_size(size: float) -> str:
    """Format a number of bytes.

    >>> readable_size(999), readable_size(1_250_000)
    ('999 bytes', '1.2 MB')
    """
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"


# Names


def is_local(name: str | Path) -> bool:
    """Return whether the name of a model or data set is a local file or folder."""
    return os.path.exists(name)  # Path.exists raises an error for names that are too long


def is_hub_id(name: str, owner: bool = False) -> bool:
    """Return whether a name is a Hub id, ``[owner/]name[:config][@revision]``, and not a local path.

    ``owner`` requires an owner.
    """
    match = _HUB_ID.fullmatch(name)
    return match is not None and not (owner and match["owner"] is None) and not is_local(name)
