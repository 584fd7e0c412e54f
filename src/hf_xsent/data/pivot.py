"""Pair sentences of two languages that share a translation, such as German and French with the same English side."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_xsent.data.bitext import Bitext, Pair
from hf_xsent.data.sampling.permutation import shuffle_key
from hf_xsent.errors import DataError
from hf_xsent.files import digest, writing
from hf_xsent.locks import lock

logger = logging.getLogger(__name__)

PIVOT = "pivot"  # name of these pairs among the sampler's languages
FORMAT_VERSION = 1
_BUCKETS = 64
_ROWS_AT_ONCE = 1 << 18

Rows = npt.NDArray[np.int64]


class PivotBitext:
    """A bitext followed by its pivot pairs, which are sampled as one more language.

    A pivot pair has two sources of the bitext that share a target; ``target_language`` is the language of the second.
    It is stored as two row numbers of the bitext (16 bytes, memory-mapped).
    """

    def __init__(self, bitext: Bitext, path: Path) -> None:
        self.bitext, self.path = bitext, path
        self._open()

    def _open(self) -> None:
        self._pairs: Rows = np.load(self.path, mmap_mode="r")
        self.report, self.languages = self.bitext.report, self.bitext.languages
        self.linked_pairs, self.pairs_with_negatives = self.bitext.linked_pairs, self.bitext.pairs_with_negatives
        self.ranges = self.bitext.ranges | {PIVOT: range(len(self.bitext), len(self))}

    def __getstate__(self) -> dict[str, Any]:
        return {"bitext": self.bitext, "path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __len__(self) -> int:
        return len(self.bitext) + len(self._pairs)

    def __getitem__(self, index: int) -> Pair:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Pair]:
        """Return many pairs; torch's DataLoader calls this for a batch."""
        rows = np.asarray(indices, dtype=np.int64)
        rows = np.where(rows < 0, rows + len(self), rows)
        if rows.size and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"pair index out of range: the bitext has {len(self)} pairs")
        through = rows >= len(self.bitext)
        two = self._pairs[rows[through] - len(self.bitext)]
        plain = iter(self.bitext.__getitems__(rows[~through].tolist()))
        ends = zip(*(self.bitext.__getitems__(two[:, side].tolist()) for side in range(2)), strict=True)
        return [_pivot_pair(*next(ends)) if one else next(plain) for one in through.tolist()]

    def side_hashes(self, rows: Rows) -> npt.NDArray[np.uint64]:
        """Return the hashes of source and target of each row (N × 2)."""
        found = np.empty((len(rows), 2), dtype=np.uint64)
        through = rows >= len(self.bitext)
        found[~through] = self.bitext.side_hashes(rows[~through])
        for side, ends in enumerate(self._pairs[rows[through] - len(self.bitext)].T):
            found[through, side] = self.bitext.side_hashes(ends)[:, 0]
        return found

    def sentences(self, side: str) -> Iterator[str]:
        """Yield every sentence that may be on this side, held-out pairs included."""
        yield from self.bitext.sentences("source")
        if side == "target":
            yield from self.bitext.sentences("target")


def _pivot_pair(one: Pair, other: Pair) -> Pair:
    ends = {"language": one["language"], "target_language": other["language"]}
    return {"source": one["source"], "target": other["source"], **ends}


def add_pivot_pairs(bitext: Bitext, folder: Path) -> PivotBitext:
    """Pair sentences of two languages that share a target, store the pairs, and add them to the bitext.

    The N sentences that share a target are shuffled, and each is paired with the next, the last with the first. So
    there are never more pivot pairs than pairs in the bitext. Equal sentences, and sentences of one language, are not
    paired. Rows are grouped by target in bucket files, so that memory does not grow with the bitext.
    """
    if len(bitext.languages) < 2:
        raise DataError(
            f"pivot needs at least two languages with a common target, but there is only {min(bitext.languages)}"
        )
    names = [path.parent.name for path in bitext.files.values()]
    path = folder / f"{PIVOT}-{digest([FORMAT_VERSION, names, bitext.selection_hash])}.npy"
    with lock(f"{path}.lock"):
        if not _is_readable(path):
            with writing(path) as part:
                _write_pairs(bitext, part)
    found = PivotBitext(bitext, path)
    if len(found) == len(bitext):
        raise DataError("pivot: no sentences of two languages share a target; remove the setting pivot")
    _log(bitext, np.load(path, mmap_mode="r"))
    return found


def _is_readable(path: Path) -> bool:
    """Return whether the pairs are stored, and not damaged."""
    if not path.is_file():
        return False
    try:
        return bool(np.load(path, mmap_mode="r").dtype == np.int64)
    except Exception as error:  # numpy raises errors of many types for damaged headers
        logger.warning("%s is damaged (%s): it is computed again", path, type(error).__name__)
        return False


def _write_pairs(bitext: Bitext, part: Path) -> None:
    buckets = [part.with_name(f"{part.name}-{number:02d}") for number in range(_BUCKETS)]
    raw = part.with_name(f"{part.name}-pairs")
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("wb")) for path in buckets]
            for start in range(0, len(bitext), _ROWS_AT_ONCE):
                rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(bitext)))
                records = np.stack((bitext.side_hashes(rows)[:, 1], rows.astype(np.uint64)), 1)
                numbers = (records[:, 0] >> np.uint64(58)).astype(np.int64)
                for number in np.unique(numbers):
                    files[number].write(records[numbers == number].tobytes())
        with raw.open("wb") as file:
            for path in buckets:
                file.write(_rings(bitext, np.fromfile(path, dtype=np.uint64).reshape(-1, 2)).tobytes())
        pairs = np.memmap(raw, dtype=np.int64, mode="r").reshape(-1, 2) if raw.stat().st_size else np.empty((0, 2), int)
        with part.open("wb") as file:
            np.save(file, pairs)
    finally:
        for path in [*buckets, raw]:
            path.unlink(missing_ok=True)


def _rings(bitext: Bitext, records: npt.NDArray[np.uint64]) -> Rows:
    """Pair each row with the next of the same target hash, and the last with the first."""
    hashes, rows = records.T
    order = np.lexsort((shuffle_key(rows), hashes))
    hashes, rows = hashes[order], rows[order].astype(np.int64)
    starts = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]) != 0)
    sizes = np.diff(starts, append=len(hashes))
    following = np.arange(1, len(hashes) + 1)
    ends = starts + sizes - 1
    following[ends] = starts
    wanted = np.ones(len(hashes), dtype=np.bool_)
    wanted[ends[sizes <= 2]] = False  # one sentence gives no pair, two give one
    pairs = np.stack((rows, rows[following]), 1)[wanted]
    languages = [_languages(bitext, side) for side in pairs.T]
    sources = [bitext.side_hashes(side)[:, 0] for side in pairs.T]
    chosen = pairs[(languages[0] != languages[1]) & (sources[0] != sources[1])]
    return np.ascontiguousarray(chosen[np.argsort(shuffle_key(chosen[:, 0].astype(np.uint64)), kind="stable")])


def _languages(bitext: Bitext, rows: Rows) -> Rows:
    """Return the index of each row's language."""
    starts = np.array([one.start for one in bitext.ranges.values()])
    return np.searchsorted(starts, rows, side="right") - 1


def _log(bitext: Bitext, pairs: Rows) -> None:
    counts = np.zeros(len(bitext.languages), dtype=np.int64)
    for start in range(0, len(pairs), _ROWS_AT_ONCE):
        some = _languages(bitext, pairs[start : start + _ROWS_AT_ONCE].ravel())
        counts += np.bincount(some, minlength=len(counts))
    each = ", ".join(f"{language} {count:,}" for language, count in zip(bitext.languages, counts, strict=True))
    logger.info("%d pairs of two source languages were made; each counts for both: %s", len(pairs), each)
