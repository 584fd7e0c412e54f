"""Store results by name in a work folder, each computed once, so that an interrupted command resumes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from hf_xsent.errors import HfXsentError, OutputError
from hf_xsent.files import move_into_place, naming_file, remove, write_json
from hf_xsent.logs import Progress, collecting_warnings
from hf_xsent.runs.claim import claim
from hf_xsent.runs.identity import first_difference, plain

logger = logging.getLogger(__name__)

MADE_FROM = "_made-from.json"  # readers of Parquet folders ignore names with an underscore
_WARNINGS = "warnings.json"

Result = TypeVar("Result")


class Store:
    """A folder of results: files or folders, each complete as soon as it has its name.

    ``made_from`` names everything that decides the results besides their names; the folder records it, and another one
    is refused. Omit it if the names hash what decides the results. Several processes, also on other machines that share
    the folder, may use a store at once: each result is computed by one of them. A store can be pickled.

    >>> import tempfile; folder = tempfile.mkdtemp()
    >>> store = Store(folder, {"model": "xlm-roberta-base", "max_length": 64})

    One result: ``write`` computes it into the path that it gets (a file, or a folder that it creates), which is then
    renamed; ``read`` opens it. The second call only reads.

    >>> store.get("lengths.txt", write=lambda part: part.write_text("3 5"), read=lambda path: path.read_text().split())
    ['3', '5']

    Many results, shared with other processes that call the same:

    >>> store.fill(["0.txt", "1.txt"], lambda name, part: part.write_text(name), "encoding")
    >>> store.missing(["0.txt", "1.txt", "2.txt"])
    ['2.txt']
    >>> Store(folder, {"model": "xlm-roberta-base", "max_length": 128})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    hf_xsent.errors.OutputError: … was made with max_length 64, not 128: give another folder, or delete it
    """

    def __init__(self, folder: str | Path, made_from: Mapping[str, Any] | None = None) -> None:
        self.folder = Path(folder)
        if made_from is not None:
            self._check_made_from(plain(made_from))

    def path(self, name: str) -> Path:
        """Return the path of a result."""
        return self.folder / name

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the names whose results are not computed yet."""
        return [name for name in names if not self.path(name).exists()]

    def get(
        self, name: str, write: Callable[[Path], object], read: Callable[[Path], Result], resumes: bool = False
    ) -> Result:
        """Read a result, after ``write`` has computed it if it is missing; wait while another process computes it.

        With ``resumes``, ``write`` continues what an interrupted call left in the path that it gets.
        """
        self.compute(name, write, resumes)
        return self.read(name, read)

    def get_and_warn(self, name: str, write: Callable[[Path], object], read: Callable[[Path], Result]) -> Result:
        """Get a folder; log the warnings of ``write`` again, from a file in it, when it is only read."""
        is_stored = self.path(name).exists()

        def write_with_warnings(part: Path) -> None:
            with collecting_warnings() as warnings:
                write(part)
            write_json(part / _WARNINGS, warnings)

        result = self.get(name, write_with_warnings, read)
        for warning in self.read(name, lambda folder: json.loads((folder / _WARNINGS).read_text("utf-8"))):
            if is_stored:
                logger.warning("%s", warning)
        return result

    def compute(self, name: str, write: Callable[[Path], object], resumes: bool = False) -> None:
        """Compute a result unless it exists, as `get` does."""
        if not self.path(name).exists():
            with claim(self._lock(name)):
                self._compute_claimed(name, write, resumes)

    def read(self, name: str, read: Callable[[Path], Result]) -> Result:
        """Read a result that exists; raise an error that names its file if it is damaged."""
        try:
            return read(self.path(name))
        except (HfXsentError, MemoryError):
            raise
        except Exception as error:  # numpy, pyarrow and zipfile raise errors of many types for damaged files
            reason = (str(error).splitlines() or [""])[0] or type(error).__name__
            raise OutputError(
                f"{self.path(name)} is missing or damaged ({reason}): delete it, and the same command computes it again"
            ) from error

    def fill(self, names: Iterable[str], write: Callable[[str, Path], object], description: str) -> None:
        """Compute the missing results, together with other processes; return when all exist.

        ``write`` gets the name of a result and its path.
        """
        missing = self.missing(names)
        for name in Progress(missing, desc=description, unit=" files", delay=2):
            with claim(self._lock(name), wait=False) as ours:
                if ours:
                    self._compute_claimed(name, lambda part, name=name: write(name, part))  # type: ignore[misc]
        for name in missing:  # wait for other processes, and compute what killed ones left
            self.compute(name, lambda part, name=name: write(name, part))  # type: ignore[misc]

    def _lock(self, name: str) -> Path:
        return self.folder / f"{name}.lock"

    def _remove_lock(self, name: str) -> None:
        """Delete the lock of a complete result: a process that waits for it finds the result."""
        if self.path(name).exists():
            with suppress(OSError):
                self._lock(name).unlink()

    def _compute_claimed(self, name: str, write: Callable[[Path], object], resumes: bool = False) -> None:
        path, part = self.path(name), self.folder / f"{name}.part"
        if not path.exists():
            if not resumes:
                remove(part)
            try:
                with naming_file(path):
                    write(part)
                move_into_place(part, path)
            finally:
                if not resumes:
                    remove(part)
        self._remove_lock(name)

    def _check_made_from(self, made_from: dict[str, Any]) -> None:
        path = self.folder / MADE_FROM
        with claim(self._lock(MADE_FROM)):
            if not path.exists():
                write_json(path, made_from)
            self._remove_lock(MADE_FROM)
        earlier = self.read(MADE_FROM, lambda path: dict(json.loads(path.read_text(encoding="utf-8"))))
        if difference := first_difference(earlier, made_from):
            raise OutputError(f"{self.folder} was made with {difference}: give another folder, or delete it")
