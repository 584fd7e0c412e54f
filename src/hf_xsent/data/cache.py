"""Cache one language's cleaned pairs in an Arrow file, which is memory-mapped."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_xsent.data.arrow import read_batches, read_counts, write_distinct
from hf_xsent.data.cleaning.excluded import without_excluded
from hf_xsent.data.cleaning.repeats import hash_texts
from hf_xsent.data.cleaning.report import CleaningCounts
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.data.readers.fields import NEGATIVES, LinkedPair, arrow_columns
from hf_xsent.data.readers.formats import OnError, read_linked_pairs
from hf_xsent.data.readers.hub import hub_commit
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.errors import DataError
from hf_xsent.files import digest, file_stamp
from hf_xsent.logs import Progress
from hf_xsent.runs.store import Store

logger = logging.getLogger(__name__)

FORMAT_VERSION = 21  # increase it when cached pairs, their counts or warnings change
PAIRS_FILE = "pairs.arrow"


@dataclass(frozen=True)
class CachedPairs:
    """One language's pairs, by everything that determines them."""

    language: str
    sources: tuple[BitextSource, ...]
    cleaning: CleaningRules | None
    on_error: OnError
    max_pairs: int | None
    max_pairs_choice: str = "first"

    def load(self, cache_dir: Path) -> tuple[Path, CleaningCounts]:
        """Return the file of the pairs and the counts of cleaning; read and clean the pairs if they are not cached."""
        name = f"{re.sub(r'[^A-Za-z0-9-]', '_', self.language)}-{self._fingerprint()}"
        counts = Store(cache_dir).get_and_warn(name, self._write, lambda folder: read_counts(folder / PAIRS_FILE))
        return cache_dir / name / PAIRS_FILE, counts

    def _fingerprint(self) -> str:
        """Hash the settings, the sizes and times of local files, and the commits of data sets on the Hub."""
        files = [path for source in self.sources for path in source.files]
        files += [] if self.cleaning is None else self.cleaning.files()
        commits = [hub_commit(source.path) for source in self.sources if not source.files]
        return digest([FORMAT_VERSION, asdict(self), [*map(file_stamp, files), *commits]])

    def _write(self, folder: Path) -> None:
        """Write the pairs that pass the rules, without repetitions, and at most ``max_pairs``."""
        folder.mkdir(parents=True)
        counts = CleaningCounts()
        drop_repeats = self.cleaning is not None and self.cleaning.repeated
        key = (lambda pair: hash_texts(*pair[:2])) if drop_repeats else None
        pairs, path, more = self._passing_pairs(counts), folder / PAIRS_FILE, ("links", *NEGATIVES)
        write_distinct(path, arrow_columns(), pairs, counts, key, self.max_pairs, self.max_pairs_choice, preferred=more)
        counts.require_pairs(" and ".join(source.name for source in self.sources))

    def _passing_pairs(self, counts: CleaningCounts) -> Iterator[LinkedPair]:
        """Yield the pairs that pass the rules; count pairs read, removed and bad."""
        rows = ((source.target_language, row) for source in self.sources for row in read_linked_pairs(source))
        checkers = {
            source.target_language: self.cleaning.pair_checker(self.language, source.target_language)
            for source in self.sources
            if self.cleaning is not None
        }
        excluded = frozenset() if self.cleaning is None else self.cleaning.excluded_sentences()
        for target, pair in Progress(rows, desc=f"reading {self.language}", unit=" pairs", unit_scale=True, delay=2):
            counts.read += 1
            if isinstance(pair, DataError):
                if self.on_error == "raise":
                    raise pair
                counts.bad += 1
                logger.debug("%s", pair)
            elif checkers and (rule := checkers[target](*pair[:2])):
                counts.remove(rule)
            elif excluded and any(pair[3:5]):
                yield (*pair[:3], *(without_excluded(texts, excluded) for texts in pair[3:5]), *pair[5:])
            else:
                yield pair
        if counts.bad:
            logger.warning("%s: %d bad rows were skipped", self.language, counts.bad)


def side_hashes(pairs: Path) -> npt.NDArray[np.uint64]:
    """Return the hashes (rows × 2) of all sources and targets, computed once and memory-mapped."""
    return Store(pairs.parent).get(
        "sides.hashes",
        lambda part: _write_side_hashes(pairs, part),
        lambda path: np.memmap(path, dtype=np.uint64, mode="r", shape=(sum(map(len, read_batches(pairs))), 2)),
    )


def _write_side_hashes(pairs: Path, path: Path) -> None:
    with path.open("wb") as file:
        for batch in Progress(read_batches(pairs), desc="hashing sentences", unit=" batches", delay=2):
            sides: list[Any] = [map(hash_texts, batch.column(side).to_pylist()) for side in range(2)]
            np.array(list(zip(*sides, strict=True)), dtype=np.uint64).tofile(file)
