"""Pair sentences of two languages that share a translation, such as German and French with the same English side."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_xsent.data.bitext import Bitext, Pair, checked_rows
from hf_xsent.data.cleaning.repeats import Hashes, Rows, rows_by_hash, shuffle_key
from hf_xsent.errors import DataError
from hf_xsent.files import digest
from hf_xsent.runs.store import Store

logger = logging.getLogger(__name__)

PIVOT = "pivot"  # name of these pairs among the sampler's languages
FORMAT_VERSION = 2


class PivotBitext:
    """A bitext followed by its pivot pairs, which are sampled as one more language.

    A pivot pair has two sources of the bitext that share a target; ``target_language`` is the language of the second.
    It is stored as two row numbers of the bitext (16 bytes, memory-mapped).
    """

    def __init__(self, bitext: Bitext, path: Path) -> None:
        self.bitext, self.path = bitext, path
        self._pairs: Rows = np.memmap(path, dtype=np.int64, mode="r").reshape(-1, 2)
        self.report, self.languages = bitext.report, bitext.languages
        self.linked_pairs, self.pairs_with_negatives = bitext.linked_pairs, bitext.pairs_with_negatives
        self.ranges = bitext.ranges | {PIVOT: range(len(bitext), len(self))}
        self.identity = digest([PIVOT, bitext.identity])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, not the pairs."""
        return type(self), (self.bitext, self.path)

    @property
    def ledger(self) -> dict[str, int]:
        """Return the ledger of the bitext."""
        return self.bitext.ledger

    def __len__(self) -> int:
        return len(self.bitext) + len(self._pairs)

    def __getitem__(self, index: int) -> Pair:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Pair]:
        """Return many pairs; torch's DataLoader calls this for a batch."""
        rows = checked_rows(indices, len(self))
        is_pivot = rows >= len(self.bitext)
        ends = self._pairs[rows[is_pivot] - len(self.bitext)]
        plain = iter(self.bitext.__getitems__(rows[~is_pivot].tolist()))
        sides = zip(*(self.bitext.__getitems__(ends[:, side].tolist()) for side in range(2)), strict=True)
        return [_pivot_pair(*next(sides)) if pivot else next(plain) for pivot in is_pivot.tolist()]

    def sentences(self, side: str) -> Iterator[str]:
        """Yield every sentence that may be on this side, held-out pairs included."""
        yield from self.bitext.sentences("source")
        if side == "target":
            yield from self.bitext.sentences("target")


def _pivot_pair(first: Pair, second: Pair) -> Pair:
    languages = {"language": first["language"], "target_language": second["language"]}
    return {"source": first["source"], "target": second["source"], **languages}


def add_pivot_pairs(bitext: Bitext, folder: Path) -> PivotBitext:
    """Pair sentences of two languages that share a target, store the pairs, and add them to the bitext.

    The N sentences that share a target are shuffled, and each is paired with the next, the last with the first. So
    there are never more pivot pairs than pairs in the bitext. Equal sentences, and sentences of one language, are not
    paired.
    """
    if len(bitext.languages) < 2:
        raise DataError(
            f"pivot needs at least two languages with a common target, but there is only {min(bitext.languages)}"
        )
    name = f"{PIVOT}-{digest([FORMAT_VERSION, bitext.identity])}.pairs"
    return Store(folder).get(name, lambda part: _write_pairs(bitext, part), lambda path: PivotBitext(bitext, path))


def _write_pairs(bitext: Bitext, path: Path) -> None:
    counts = np.zeros(len(bitext.languages), dtype=np.int64)
    written = 0
    with path.open("wb") as file:
        for rows, hashes in rows_by_hash(len(bitext), lambda rows: bitext.side_hashes(rows)[:, 1]):
            pairs = _rings(bitext, rows, hashes)
            counts += np.bincount(_languages(bitext, pairs.ravel()), minlength=len(counts))
            written += len(pairs)
            pairs.tofile(file)
    if not written:
        raise DataError("pivot: no sentences of two languages share a target; remove the setting pivot")
    each = ", ".join(f"{language} {count:,}" for language, count in zip(bitext.languages, counts, strict=True))
    logger.info("%d pairs of two source languages were made; each counts for both: %s", written, each)


def _rings(bitext: Bitext, rows: Rows, hashes: Hashes) -> Rows:
    """Pair each row with the next of the same target hash, and the last with the first."""
    order = np.lexsort((shuffle_key(rows), hashes))
    hashes, rows = hashes[order], rows[order]
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
    pairs = pairs[(languages[0] != languages[1]) & (sources[0] != sources[1])]
    return np.ascontiguousarray(pairs[np.argsort(shuffle_key(pairs[:, 0]), kind="stable")])


def _languages(bitext: Bitext, rows: Rows) -> Rows:
    """Return the index of each row's language."""
    starts = np.array([language_rows.start for language_rows in bitext.ranges.values()])
    return np.searchsorted(starts, rows, side="right") - 1
