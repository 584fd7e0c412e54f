"""From two text files to a table of translations: read, encode once, mine, write; a run that was stopped goes on."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_xsent.data.sentences import Sentences, load_sentences
from hf_xsent.errors import DataError, OutputError
from hf_xsent.mining.calibration import best_threshold, read_gold
from hf_xsent.mining.histogram import write_histogram
from hf_xsent.mining.margin import MinedPairs, mine_bitext
from hf_xsent.mining.vectors import Encodes, encode_to_shards

logger = logging.getLogger(__name__)

COLUMNS = ("score", "cosine", "target_rank", "source_rank", "source_line", "target_line", "source", "target")
_SAMPLE = 256


@dataclass(frozen=True)
class MiningSettings:
    """How to mine, and what to keep."""

    k: int = 4
    margin: str = "ratio"
    candidates: str = "max"
    threshold: float | None = None
    top: int | None = None
    memory_mib: int = 512
    vectors: str = "float32"
    index: str | None = None
    probes: int = 32
    calibrate: str | None = None  # gold pairs that choose the threshold
    plot: str | None = None


@dataclass(frozen=True)
class Estimate:
    """What a run will take, from rates measured on a sample."""

    encoding_seconds: float
    mining_seconds: float
    disk_bytes: int

    def __str__(self) -> str:
        minutes = [seconds / 60 for seconds in (self.encoding_seconds, self.mining_seconds)]
        return (
            f"about {minutes[0]:.1f} minutes to encode what is not encoded yet, {minutes[1]:.1f} to mine, "
            f"{self.disk_bytes / 2**20:.0f} MiB of disk"
        )


def mine_files(
    source: str | Path,
    target: str | Path,
    output: str | Path,
    model: Encodes,
    identity: dict[str, str],
    work: str | Path,
    settings: MiningSettings | None = None,
    rank: int = 0,
    processes: int = 1,
) -> MinedPairs:
    """Mine the translations among the lines of two files into the TSV ``output`` (``COLUMNS``, best first).

    ``work`` keeps sentences and vectors: the same run started again encodes nothing twice. ``identity`` names the
    model. Of several processes the first writes the output.
    """
    settings = settings or MiningSettings()
    work = Path(work)
    sides = [load_sentences(path, work / "sentences") for path in (source, target)]
    for path, side in zip((source, target), sides, strict=True):
        logger.info("%s: %s", path, ", ".join(f"{count:,} {name}" for name, count in asdict(side.counts).items()))
        if len(side) < settings.k:
            raise DataError(f"{path} holds {len(side)} sentences, fewer than k = {settings.k}: lower k")
    gold = None if settings.calibrate is None else read_gold(settings.calibrate, *sides)
    folders = [work / "vectors" / side.fingerprint for side in sides]
    estimate = estimate_run(model, sides, folders, settings)
    logger.info("this takes %s", estimate)
    free = shutil.disk_usage(work).free
    if estimate.disk_bytes > free:
        raise OutputError(
            f"{work} has {free / 2**20:.0f} MiB free, but the vectors need {estimate.disk_bytes / 2**20:.0f}: "
            "give another --work folder or --vectors float16"
        )
    vectors: list[Any] = [
        encode_to_shards(model, side, folder, identity, settings.vectors, rank, processes)
        for side, folder in zip(sides, folders, strict=True)
    ]
    options: dict[str, Any] = {"memory_mib": settings.memory_mib, "show_progress": True}
    options |= {"index": settings.index, "probes": settings.probes}
    mined = mine_bitext(vectors[0], vectors[1], settings.k, settings.margin, settings.candidates, **options)
    threshold = settings.threshold
    if gold is not None:
        best = best_threshold(mined, gold)
        logger.info(
            "threshold %.4f: precision %.1f, recall %.1f, F1 %.1f", best.threshold, best.precision, best.recall, best.f1
        )
        threshold = best.threshold
    if settings.plot is not None and rank == 0:
        title = f"{len(mined):,} pairs by {settings.margin} margin"
        write_histogram(settings.plot, mined.score, threshold, title)
    if threshold is not None:
        mined = mined.above(threshold)
    if settings.top is not None:
        mined = mined.first(settings.top)
    if rank == 0:
        write_pairs(output, mined, sides[0], sides[1])
    return mined


def estimate_run(model: Encodes, sides: list[Sentences], folders: list[Path], settings: MiningSettings) -> Estimate:
    """Encode a sample of either side and multiply a block, and count on."""
    seconds, disk, width = 0.0, 0, 0
    for side, folder in zip(sides, folders, strict=True):
        left = len(side) - sum(len(np.load(path, mmap_mode="r")) for path in folder.glob("?????.npy"))
        sample = [side[row][0] for row in np.linspace(0, len(side) - 1, min(_SAMPLE, len(side)), dtype=int).tolist()]
        started = time.perf_counter()
        width = model.encode(sample).shape[1]
        seconds += max(0, left) * (time.perf_counter() - started) / len(sample)
        disk += max(0, left) * width * np.dtype(settings.vectors).itemsize
    block = np.random.default_rng(0).standard_normal((2048, width)).astype(np.float32)
    mine_bitext(block, block, settings.k)
    started = time.perf_counter()
    mine_bitext(block, block, settings.k)
    share = len(sides[0]) * len(sides[1]) / len(block) ** 2
    return Estimate(seconds, share * (time.perf_counter() - started), disk)


def write_pairs(output: str | Path, mined: MinedPairs, source: Sentences, target: Sentences) -> None:
    """One row a pair, with a header; whole or not at all."""
    output = Path(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    part = output.with_name(output.name + ".part")
    with part.open("w", encoding="utf-8", newline="\n") as file:
        for row in _rows(mined, source, target):
            file.write("\t".join(row) + "\n")
    part.replace(output)


def _rows(mined: MinedPairs, source: Sentences, target: Sentences) -> Iterator[tuple[str, ...]]:
    yield COLUMNS
    numbers = (mined.source, mined.target, mined.score, mined.cosine, mined.target_rank, mined.source_rank)
    for i, j, score, cosine, target_rank, source_rank in zip(*(one.tolist() for one in numbers), strict=True):
        (text, line), (translation, target_line) = source[i], target[j]
        figures = (f"{score:.6f}", f"{cosine:.6f}", str(target_rank), str(source_rank), str(line), str(target_line))
        yield (*figures, *(side.replace("\t", " ") for side in (text, translation)))
