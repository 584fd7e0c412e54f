"""Mine translations from two text files: read, encode, search, write; an interrupted run resumes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_xsent.data.output import check_output, write_records
from hf_xsent.data.sentences import Sentences, load_sentences
from hf_xsent.errors import DataError
from hf_xsent.files import check_writable
from hf_xsent.mining.calibration import best_threshold, read_gold
from hf_xsent.mining.index import import_faiss, nearest_by_index
from hf_xsent.mining.margin import MinedPairs, pairs_of_neighbours
from hf_xsent.mining.plot import write_histogram
from hf_xsent.mining.ray_engine import RayEngine
from hf_xsent.mining.search import search
from hf_xsent.mining.settings import MineSettings
from hf_xsent.mining.vectors import Fill, VectorStore
from hf_xsent.models.opening import is_first_process, open_encoder, this_device
from hf_xsent.runs.store import Store
from hf_xsent.settings.command import command

logger = logging.getLogger(__name__)

COLUMNS = ("score", "cosine", "target_rank", "source_rank", "source_line", "target_line", "source", "target")


@dataclass(frozen=True)
class MinedFile:
    """The mined pairs, and the file that has them."""

    pairs: MinedPairs
    output: str

    def __str__(self) -> str:
        return f"{len(self.pairs):,} pairs, best first, are in {self.output}"


@command(MineSettings)
def mine_files(settings: MineSettings) -> MinedFile | None:
    """Mine translations among the lines of two files, and write them (``COLUMNS``), best first.

    The work folder caches sentences, embeddings and neighbours, so that the same call resumes. Of several processes,
    only the first writes and returns the pairs.

    ```python
    from hf_xsent import mine_files

    mined = mine_files("news.zh.txt", "news.en.txt", "pairs.tsv", "runs/mine", threshold=1.06)
    print(len(mined.pairs), mined.pairs.score[:3])
    ```
    """
    work = settings.work_folder
    files = settings.source, settings.target
    _check_files(settings)
    device = this_device(settings.device)
    fill: Fill = RayEngine(settings.address, device) if settings.engine == "ray" else Store.fill
    here = "cpu" if settings.engine == "ray" else device  # the GPUs may be on the workers only
    model, identity = open_encoder(settings, here)
    sides = [load_sentences(path, work / "sentences") for path in files]
    for path, side in zip(files, sides, strict=True):
        counts = {"lines": side.counts.read, **side.counts.removed, "retained": len(side)}
        logger.info("%s: %s", path, ", ".join(f"{count:,} {name}" for name, count in counts.items()))
        if len(side) < settings.k:
            raise DataError(f"{path} has {len(side)} different sentences, fewer than k = {settings.k}: reduce k")
    gold = None if settings.calibrate is None else read_gold(settings.calibrate, sides[0], sides[1], files)
    source, target = (VectorStore(work, side, identity, settings.vectors) for side in sides)
    vectors = [store.encode(model, fill) for store in (source, target)]
    if settings.index is None:
        of_source, of_target = search(work, source, target, settings.k, settings.memory_mib, here, fill)
    if not is_first_process():
        return None
    if settings.index is not None:
        of_source, of_target, _ = nearest_by_index(vectors[0], vectors[1], settings.k, settings.index, settings.probes)
    mined = pairs_of_neighbours(of_source, of_target, settings.margin, settings.candidates)
    threshold = settings.threshold if gold is None else _calibrate(mined, gold)
    if settings.plot is not None:
        write_histogram(settings.plot, mined.score, threshold, f"{len(mined):,} pairs by {settings.margin} margin")
    if threshold is not None:
        mined = mined.above(threshold)
    if settings.top is not None:
        mined = mined.first(settings.top)
    write_records(settings.output, COLUMNS, _records(mined, sides[0], sides[1]))
    return MinedFile(mined, settings.output)


def _check_files(settings: MineSettings) -> None:
    """Raise an error if both sides are one file, or if an output would replace an input or cannot be written."""
    source, target = Path(settings.source), Path(settings.target)
    if source.exists() and target.exists() and source.samefile(target):
        raise DataError(f"{source} is both source and target: give the file of the other language")
    inputs = [source, target, *([Path(settings.calibrate)] if settings.calibrate else [])]
    check_output(settings.output, inputs)
    if settings.plot is not None:
        check_writable(settings.plot, [*inputs, settings.output])
    if settings.index is not None:
        import_faiss()


def _calibrate(mined: MinedPairs, gold: set[tuple[int, int]]) -> float:
    """Choose the threshold on the sentences of the gold pairs, and log its metrics."""
    best = best_threshold(mined, gold, complete=False)
    logger.info(
        "threshold %.4f: precision %.1f, recall %.1f, F1 %.1f on the pairs with a sentence of a gold pair",
        best.threshold,
        best.precision,
        best.recall,
        best.f1,
    )
    return best.threshold


def _records(mined: MinedPairs, source: Sentences, target: Sentences) -> Iterator[dict[str, Any]]:
    names = ("source", "target", "score", "cosine", "target_rank", "source_rank")
    for i, j, score, cosine, *ranks in mined.rows(*names):
        (text, line), (translation, target_line) = source[i], target[j]
        values = (round(score, 6), round(cosine, 6), *ranks, line, target_line, text, translation)
        yield dict(zip(COLUMNS, values, strict=True))
