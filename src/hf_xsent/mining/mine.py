"""Mine translations from two text files: read, encode, search, write; an interrupted run resumes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from hf_xsent.data.output import check_output, write_records
from hf_xsent.data.readers.fields import LICENCE
from hf_xsent.data.readers.sources import refuse_missing
from hf_xsent.data.sentences import Sentences
from hf_xsent.errors import DataError
from hf_xsent.files import make_folder
from hf_xsent.mining.calibration import best_threshold, read_gold
from hf_xsent.mining.index import choose_index, import_faiss, search_by_index
from hf_xsent.mining.margin import MinedPairs, pairs_of_neighbours
from hf_xsent.mining.parquet import MiningInput, TextFile, VectorFiles, is_parquet, write_vectors
from hf_xsent.mining.search import search
from hf_xsent.mining.settings import MineSettings
from hf_xsent.mining.vectors import VectorStore
from hf_xsent.models.encoder import Encoder, open_encoder
from hf_xsent.runs.engines import engine, is_first_process
from hf_xsent.settings.command import command

logger = logging.getLogger(__name__)

COLUMNS = ("score", "cosine", "target_rank", "source_rank", "source_line", "target_line", "source", "target")


@dataclass(frozen=True)
class MinedFile:
    """The mined pairs, the file that has them, and the recall of the index (None for the exact search).

    ``pairs.source`` and ``pairs.target`` are the lines of the two files, or rows of Parquet, counted from 0.
    """

    pairs: MinedPairs
    output: str
    recall: float | None = None

    def __str__(self) -> str:
        found = "" if self.recall is None else f"; the index finds {self.recall:.1%} of the nearest neighbours"
        return f"{len(self.pairs):,} pairs, best first, are in {self.output}{found}"


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
    fill, encoder = engine(settings), open_encoder(settings)
    inputs = [VectorFiles(path) if is_parquet(path) else TextFile(path, settings.on_error) for path in files]
    source, target = (_open_side(each, encoder, settings) for each in inputs)
    sides = source.sentences, target.sentences
    gold = None if settings.calibrate is None else read_gold(settings.calibrate, sides, inputs)
    for name, side in (("source", source), ("target", target)):
        side.fill(fill)
        if settings.vectors is not None:
            write_vectors(Path(settings.vectors, name), side, fill)
    index, recall = choose_index(settings.index, len(sides[0]), len(sides[1])), None
    if index is None:
        of_source, of_target = search(work, source, target, settings.k, settings.memory_mib, settings.device, fill)
    else:
        probes = settings.probes
        of_source, of_target, recall = search_by_index(work, source, target, settings.k, index, probes, fill)
    if not is_first_process():
        return None
    mined = pairs_of_neighbours(of_source, of_target, settings.margin, settings.candidates)
    threshold = settings.threshold if gold is None else _calibrate(mined, gold)
    if threshold is not None:
        mined = mined.above(threshold)
    if settings.top is not None:
        mined = mined.first(settings.top)
    licence = {} if settings.licence is None else {LICENCE: settings.licence}
    lines = [side.lines_of(rows) for side, rows in zip(sides, (mined.source, mined.target), strict=True)]
    ids = [read.ids(of_side) for read, of_side in zip(inputs, lines, strict=True)]
    records = (record | licence for record in _records(mined, sides, ids))
    write_records(settings.output, (*COLUMNS, *licence), records)
    return MinedFile(replace(mined, source=lines[0] - 1, target=lines[1] - 1), settings.output, recall)


def _open_side(read: MiningInput, encoder: Encoder, settings: MineSettings) -> VectorStore:
    """Read the sentences of a text file, or of Parquet files that also hold their vectors."""
    work, files = settings.work_folder, read if isinstance(read, VectorFiles) else None
    if files is not None:
        files.check_model(encoder.identity)
    sentences = read.sentences(work / "sentences")
    bad = {"bad": sentences.counts.bad} if sentences.counts.bad else {}
    counts = {"lines": sentences.counts.read, **bad, **sentences.counts.removed, "retained": len(sentences)}
    logger.info("%s: %s", read.path, ", ".join(f"{count:,} {name}" for name, count in counts.items()))
    if len(sentences) < settings.k:
        raise DataError(f"{read.path} has {len(sentences)} different sentences, fewer than k = {settings.k}: reduce k")
    return VectorStore(work, sentences, encoder, settings.dtype, files)


def _check_files(settings: MineSettings) -> None:
    """Raise an error if both sides are one file, or if an output would replace an input or cannot be written."""
    source, target = Path(settings.source), Path(settings.target)
    for path in (source, target):
        if not is_parquet(path):
            refuse_missing(path)
        elif settings.vectors is not None:
            raise DataError(f"{path} has its vectors already: drop --vectors, which writes those of text")
    if source.exists() and target.exists() and source.samefile(target):
        raise DataError(f"{source} is both source and target: give the file of the other language")
    check_output(settings.output, [source, target, *([settings.calibrate] if settings.calibrate else [])])
    if settings.vectors is not None:
        make_folder(Path(settings.vectors))
    if settings.index is not None:
        import_faiss()


def _calibrate(mined: MinedPairs, gold: set[tuple[int, int]]) -> float:
    """Choose the threshold on the sentences of the gold pairs, and log its metrics."""
    best = best_threshold(mined, gold, complete=False)
    if not best.f1:
        raise DataError(
            "no gold pair was mined, so no threshold can be chosen: check the gold pairs, or give a threshold"
        )
    metrics = "threshold %.6f: precision %.1f, recall %.1f, F1 %.1f on the pairs with a sentence of a gold pair"
    logger.info(metrics, *astuple(best))
    return best.threshold


def _records(mined: MinedPairs, sides: Sequence[Sentences], ids: Sequence[Any]) -> Iterator[dict[str, Any]]:
    names = ("source", "target", "score", "cosine", "target_rank", "source_rank")
    for pair, (i, j, score, cosine, *ranks) in enumerate(mined.rows(*names)):
        lines = (of_side[pair].as_py() if hasattr(of_side, "to_pylist") else int(of_side[pair]) for of_side in ids)
        values = (round(score, 6), round(cosine, 6), *ranks, *lines, sides[0][i], sides[1][j])
        yield dict(zip(COLUMNS, values, strict=True))
