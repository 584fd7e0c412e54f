"""Mine hard negatives: for each pair of bitext, the nearest sentences of both languages that are not its translations.

The search is that of `mine_files`, exact and resumable: sentences, embeddings and neighbours are stored below ``work``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hf_xsent.data.cleaning.repeats import hash_texts
from hf_xsent.data.readers.compression import lines
from hf_xsent.data.readers.formats import LinkedPair, read_valid_pairs
from hf_xsent.data.readers.records import NEGATIVES, pair_record
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.data.sentences import Sentences, load_sentences
from hf_xsent.errors import DataError
from hf_xsent.files import check_writable, digest, file_stamp, writing
from hf_xsent.locks import lock
from hf_xsent.logs import Progress
from hf_xsent.mining.margin import margin_score
from hf_xsent.mining.neighbours import search_precision, unit_vectors
from hf_xsent.mining.output import one_line, write_lines
from hf_xsent.mining.search import SearchOptions, search
from hf_xsent.mining.shards import ProcessRunner, Runner
from hf_xsent.mining.top_k import Neighbours
from hf_xsent.mining.vectors import ShardedVectors, VectorStore
from hf_xsent.models.encode_interface import SupportsEncode

logger = logging.getLogger(__name__)

_PAIRS_PER_BLOCK = 1 << 14
MARGINS = ("ratio", "absolute")
_AVERAGED = 4  # neighbours in a margin, the default of hf-xsent mine

Sources = Mapping[str, Sequence[BitextSource]]  # by language


@dataclass(frozen=True)
class NegativeSettings:
    """Settings of the search and choice of negatives."""

    negatives: int = 4  # per pair and side, at most
    neighbours: int = 32  # to choose among
    max_share: float = 0.95  # of the pair's score; sentences above it may be other translations
    margin: str = "ratio"
    all_targets: bool = False  # choose target negatives among the targets of all languages
    memory_mib: int = 512
    vector_dtype: str = "float32"
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Raise a `DataError` for wrong settings."""
        if not 1 <= self.negatives <= self.neighbours:
            raise DataError(f"negatives is {self.negatives}: choose 1 to {self.neighbours}, the number of neighbours")
        if self.margin not in MARGINS:
            raise DataError(f"unknown margin {self.margin!r}: use {' or '.join(MARGINS)}")
        if not 0 < self.max_share <= 1:
            raise DataError(f"max_share is {self.max_share}: give a share above 0 and at most 1 of the pair's score")


@dataclass(frozen=True)
class NegativeCounts:
    """Counts of one language's pairs and negatives."""

    pairs: int
    source_negatives: int
    target_negatives: int
    pairs_without_negatives: int  # that have neither source nor target negatives


def mine_negatives(
    sources: Sources,
    output: str | Path,
    model: SupportsEncode,
    identity: dict[str, str],
    work: str | Path,
    settings: NegativeSettings | None = None,
    runner: Runner | None = None,
) -> dict[str, NegativeCounts]:
    """Write ``output/LANGUAGE.jsonl``: the pairs in their order, each with its negatives, the highest score first.

    Target negatives are targets near the pair's source, source negatives are sources near its target; nearness is the
    margin (`margin_score`). Other translations in the bitext are excluded; so are sentences that score above
    ``max_share`` times the pair's score.
    ``identity`` is everything that determines an embedding besides the sentence. Only rank 0 writes and returns counts.
    """
    settings, work, output, runner = settings or NegativeSettings(), Path(work), Path(output), runner or ProcessRunner()
    inputs = [path for some in sources.values() for source in some for path in source_files(source)]
    for language in sources:
        check_writable(output / f"{language}.jsonl", inputs)
    check_writable(work / "sentences" / "lock")
    texts = {language: _write_texts(work, language, found) for language, found in sources.items()}
    pooled = _write_pool(work, [files[1] for files in texts.values()]) if settings.all_targets else None
    counts = {}
    for language, files in texts.items():
        sides = [load_sentences(one, work / "sentences") for one in (files[0], pooled or files[1])]
        stores = [VectorStore.open(work, side, identity, settings.vector_dtype) for side in sides]
        missing = sum(store.missing for store in stores)
        logger.info("%s: %d × %d sentences, %d to encode", language, len(sides[0]), len(sides[1]), missing)
        vectors = [store.encode(model, runner) for store in stores]
        k = min(settings.neighbours, *map(len, sides))
        options = SearchOptions(k, settings.memory_mib, search_precision(settings.device), settings.device)
        neighbours = search(work, stores[0], stores[1], options, runner)
        if isinstance(runner, ProcessRunner) and runner.rank:
            continue
        chooser = _Chooser(sides, vectors, neighbours, files, settings)
        tally = dict.fromkeys(NegativeCounts.__dataclass_fields__, 0)
        write_lines(output / f"{language}.jsonl", _records(sources[language], chooser, tally))
        counts[language] = NegativeCounts(**tally)
        logger.info("%s: %s", language, ", ".join(f"{count:,} {name}" for name, count in tally.items()))
        if tally["pairs"] and tally["pairs"] == tally["pairs_without_negatives"]:
            cause = "each neighbour is a known translation or scores above %s (max_share) times the score of the pair"
            cure = "raise --max_share or --neighbours"
            logger.warning(f"%s: no pair has a negative: {cause}; {cure}", language, settings.max_share)
    return counts


def _write_texts(work: Path, language: str, sources: Sequence[BitextSource]) -> tuple[Path, Path]:
    """Write the two sides of all pairs to text files, one sentence per line, unless they exist."""
    stamps = [file_stamp(path) for source in sources for path in source_files(source)]
    name = f"{language}-{digest([[asdict(source) for source in sources], stamps])}"
    paths = work / "texts" / f"{name}.source.txt", work / "texts" / f"{name}.target.txt"
    with lock(work / "texts" / "lock"):
        if not all(path.is_file() for path in paths):
            with ExitStack() as stack:
                parts = [stack.enter_context(writing(path)) for path in paths]
                files = [stack.enter_context(part.open("w", encoding="utf-8")) for part in parts]
                for pair in _pairs(sources, f"reading {language}"):
                    for file, text in zip(files, pair[:2], strict=True):
                        file.write(f"{one_line(text)}\n")
    return paths


def _write_pool(work: Path, files: Sequence[Path]) -> Path:
    """Write the lines of several text files to one."""
    path = work / "texts" / f"pool-{digest([one.name for one in files])}.txt"
    with lock(work / "texts" / "lock"):
        if not path.is_file():
            with writing(path) as part, part.open("wb") as pool:
                for one in files:
                    with one.open("rb") as file:
                        pool.writelines(file)
    return path


def _pairs(sources: Sequence[BitextSource], progress: str) -> Iterator[LinkedPair]:
    pairs = chain.from_iterable(read_valid_pairs(source) for source in sources)
    yield from Progress(pairs, desc=progress, unit=" pairs", unit_scale=True, delay=2)


class _Chooser:
    """Choose the negatives of one language's pairs from the neighbours of both sides."""

    def __init__(
        self,
        sides: Sequence[Sentences],
        vectors: Sequence[ShardedVectors],
        neighbours: Sequence[Neighbours],
        files: Sequence[Path],
        settings: NegativeSettings,
    ) -> None:
        self.sides, self.vectors, self.neighbours, self.settings = sides, vectors, neighbours, settings
        self.averages = [one.cosines[:, :_AVERAGED].mean(1) for one in neighbours]
        self.rows = [_rows_of_lines(file, side) for file, side in zip(files, sides, strict=True)]
        inside = (self.rows[0] >= 0) & (self.rows[1] >= 0)
        self.known = np.unique(self.rows[0][inside] * len(sides[1]) + self.rows[1][inside])  # pairs of the bitext

    def choose(self, start: int, count: int) -> tuple[list[list[str]], list[list[str]]]:
        """Return the source negatives and the target negatives of each of these pairs."""
        source, target = (torch.from_numpy(rows[start : start + count]) for rows in self.rows)
        inside = (source >= 0) & (target >= 0)  # neither side is too long
        rows = source.clamp_min(0), target.clamp_min(0)
        units = [
            unit_vectors(vectors[one.numpy()], name, one.numpy())
            for vectors, one, name in zip(self.vectors, rows, ("source", "target"), strict=True)
        ]
        averages = [average[one] for average, one in zip(self.averages, rows, strict=True)]
        scores = margin_score((units[0] * units[1]).sum(1), averages[0], averages[1], self.settings.margin)
        limits = torch.where(inside, self.settings.max_share * scores, -torch.inf)
        return self._nearest(1, rows, limits), self._nearest(0, rows, limits)

    def _nearest(self, side: int, rows: Sequence[Tensor], limits: Tensor) -> list[list[str]]:
        """Return each pair's negatives for its sentence on ``side``, from the other side, highest score first."""
        queries, other = rows[side], self.sides[1 - side]
        found = self.neighbours[side].indices[queries]
        averages = self.averages[side][queries][:, None], self.averages[1 - side][found]
        scores = margin_score(self.neighbours[side].cosines[queries], *averages, self.settings.margin)
        pairs = (queries[:, None], found) if side == 0 else (found, queries[:, None])
        codes = (pairs[0] * len(self.sides[1]) + pairs[1]).numpy()
        places = np.searchsorted(self.known, codes).clip(max=len(self.known) - 1)
        wrong = (scores <= limits[:, None]) & torch.from_numpy(self.known[places] != codes)
        order = scores.masked_fill(~wrong, -torch.inf).argsort(dim=1, descending=True, stable=True)
        order = order[:, : self.settings.negatives]
        chosen = zip(found.gather(1, order).tolist(), wrong.gather(1, order).tolist(), strict=True)
        return [[other[row][0] for row, right in zip(*one, strict=True) if right] for one in chosen]


def _rows_of_lines(file: Path, sentences: Sentences) -> npt.NDArray[np.int64]:
    """Map each line of a file to its row in the deduplicated sentences; -1 for a line that is too long."""
    hashes = np.concatenate([_hashes(sentences.batch(number)) for number in range(sentences.batch_count)])
    order = np.argsort(hashes)
    hashes, rows = hashes[order], []
    texts = (text for _, text in lines(file))
    while block := list(islice(texts, _PAIRS_PER_BLOCK)):
        wanted = _hashes(block)
        places = np.searchsorted(hashes, wanted).clip(max=len(hashes) - 1)
        rows.append(np.where(hashes[places] == wanted, order[places], -1))
    return np.concatenate(rows)


def _hashes(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    return np.array([hash_texts(text) for text in texts], dtype=np.uint64)


def _records(sources: Sequence[BitextSource], chooser: _Chooser, tally: dict[str, int]) -> Iterator[str]:
    """Yield a line of JSON for each pair, and count pairs and negatives."""
    pairs = _pairs(sources, "choosing negatives")
    while block := list(islice(pairs, _PAIRS_PER_BLOCK)):
        found = chooser.choose(tally["pairs"], len(block))
        for pair, *negatives in zip(block, *found, strict=True):
            tally["pairs"] += 1
            tally["pairs_without_negatives"] += not any(negatives)
            for name, some in zip(NEGATIVES, negatives, strict=True):
                tally[name] += len(some)
            yield json.dumps(pair_record(*pair) | dict(zip(NEGATIVES, negatives, strict=True)), ensure_ascii=False)
