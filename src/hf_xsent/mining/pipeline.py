"""Mine translations from two text files: read, encode, search, write; an interrupted run resumes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from hf_xsent.data.sentences import Sentences, load_sentences
from hf_xsent.errors import DataError
from hf_xsent.files import check_free_space, check_writable
from hf_xsent.mining.calibration import Gold, best_threshold, f1_at_threshold, read_gold
from hf_xsent.mining.index import import_faiss, index_memory, nearest_by_index
from hf_xsent.mining.margin import MinedPairs, check_choices, mine_bitext, pairs_of_neighbours
from hf_xsent.mining.neighbours import search_precision
from hf_xsent.mining.output import one_line, write_histogram, write_table
from hf_xsent.mining.search import SearchOptions, search, search_shards
from hf_xsent.mining.shards import ProcessRunner, Runner
from hf_xsent.mining.vectors import VectorStore
from hf_xsent.models.encode_interface import SupportsEncode

logger = logging.getLogger(__name__)

COLUMNS = ("score", "cosine", "target_rank", "source_rank", "source_line", "target_line", "source", "target")
_SAMPLE = 256
_NEIGHBOUR_BYTES = 36  # per neighbour: 12 to store it, 24 to merge and compare
_PAIR_BYTES = 150  # per sentence while pairs are selected


@dataclass(frozen=True)
class MiningSettings:
    """Settings of mining, and of which pairs to write."""

    k: int = 4
    margin: str = "ratio"
    candidates: str = "max"
    threshold: float | None = None
    top: int | None = None
    memory_mib: int = 512
    vector_dtype: str = "float32"  # of the stored embeddings
    index: str | None = None
    probes: int = 32  # of an IVF index
    calibrate: str | None = None  # file of gold pairs, to choose the threshold
    plot: str | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Raise a `DataError` for wrong settings."""
        check_choices(self.margin, self.candidates)
        if self.k < 1:
            raise DataError(f"k is {self.k}: margins need at least 1 neighbour")
        if self.top is not None and self.top < 1:
            raise DataError(f"top is {self.top}: keep at least 1 pair, or omit top to keep all")
        if self.threshold is not None and self.calibrate is not None:
            raise DataError(
                f"threshold is {self.threshold}, but calibrate would choose one from {self.calibrate}: set only one of "
                "them"
            )
        if self.index is not None:
            import_faiss()

    @cached_property
    def search(self) -> SearchOptions:
        """Return the settings of the exact search, with the precision that is faster on this device."""
        return SearchOptions(self.k, self.memory_mib, search_precision(self.device), self.device)


@dataclass(frozen=True)
class Estimate:
    """Time, memory and disk of a run, estimated from a sample."""

    encoding_seconds: float
    mining_seconds: float | None  # None with an index, which is not timed
    memory_bytes: int  # without the model
    disk_bytes: int
    width: int  # of an embedding

    def __str__(self) -> str:
        mining = "" if self.mining_seconds is None else f", mining: about {self.mining_seconds / 60:.1f} min"
        return (
            f"encoding: about {self.encoding_seconds / 60:.1f} min{mining}, "
            f"memory without the model: {self.memory_bytes / 2**20:.0f} MiB, disk: {self.disk_bytes / 2**20:.0f} MiB"
        )


def mine_files(
    source: str | Path,
    target: str | Path,
    output: str | Path,
    model: SupportsEncode,
    identity: dict[str, str],
    work: str | Path,
    settings: MiningSettings | None = None,
    runner: Runner | None = None,
) -> MinedPairs | None:
    """Mine translations among the lines of two files and write them to the TSV ``output`` (``COLUMNS``, best first).

    ``work`` is the folder of sentences, embeddings and neighbours; a resumed run skips finished shards. ``identity`` is
    everything that determines an embedding besides the sentence (`identify_model`). ``runner`` distributes shards over
    processes or a cluster; only rank 0 writes and returns the pairs.
    """
    settings, work, runner = settings or MiningSettings(), Path(work), runner or ProcessRunner()
    _check_outputs(output, work, settings, [source, target])
    if Path(source).exists() and Path(target).exists() and Path(source).samefile(target):
        raise DataError(f"{source} is both source and target: give the file of the other language")
    sides = [load_sentences(path, work / "sentences") for path in (source, target)]
    for path, side in zip((source, target), sides, strict=True):
        logger.info("%s: %s", path, ", ".join(f"{count:,} {name}" for name, count in asdict(side.counts).items()))
        if len(side) < settings.k:
            raise DataError(f"{path} has {len(side)} different sentences, fewer than k = {settings.k}: reduce k")
    gold = None if settings.calibrate is None else read_gold(settings.calibrate, sides[0], sides[1], (source, target))
    stores = [VectorStore.open(work, side, identity, settings.vector_dtype) for side in sides]
    _check_resources(model, stores, work, settings)
    vectors = [store.encode(model, runner) for store in stores]
    if settings.index is None:
        of_source, of_target = search(work, stores[0], stores[1], settings.search, runner)
    if isinstance(runner, ProcessRunner) and runner.rank:
        return None
    if settings.index is not None:
        of_source, of_target, _ = nearest_by_index(vectors[0], vectors[1], settings.k, settings.index, settings.probes)
    mined = pairs_of_neighbours(of_source, of_target, settings.margin, settings.candidates)
    threshold = settings.threshold
    if gold is not None:
        threshold = _calibrate(mined, gold)
    if settings.plot is not None:
        write_histogram(settings.plot, mined.score, threshold, f"{len(mined):,} pairs by {settings.margin} margin")
    if threshold is not None:
        mined = mined.above(threshold)
    if settings.top is not None:
        mined = mined.first(settings.top)
    write_table(output, COLUMNS, _rows(mined, sides[0], sides[1]))
    return mined


def _calibrate(mined: MinedPairs, gold: Gold) -> float:
    """Choose the threshold on the sentences of the gold pairs; log its metrics and what they assume."""
    best = best_threshold(mined, gold, complete=False)
    logger.info(
        "threshold %.4f: precision %.1f, recall %.1f, F1 %.1f, from %d of the %d pairs above it: those with a sentence "
        "of a gold pair. This assumes that these sentences have no other translations in the files, and that they are "
        "representative of all sentences. If the gold pairs are complete, every other pair is an error, and precision "
        "is %.1f.",
        best.threshold,
        best.precision,
        best.recall,
        best.f1,
        best.judged,
        best.found,
        f1_at_threshold(mined, gold, best.threshold).precision,
    )
    return best.threshold


def _check_outputs(output: str | Path, work: Path, settings: MiningSettings, inputs: list[str | Path]) -> None:
    """Raise an error if an output cannot be written or would replace an input."""
    inputs = [*inputs, *([settings.calibrate] if settings.calibrate else [])]
    check_writable(work / "sentences" / "lock")
    check_writable(output, inputs)
    if settings.plot is not None:
        check_writable(settings.plot, [*inputs, output])
    if not any((work / "sentences").glob("*.arrow")):
        copies = sum(Path(path).stat().st_size for path in inputs[:2] if Path(path).is_file())
        check_free_space(work, copies, "copies of the sentences", "give another --work folder")


def _check_resources(model: SupportsEncode, stores: list[VectorStore], work: Path, settings: MiningSettings) -> None:
    """Log the estimate; raise an error if the disk is too small."""
    estimate = estimate_run(model, stores, work, settings)
    logger.info("%s", estimate)
    check_free_space(work, estimate.disk_bytes, "the vectors", "give another --work folder or --vectors float16")


def estimate_run(model: SupportsEncode, stores: list[VectorStore], work: Path, settings: MiningSettings) -> Estimate:
    """Encode a sample of each side, mine one block, and extrapolate."""
    seconds, disk, width = 0.0, 0, 0
    for store in stores:
        side = store.sentences
        sample = [side[row][0] for row in np.linspace(0, len(side) - 1, min(_SAMPLE, len(side)), dtype=int).tolist()]
        started = time.perf_counter()
        width = model.encode(sample).shape[1]
        seconds += store.missing * (time.perf_counter() - started) / len(sample)
        disk += store.missing * width * np.dtype(settings.vector_dtype).itemsize
    lengths = [len(store.sentences) for store in stores]
    memory = (settings.memory_mib << 20) + sum(lengths) * (_NEIGHBOUR_BYTES * settings.k + _PAIR_BYTES)
    if settings.index is not None:
        memory += max(index_memory(settings.index, width, length) for length in lengths)  # one at a time
        return Estimate(seconds, None, memory, disk, width)
    shards = search_shards(work, stores[0], stores[1], settings.search)
    missing = sum(not shard.path.is_file() for shard in shards) / len(shards)
    disk += round(missing * 12 * settings.k * (lengths[0] * len(shards) + lengths[1]))
    rows = max(settings.k, min(4096, *lengths))
    block = np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)
    started = time.perf_counter()
    mine_bitext(block, block, settings.k, device=settings.device, dtype=getattr(torch, settings.search.precision))
    rate = (time.perf_counter() - started) / rows**2
    return Estimate(seconds, missing * lengths[0] * lengths[1] * rate, memory, disk, width)


def _rows(mined: MinedPairs, source: Sentences, target: Sentences) -> Iterator[tuple[str, ...]]:
    names = ("source", "target", "score", "cosine", "target_rank", "source_rank")
    for i, j, score, cosine, target_rank, source_rank in mined.rows(*names):
        (text, line), (translation, target_line) = source[i], target[j]
        figures = (f"{score:.6f}", f"{cosine:.6f}", str(target_rank), str(source_rank), str(line), str(target_line))
        yield (*figures, *(one_line(side) for side in (text, translation)))
