"""Load bitext for training: pairs of many languages, cleaned once, memory-mapped, split without leaks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, overload

import numpy as np

from hf_xsent.data.arrow import read_batches
from hf_xsent.data.cache import CachedPairs, side_hashes
from hf_xsent.data.cleaning.excluded import exclude_as_files
from hf_xsent.data.cleaning.repeats import Hashes, Rows, hash_texts, shuffle_key
from hf_xsent.data.cleaning.report import CleaningReport
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.data.readers.columns import Columns
from hf_xsent.data.readers.fields import LEDGER
from hf_xsent.data.readers.formats import OnError, read_pairs
from hf_xsent.data.readers.in_memory import target_language_of
from hf_xsent.data.readers.resolving import resolve_sources
from hf_xsent.data.readers.sources import BitextSource, cache_folder
from hf_xsent.errors import DataError, shortened
from hf_xsent.files import digest, file_digest
from hf_xsent.logs import Progress
from hf_xsent.settings.convert import converting
from hf_xsent.settings.read import read_settings

__all__ = ["Bitext", "BitextSource", "load_bitext", "read_pairs", "resolve_sources"]

logger = logging.getLogger(__name__)

Pair = dict[str, Any]  # texts; lists of texts for negatives

NOT_STATED = "not stated"  # the name of pairs without origin and licence in the ledger
_ROWS_AT_ONCE = 1 << 20


@converting
def load_bitext(
    data: Any,
    *,
    target_language: str = "en",
    columns: Columns | Mapping[str, Columns] | None = None,
    cleaning: CleaningRules | Mapping[str, Any] | None = CleaningRules(),  # noqa: B008 - frozen
    on_error: OnError = "raise",
    cache_dir: str | PathLike[str] | None = None,
    max_pairs: int | None = None,
    max_pairs_choice: str = "first",
    split: str = "train",
) -> Bitext:
    """Read and clean bitext, or memory-map it from the cache if files and rules have not changed.

    data: a path, glob or Hub id, a mapping from language to such paths, or a list of paths, ``de=path`` strings or
        `BitextSource`. ``{language}`` in a path is the language of the mapping or the string; without one, the path
        matches the files of all language codes. The language of other paths is the code that ends their name, such as
        ``de.tsv``, ``pairs.de-en.tsv`` or ``owner/name:en-de``, else that of each pair in the column ``language`` or
        ``lang``, else the name of a column, such as ``de`` beside ``en``, else ``und`` (undetermined), which only one
        may have. With a stated language, pairs of others in this column are not read.
        Instead of a path, pass pairs in memory: a Dataset, a DatasetDict (its ``split``), a data frame of pandas or
        polars, any iterable of (source, target) or of records; or a `Bitext`, which keeps its target language.
    columns: source and target column, as names or as numbers from 0; by default they are found by name, or are the
        only or first two. A mapping from language or file name sets the columns of each file.
    cleaning: rules that remove pairs, or a mapping that changes the default ones, such as ``{"max_characters": 200}``;
        None removes none.
    on_error: ``raise`` the error of the first bad row, or ``skip`` and count bad rows.
    max_pairs: retain at most N cleaned pairs of each language.
    max_pairs_choice: retain the ``first`` pairs, or a ``random`` sample that is the same in every run.
    split: split of data sets.

    ```python
    from hf_xsent import load_bitext

    bitext = load_bitext({"de": "pairs.tsv", "sw": [("Habari ya asubuhi.", "Good morning.")]})
    print(bitext, bitext[0], bitext[:2].to_dataset())
    ```
    """
    if isinstance(cleaning, Mapping):
        cleaning = read_settings(CleaningRules, exclude_as_files(cleaning, cache_dir), where="cleaning")
    if not isinstance(cleaning, CleaningRules | None):
        raise DataError(f"cleaning takes rules, such as {{'max_characters': 200}}, or None, not {shortened(cleaning)}")
    target_language = target_language_of(data, target_language)
    for name, value, choices in (
        ("max_pairs_choice", max_pairs_choice, ("first", "random")),
        ("on_error", on_error, ("raise", "skip")),
    ):
        if value not in choices:
            raise DataError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")
    if max_pairs is not None and max_pairs < 1:
        raise DataError(f"max_pairs must be at least 1, not {max_pairs}")
    root = cache_folder(cache_dir)
    sources = resolve_sources(data, target_language=target_language, columns=columns, split=split, cache_dir=root)
    for source in sources.get("und", []):
        logger.info("%s: their language is not stated, so its code is und", source.name)
    files, report = {}, CleaningReport()
    for language, of_language in sources.items():
        cached = CachedPairs(language, tuple(of_language), cleaning, on_error, max_pairs, max_pairs_choice)
        files[language], report.languages[language] = cached.load(root)
    logger.info("bitext of %d language%s\n%s", len(files), "s" * (len(files) > 1), report.table())
    return Bitext(files, report, target_language=target_language)


class Bitext:
    """Pairs of all languages as one sequence of ``{"source", "target", "language"}``, read from memory-mapped files.

    A pair with word links also has ``links``, such as ``0-0 1-2``; a pair with mined negatives has the lists
    ``source_negatives`` and ``target_negatives``. ``rows`` are the sorted numbers of the rows of the files that the
    bitext has, by default all.
    """

    def __init__(
        self, files: Mapping[str, Path], report: CleaningReport, rows: Rows | None = None, target_language: str = "en"
    ) -> None:
        self.files = dict(files)
        self.report = report
        self._rows, self.target_language = rows, target_language
        self._batches: list[tuple[dict[str, Any], str]] = []  # columns and language
        starts, bounds = [0], [0]
        for language, path in self.files.items():
            for batch in read_batches(path):
                self._batches.append((dict(zip(batch.schema.names, batch.columns, strict=True)), language))
                starts.append(starts[-1] + len(batch))
            bounds.append(starts[-1])
        self._starts = np.asarray(starts[:-1])  # of batches
        positions = bounds if rows is None else np.searchsorted(rows, bounds).tolist()
        ranges = zip(self.files, map(range, positions[:-1], positions[1:]), strict=True)
        self.ranges = {language: own for language, own in ranges if own or rows is None}  # those that a part has

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the paths, not the texts."""
        return type(self), (self.files, self.report, self._rows, self.target_language)

    @property
    def languages(self) -> dict[str, int]:
        """Return the number of pairs of each language, in the order given."""
        return {language: len(rows) for language, rows in self.ranges.items()}

    @property
    def identity(self) -> str:
        """Return a hash of all pairs, in their order."""
        rows = None if self._rows is None else digest(self._rows.tobytes())
        return digest([[(language, file_digest(path)) for language, path in self.files.items()], rows])

    @property
    def fields(self) -> set[str]:
        """Return the names of what any pair of the files has, such as links."""
        return {
            name for columns, _ in self._batches for name, values in columns.items() if values.null_count < len(values)
        }

    def count_pairs_with(self, *fields: str) -> int:
        """Return the number of pairs that have any of these fields, such as links."""
        count = 0
        for columns, _ in self._read_columns():
            valid = [columns[name].is_valid().to_numpy(zero_copy_only=False) for name in fields if name in columns]
            count += int(np.count_nonzero(np.any(valid, axis=0))) if valid else 0
        return count

    def count_pairs_among(self, texts: Iterable[str]) -> int:
        """Return the number of pairs whose two sentences are among these texts, ignoring case and whitespace."""
        hashes = np.fromiter(map(hash_texts, texts), np.uint64)
        inside = [np.isin(side_hashes(path), hashes).all(1) for path in self.files.values()]
        return int(np.count_nonzero(np.concatenate(inside)[slice(None) if self._rows is None else self._rows]))

    @property
    def ledger(self) -> dict[str, int]:
        """Return the number of pairs by origin and licence, as their records state them; empty if none states any."""
        counts: Counter[tuple[str | None, ...]] = Counter()
        for columns, _ in self._read_columns():
            nothing = [None] * len(columns["source"])
            counts.update(
                zip(*(columns[name].to_pylist() if name in columns else nothing for name in LEDGER), strict=True)
            )
        named = {_ledger_entry(*stated): count for stated, count in counts.most_common()}
        return {} if {*named} == {NOT_STATED} else named

    def __len__(self) -> int:
        return sum(self.languages.values())

    def __iter__(self) -> Iterator[Pair]:
        for columns, language in self._read_columns():
            for values in zip(*(column.to_pylist() for column in columns.values()), strict=True):
                pair = {name: value for name, value in zip(columns, values, strict=True) if value is not None}
                yield pair | {"language": language}

    def _read_columns(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield the columns of all rows, one batch of the files after the other, each with its language."""
        rows = self._rows
        numbers = range(len(self._batches)) if rows is None else np.unique(self._batches_of(rows)).tolist() or [0]
        for number in numbers:
            columns, language = self._batches[number]
            if rows is not None:
                first = self._starts[number]
                inside = rows[slice(*np.searchsorted(rows, (first, first + len(columns["source"]))))] - first
                columns = {name: values.take(inside) for name, values in columns.items()}
            yield columns, language

    def __repr__(self) -> str:
        counts = ", ".join(f"{language} {count:,}" for language, count in self.languages.items())
        return f"Bitext({len(self):,} pairs: {counts})"

    @overload
    def __getitem__(self, index: int) -> Pair: ...
    @overload
    def __getitem__(self, index: slice) -> Bitext: ...
    def __getitem__(self, index: Any) -> Pair | Bitext:
        """Return one pair, or a bitext of the pairs of a slice, without reading them."""
        if isinstance(index, str):
            raise DataError(f"a bitext takes row numbers and slices: pairs({index!r}) returns the pairs of a language")
        if np.ndim(index):
            raise DataError("a bitext takes one row number or a slice; for several rows, give a list comprehension")
        if not isinstance(index, slice):
            return self.__getitems__([index])[0]
        rows = np.arange(*index.indices(len(self)), dtype=np.int64)
        if index.step is not None and index.step < 0:
            raise DataError("a bitext cannot be reversed: slice with a positive step")
        return self._part(self._file_rows(rows), "slice")

    def to_dataset(self) -> Any:
        """Return a ``datasets.Dataset``: source, target, language and, if there are any, links and negatives.

        >>> load_bitext({"de": [("Ein Hund schläft.", "A dog sleeps.")]}).to_dataset()[0]
        {'source': 'Ein Hund schläft.', 'target': 'A dog sleeps.', 'language': 'de'}
        """
        import pyarrow as pa
        from datasets import Dataset
        from datasets.table import InMemoryTable

        parts = []
        for columns, language in self._read_columns():
            names = pa.array([language] * len(columns["source"]), pa.string())
            parts.append(pa.table({**columns, "language": names}))
        return Dataset(InMemoryTable(pa.concat_tables(parts, promote_options="default")))

    def __getitems__(self, indices: Sequence[int]) -> list[Pair]:
        """Return many pairs; torch's DataLoader calls this for a batch."""
        rows = self._file_rows(checked_rows(indices, len(self)))
        numbers = self._batches_of(rows)
        pairs = []
        for number, row in zip(numbers.tolist(), (rows - self._starts[numbers]).tolist(), strict=True):
            columns, language = self._batches[number]
            pair = {name: text for name, values in columns.items() if (text := values[row].as_py()) is not None}
            pair["language"] = language
            pairs.append(pair)
        return pairs

    def _batches_of(self, rows: Rows) -> Rows:
        """Return the number of the batch that has each row of the files."""
        return np.searchsorted(self._starts, rows, side="right") - 1

    def _part(self, rows: Rows, rule: str) -> Bitext:
        """Return a bitext of these rows of the files, in whose report ``rule`` removed all others."""
        part = Bitext(self.files, self.report, rows, self.target_language)
        part.report = self.report.of_part(part.languages, rule)
        return part

    def _file_rows(self, rows: Rows) -> Rows:
        """Map rows of this bitext to rows of the files."""
        return rows if self._rows is None else self._rows[rows]

    def pairs(self, language: str) -> tuple[list[str], list[str]]:
        """Return all sources and targets of one language as lists in memory."""
        if language not in self.ranges:
            raise DataError(f"the bitext has no language {language!r}, but {', '.join(self.ranges)}")
        rows = self.ranges[language]
        pairs = list(self[rows.start : rows.stop])
        return [pair["source"] for pair in pairs], [pair["target"] for pair in pairs]

    def sentences(self, side: str) -> Iterator[str]:
        """Yield every ``source`` or ``target`` sentence of the files, held-out pairs included."""
        for columns, _ in Progress(self._batches, desc=f"reading the {side} side", unit=" batches", delay=2):
            yield from columns[side].to_pylist()

    @converting
    def train_dev_split(self, dev_pairs: int, seed: int = 0, share: float | None = None) -> tuple[Bitext, Bitext]:
        """Hold out ``dev_pairs`` pairs of each language; no training pair of any language shares a sentence with them.

        With ``share``, at most this fraction of a language's pairs, but at least one, is held out.
        Pairs are chosen by the hash of their target, so that languages with common targets hold out the same ones, and
        few training pairs are dropped. Comparisons ignore case and whitespace.
        """
        if self._rows is not None:
            raise DataError("the bitext is already a part of another; split the complete bitext")
        if dev_pairs < 1:
            raise DataError(f"dev_pairs must be at least 1, not {dev_pairs}")
        held_out, hashes = [], [side_hashes(path) for path in self.files.values()]
        for (language, rows), of_language in zip(self.ranges.items(), hashes, strict=True):
            size = dev_pairs if share is None else max(1, min(dev_pairs, int(share * len(rows))))
            candidates = _rows_of_lowest_hashes(of_language[:, 1], size + 1, seed)
            if len(candidates) <= size:
                raise DataError(f"{language} has {len(candidates)} different targets after cleaning, too few to hold "
                                f"out {size}: see what was removed, lower --dev_pairs, or give a dev set")  # fmt: skip
            held_out.append(np.sort(candidates[:size]))
        excluded = np.unique(np.concatenate([of[rows] for of, rows in zip(hashes, held_out, strict=True)]))
        starts = [rows.start for rows in self.ranges.values()]
        dev_rows = np.concatenate([rows + start for rows, start in zip(held_out, starts, strict=True)])
        rest = [
            start + block[~np.isin(of_language[block], excluded).any(1)]
            for start, of_language in zip(starts, hashes, strict=True)
            for block in _blocks(len(of_language))
        ]
        train = self._part(np.concatenate(rest), "held_out")
        empty = [language for language in self.languages if language not in train.languages]
        if empty:
            raise DataError(f"{empty[0]} has no training pairs besides the held-out ones: lower --dev_pairs")
        return train, self._part(dev_rows, "training")


def _rows_of_lowest_hashes(hashes: Hashes, count: int, seed: int) -> Rows:
    """Return at most ``count`` rows of different hashes, those with the lowest hashes of hash and seed."""
    keys, lowest = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    of_seed = shuffle_key(np.array([seed % 2**64], dtype=np.uint64))
    for block in _blocks(len(hashes)):
        of_block = shuffle_key(hashes[block] ^ of_seed)
        keys, first = np.unique(np.concatenate((keys, of_block)), return_index=True)
        keys, lowest = keys[:count], np.concatenate((lowest, block))[first[:count]]
    return lowest


def _ledger_entry(origin: str | None, licence: str | None) -> str:
    """Name an entry of the ledger; different origins and licences have different names."""
    if origin is None and licence is None:
        return NOT_STATED
    return f"{origin or 'origin not stated'}, {licence or 'licence not stated'}"


def checked_rows(indices: Sequence[int], size: int) -> Rows:
    """Return row numbers, counted from the end if negative; raise an IndexError if one is out of range."""
    rows = np.asarray(indices)
    if rows.size and rows.dtype.kind not in "iu":
        raise DataError(f"rows are whole numbers, not {shortened(indices)}")
    rows = rows.astype(np.int64)
    rows = np.where(rows < 0, rows + size, rows)
    if rows.size and (rows.min() < 0 or rows.max() >= size):
        raise IndexError(f"row out of range: there are {size}")
    return rows


def _blocks(count: int) -> Iterator[Rows]:
    """Yield row numbers in blocks, so that memory is bounded."""
    for start in range(0, count, _ROWS_AT_ONCE):
        yield np.arange(start, min(start + _ROWS_AT_ONCE, count))
