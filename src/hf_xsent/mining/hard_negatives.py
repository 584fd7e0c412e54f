"""Mine hard negatives: for each pair of bitext, the nearest sentences of both languages that are not its translations.

The search is that of `mine_files`, exact and resumable: sentences, embeddings and neighbours are stored below ``work``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hf_xsent.data.cleaning.repeats import hash_texts
from hf_xsent.data.readers.columns import parse_columns
from hf_xsent.data.readers.compression import lines
from hf_xsent.data.readers.formats import LinkedPair, read_valid_pairs
from hf_xsent.data.readers.records import NEGATIVES, pair_record
from hf_xsent.data.readers.resolving import resolve_sources
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.data.sentences import Sentences, load_sentences
from hf_xsent.files import check_writable, digest
from hf_xsent.logs import Progress
from hf_xsent.mining.margin import margin_score
from hf_xsent.mining.neighbours import search_precision, unit_vectors
from hf_xsent.mining.output import one_line, write_lines
from hf_xsent.mining.search import SearchOptions, search
from hf_xsent.mining.settings import MineNegativesSettings
from hf_xsent.mining.top_k import Neighbours
from hf_xsent.mining.vectors import ShardedVectors, VectorStore
from hf_xsent.models.opening import is_first_process, open_encoder, this_device
from hf_xsent.pages.tables import Table
from hf_xsent.runs.identity import identify_files
from hf_xsent.runs.store import Store
from hf_xsent.settings.command import command

logger = logging.getLogger(__name__)

_PAIRS_PER_BLOCK = 1 << 14
_AVERAGED = 4  # neighbours in a margin, the default of hf-xsent mine


@dataclass(frozen=True)
class NegativeCounts:
    """Counts of the pairs and negatives of a language."""

    pairs: int
    source_negatives: int
    target_negatives: int
    pairs_without_negatives: int  # that have neither source nor target negatives


class MinedNegatives(dict[str, NegativeCounts]):
    """The counts of each language, whose file LANGUAGE.jsonl is in the folder ``output``."""

    output: str = ""

    def __str__(self) -> str:
        rows: list[list[object]] = [[language, *asdict(counts).values()] for language, counts in self.items()]
        header = ["language", "pairs", "source negatives", "target negatives", "pairs without any"]
        return f"{Table(header, rows)}\nthe pairs with their negatives are in {self.output}"


@command(MineNegativesSettings)
def mine_negatives(settings: MineNegativesSettings) -> MinedNegatives | None:
    """Write ``output/LANGUAGE.jsonl``: the pairs in their order, each with its negatives, the highest score first.

    Target negatives are targets near the pair's source, source negatives are sources near its target; nearness is the
    margin (`margin_score`). Other translations in the bitext are excluded; so are sentences that score above
    ``max_share`` times the pair's score. The work folder caches embeddings and neighbours, so that the same call
    resumes. Of several processes, only the first writes and returns the counts of each language.

    ```python
    from hf_xsent import mine_negatives

    counts = mine_negatives({"de": "pairs.tsv"}, "negatives", "runs/mine", negatives=2)
    print(counts["de"])
    ```
    """
    columns = parse_columns(settings.columns)
    sources = resolve_sources(settings.data, target_language=settings.target_language, columns=columns)
    inputs = [path for of_language in sources.values() for source in of_language for path in source_files(source)]
    work, output = settings.work_folder, Path(settings.output)
    for language in sources:
        check_writable(output / f"{language}.jsonl", inputs)
    model, identity = open_encoder(settings)
    texts = {language: _write_texts(work, of_language) for language, of_language in sources.items()}
    pool = _write_pool(work, [files[1] for files in texts.values()]) if settings.all_targets else None
    device = this_device(settings.device)
    mined = MinedNegatives()
    mined.output = settings.output
    for language, files in texts.items():
        sides = [load_sentences(file, work / "sentences") for file in (files[0], pool or files[1])]
        stores = [VectorStore(work, side, identity, settings.vectors) for side in sides]
        logger.info("%s: %d × %d sentences", language, len(sides[0]), len(sides[1]))
        vectors = [store.encode(model) for store in stores]
        k = min(settings.neighbours, *map(len, sides))
        options = SearchOptions(k, settings.memory_mib, search_precision(device), device)
        neighbours = search(work, stores[0], stores[1], options)
        if not is_first_process():
            continue
        chooser = _Chooser(sides, vectors, neighbours, files, settings)
        tally = dict.fromkeys(NegativeCounts.__dataclass_fields__, 0)
        write_lines(output / f"{language}.jsonl", _records(sources[language], chooser, tally))
        mined[language] = NegativeCounts(**tally)
        logger.info("%s: %s", language, ", ".join(f"{count:,} {name}" for name, count in tally.items()))
    return mined if is_first_process() else None


def _write_texts(work: Path, sources: Sequence[BitextSource]) -> list[Path]:
    """Write the two sides of all pairs to text files, one sentence per line, unless they exist."""

    def write(folder: Path) -> None:
        folder.mkdir()
        with ExitStack() as stack:
            files = [stack.enter_context((folder / name).open("w", encoding="utf-8")) for name in names]
            for pair in _pairs(sources, "reading"):
                for file, text in zip(files, pair[:2], strict=True):
                    file.write(f"{one_line(text)}\n")

    names = "source.txt", "target.txt"
    contents = identify_files(path for source in sources for path in source_files(source))
    name = digest([[asdict(source) for source in sources], contents])
    return Store(work / "texts").get(name, write, lambda folder: [folder / name for name in names])


def _write_pool(work: Path, files: Sequence[Path]) -> Path:
    """Write the lines of several text files to one."""

    def write(path: Path) -> None:
        with path.open("wb") as pool:
            for file in files:
                pool.write(file.read_bytes())

    return Store(work / "texts").get(f"pool-{digest(list(map(str, files)))}.txt", write, Path)


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
        settings: MineNegativesSettings,
    ) -> None:
        self.sides, self.vectors, self.neighbours, self.settings = sides, vectors, neighbours, settings
        self.averages = [of_side.cosines[:, :_AVERAGED].mean(1) for of_side in neighbours]
        self.rows = [_rows_of_lines(file, side) for file, side in zip(files, sides, strict=True)]
        inside = (self.rows[0] >= 0) & (self.rows[1] >= 0)
        self.known = np.unique(self.rows[0][inside] * len(sides[1]) + self.rows[1][inside])  # pairs of the bitext

    def choose(self, start: int, count: int) -> tuple[list[list[str]], list[list[str]]]:
        """Return the source negatives and the target negatives of each of these pairs."""
        source, target = (torch.from_numpy(rows[start : start + count]) for rows in self.rows)
        inside = (source >= 0) & (target >= 0)  # neither side is too long
        rows = source.clamp_min(0), target.clamp_min(0)
        units = [unit_vectors(vectors[of_side.numpy()]) for vectors, of_side in zip(self.vectors, rows, strict=True)]
        averages = [average[of_side] for average, of_side in zip(self.averages, rows, strict=True)]
        scores = margin_score((units[0] * units[1]).sum(1), averages[0], averages[1])
        limits = torch.where(inside, self.settings.max_share * scores, -torch.inf)
        return self._nearest(1, rows, limits), self._nearest(0, rows, limits)

    def _nearest(self, side: int, rows: Sequence[Tensor], limits: Tensor) -> list[list[str]]:
        """Return each pair's negatives for its sentence on ``side``, from the other side, highest score first."""
        queries, candidates = rows[side], self.sides[1 - side]
        near = self.neighbours[side].indices[queries]
        averages = self.averages[side][queries][:, None], self.averages[1 - side][near]
        scores = margin_score(self.neighbours[side].cosines[queries], *averages)
        pairs = (queries[:, None], near) if side == 0 else (near, queries[:, None])
        codes = (pairs[0] * len(self.sides[1]) + pairs[1]).numpy()
        places = np.searchsorted(self.known, codes).clip(max=len(self.known) - 1)
        wrong = (scores <= limits[:, None]) & torch.from_numpy(self.known[places] != codes)
        order = scores.masked_fill(~wrong, -torch.inf).argsort(dim=1, descending=True, stable=True)
        order = order[:, : self.settings.negatives]
        best = zip(near.gather(1, order).tolist(), wrong.gather(1, order).tolist(), strict=True)
        return [[candidates[row][0] for row, is_wrong in zip(*pair, strict=True) if is_wrong] for pair in best]


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
        for pair, *negatives in zip(block, *chooser.choose(tally["pairs"], len(block)), strict=True):
            tally["pairs"] += 1
            tally["pairs_without_negatives"] += not any(negatives)
            for name, sentences in zip(NEGATIVES, negatives, strict=True):
                tally[name] += len(sentences)
            yield json.dumps(pair_record(*pair) | dict(zip(NEGATIVES, negatives, strict=True)), ensure_ascii=False)
