"""Cache one language's cleaned pairs in an Arrow file, which is memory-mapped."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from hf_xsent.data.cleaning.repeats import RepeatFinder, hash_texts
from hf_xsent.data.cleaning.rules import CleaningCounts, CleaningRules
from hf_xsent.data.readers.formats import LinkedPair, OnError, read_linked_pairs
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.data.sampling.choosing import RandomChoice
from hf_xsent.errors import DataError
from hf_xsent.files import digest, file_digest, file_stamp, move_into_place, reserve_space, write_json, writing
from hf_xsent.locks import lock

logger = logging.getLogger(__name__)

FORMAT_VERSION = 8  # increase it when cached pairs or their counts change
BATCH_ROWS = 10_000
_LARGEST_HASHED = 1 << 28  # bytes; hashing larger files would delay each start by seconds


@dataclass(frozen=True)
class CacheEntry:
    """The key of one language's cached pairs: everything that determines them."""

    language: str
    sources: tuple[BitextSource, ...]
    cleaning: CleaningRules | None
    on_error: OnError
    max_pairs: int | None
    max_pairs_choice: str = "first"

    def folder(self, cache_dir: Path) -> Path:
        """Return the folder of the pairs; its name hashes this entry and the sizes and times of its local files."""
        files = [path for source in self.sources for path in source_files(source)]
        files += [Path(source.links) for source in self.sources if source.links is not None]
        files += [] if self.cleaning is None else self.cleaning.files()
        fingerprint = digest([FORMAT_VERSION, asdict(self), [file_stamp(path) for path in files]])
        return cache_dir / f"{re.sub(r'[^A-Za-z0-9-]', '_', self.language)}-{fingerprint}"


def default_cache_dir() -> Path:
    """Return the default cache folder, which is inside ``HF_HOME``."""
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "hf_xsent" / "bitext"


def read_counts(folder: Path) -> CleaningCounts | None:
    """Read the cleaning counts of a complete cache folder; return None if there is none, or if it is damaged."""
    try:
        info = json.loads((folder / "info.json").read_bytes())
        if info["digest"] != digest_with_file(info["counts"], folder / "pairs.arrow"):
            return None
        counts = CleaningCounts(**info["counts"])
        return counts if sum(map(len, read_batches(folder / "pairs.arrow"))) == counts.retained else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def digest_with_file(content: Any, path: Path) -> str:
    """Hash content together with a file's size, and with its bytes unless it is large."""
    size = path.stat().st_size
    return digest([content, size, file_digest(path) if size <= _LARGEST_HASHED else None])


def build(entry: CacheEntry, folder: Path) -> CleaningCounts:
    """Read, clean and write one language's pairs; other processes that need the same folder wait."""
    with lock(f"{folder}.lock"):
        if (known := read_counts(folder)) is not None:
            return known
        if folder.exists():
            logger.warning("the cache %s is damaged: its pairs are read again from their files", folder)
        with writing(folder, folder=True) as part:
            counts = _write_pairs(entry, part)
            counts.require_pairs(" and ".join(source.path for source in entry.sources))
            checked = {"counts": asdict(counts), "digest": digest_with_file(asdict(counts), part / "pairs.arrow")}
            write_json(part / "info.json", {**checked, "entry": asdict(entry)})
    return counts


def _write_pairs(entry: CacheEntry, part: Path) -> CleaningCounts:
    """Write the pairs that pass the rules; drop repeated pairs and those beyond ``max_pairs``."""
    counts = CleaningCounts()
    pairs = _passing_pairs(entry, counts)
    drop_repeats = entry.cleaning is not None and entry.cleaning.repeated
    choice, limit = None, entry.max_pairs
    if limit is not None and entry.max_pairs_choice == "random":
        choice, limit = RandomChoice(limit), None
        pairs = _accepted(pairs, choice, drop_repeats, counts)
    candidates = part / "candidates.arrow"
    with closing(RepeatFinder(part)) if drop_repeats else nullcontext() as repeats:
        with PairWriter(candidates, repeats) as writer:
            first = _write_until(limit, pairs, writer, repeats)
        distinct = writer.rows if first is None else int(np.count_nonzero(first))
        if choice is not None:
            first = choice.chosen() if first is None else first & choice.chosen()
            limit = int(np.count_nonzero(first))
        counts.retained = distinct if limit is None else min(distinct, limit)
        counts.remove("repeated", writer.rows - distinct)
        counts.remove("max_pairs", distinct - counts.retained)
        if counts.retained == writer.rows:
            move_into_place(candidates, part / "pairs.arrow")
        else:
            _copy_first_occurrences(candidates, part / "pairs.arrow", first, counts.retained)
    candidates.unlink(missing_ok=True)
    return counts


def _accepted(
    pairs: Iterator[LinkedPair], choice: RandomChoice, by_text: bool, counts: CleaningCounts
) -> Iterator[LinkedPair]:
    """Yield the pairs that the choice accepts; with ``by_text`` it counts equal pairs as one."""
    for row, item in enumerate(pairs):
        if choice.accept(hash_texts("max_pairs", *(item[:2] if by_text else (str(row),)))):
            yield item
        else:
            counts.remove("max_pairs")


def _passing_pairs(entry: CacheEntry, counts: CleaningCounts) -> Iterator[LinkedPair]:
    """Yield the pairs that pass the rules; count pairs read, removed and bad."""
    from hf_xsent.logs import Progress

    checkers = {
        target: None if entry.cleaning is None else entry.cleaning.pair_checker(entry.language, target)
        for target in {source.target_language for source in entry.sources}
    }
    items = ((checkers[source.target_language], item) for source in entry.sources for item in read_linked_pairs(source))
    bar = Progress(items, desc=f"reading {entry.language}", unit=" pairs", unit_scale=True, delay=2)
    for first_broken_rule, item in bar:
        counts.read += 1
        if isinstance(item, DataError):
            if entry.on_error == "raise":
                raise item
            counts.bad += 1
            logger.debug("%s", item)
            continue
        rule = first_broken_rule(*item[:2]) if first_broken_rule else None
        if rule:
            counts.remove(rule)
        else:
            yield item
    if counts.bad:
        logger.warning("%s: %d bad rows were skipped", entry.language, counts.bad)


def _write_until(
    max_pairs: int | None, pairs: Iterator[LinkedPair], writer: PairWriter, repeats: RepeatFinder | None
) -> npt.NDArray[np.bool_] | None:
    """Write pairs until ``max_pairs`` are distinct; return a mask of first occurrences, None without ``repeats``."""
    distinct = 0
    while True:
        wanted = None if max_pairs is None else max(max_pairs - distinct, writer.rows)
        exhausted = writer.write(pairs, wanted)
        first = repeats.first_rows() if repeats else None
        distinct = writer.rows if first is None else int(np.count_nonzero(first))
        if exhausted or (max_pairs is not None and distinct >= max_pairs):
            return first


class PairWriter:
    """Write pairs to an Arrow file in batches, and their hashes to a `RepeatFinder`."""

    def __init__(self, path: Path, repeats: RepeatFinder | None = None) -> None:
        import pyarrow as pa

        self.rows = 0
        self._repeats = repeats
        self._schema = pa.schema([(name, pa.string()) for name in ("source", "target", "links", "negatives")])
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, self._schema)

    def __enter__(self) -> PairWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()
        self._file.close()

    def write(self, pairs: Iterator[LinkedPair], limit: int | None = None) -> bool:
        """Write at most ``limit`` pairs; return whether the iterator is exhausted."""
        import pyarrow as pa

        stop = None if limit is None else self.rows + limit
        while stop is None or self.rows < stop:
            batch = list(islice(pairs, BATCH_ROWS if stop is None else min(BATCH_ROWS, stop - self.rows)))
            if not batch:
                return True
            columns = [pa.array(column, pa.string()) for column in zip(*batch, strict=True)]
            self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
            if self._repeats is not None:
                self._repeats.add([hash_texts(*item[:2]) for item in batch])
            self.rows += len(batch)
        return False


def read_batches(path: Path) -> list[Any]:
    """Memory-map the record batches of an Arrow file."""
    import pyarrow as pa

    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    return [reader.get_batch(number) for number in range(reader.num_record_batches)]


def _copy_first_occurrences(path: Path, target: Path, first: npt.NDArray[np.bool_] | None, limit: int) -> None:
    """Copy at most ``limit`` pairs whose row is True in ``first``."""

    def pairs() -> Iterator[LinkedPair]:
        row = 0
        for batch in read_batches(path):
            for item in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if first is None or first[row]:
                    yield item
                row += 1

    with PairWriter(target) as writer:
        writer.write(pairs(), limit)


def side_hashes(pairs: Path) -> npt.NDArray[np.uint64]:
    """Return the hashes (rows × 2) of all sources and targets, computed once and memory-mapped from ``sides.npy``."""
    from hf_xsent.logs import Progress

    path = pairs.with_name("sides.npy")
    batches = read_batches(pairs)
    shape = (sum(map(len, batches)), 2)
    with lock(f"{path}.lock"):
        if (known := load_array(path, shape[0], "uint64")) is None:
            if path.is_file():
                logger.warning("%s is damaged: it is computed again", path)
            with writing(path) as part:
                hashes, row = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint64, shape=shape), 0
                reserve_space(part)
                for batch in Progress(batches, desc="hashing sentences", unit=" batches", delay=2):
                    for side in range(2):
                        texts = batch.column(side).to_pylist()
                        hashes[row : row + len(batch), side] = [hash_texts(text) for text in texts]
                    row += len(batch)
                hashes.flush()
            known = cast("npt.NDArray[np.uint64]", np.load(path, mmap_mode="r"))
    return known


def load_array(path: Path, rows: int, dtype: str) -> npt.NDArray[Any] | None:
    """Memory-map a matrix with this number of rows; return None if there is none, or if it is damaged."""
    try:
        found: npt.NDArray[Any] = np.load(path, mmap_mode="r")
    except Exception:  # numpy raises errors of many types for damaged headers
        return None
    return found if found.ndim == 2 and len(found) == rows and found.dtype == dtype else None
