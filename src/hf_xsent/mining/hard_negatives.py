"""Mine hard negatives: for each pair of bitext, the nearest sentences of both languages that are not its translations.

The search is that of `mine_files`, exact and resumable: sentences, embeddings and neighbours are stored below ``work``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_xsent.data.bitext import Bitext
from hf_xsent.data.output import one_line, write_records
from hf_xsent.data.pairs import record_of, store_pairs
from hf_xsent.data.readers.columns import parse_columns
from hf_xsent.data.readers.fields import NEGATIVES
from hf_xsent.data.readers.resolving import resolve_sources
from hf_xsent.data.sentences import Sentences, store_sentences
from hf_xsent.files import check_writable, digest
from hf_xsent.logs import Progress
from hf_xsent.mining.margin import margin_score
from hf_xsent.mining.neighbours import unit_vectors
from hf_xsent.mining.search import search
from hf_xsent.mining.settings import MineNegativesSettings
from hf_xsent.mining.top_k import Neighbours
from hf_xsent.mining.vectors import ShardedVectors, VectorStore
from hf_xsent.models.encoder import open_encoder
from hf_xsent.pages.tables import Table
from hf_xsent.runs.engines import engine, is_first_process
from hf_xsent.settings.command import command

logger = logging.getLogger(__name__)

_PAIRS_PER_PART = 1 << 14
_NEIGHBOURS = 32  # from which the negatives are chosen
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
    margin (`margin_score`). Other translations in the bitext are excluded, and so are sentences that score above
    ``max_share`` times the pair's score. Earlier negatives of the pairs are replaced. The work folder caches embeddings
    and neighbours, so that the same call resumes. Of several processes, only the first writes and returns the counts of
    each language.

    ```python
    from hf_xsent import mine_negatives

    counts = mine_negatives({"de": "pairs.tsv"}, "negatives", "runs/mine", negatives=2)
    print(counts["de"])
    ```
    """
    columns = parse_columns(settings.columns)
    sources = resolve_sources(settings.data, target_language=settings.target_language, columns=columns)
    inputs = [path for of_language in sources.values() for source in of_language for path in source.files]
    work, output = settings.work_folder, Path(settings.output)
    for language in sources:
        check_writable(output / f"{language}.jsonl", inputs)
    if others := sorted(path.name for path in output.glob("*.jsonl") if path.stem not in sources):
        logger.warning("%s also has %s of other calls", output, ", ".join(others))
    fill, encoder = engine(settings), open_encoder(settings)
    bitext = store_pairs(sources, work / "pairs")
    mined = MinedNegatives()
    mined.output = settings.output
    for language, file in bitext.files.items():
        pairs = Bitext({language: file}, bitext.report)
        sides = [_sentences(work, pairs, side) for side in ("source", "target")]
        stores = [VectorStore(work, side, encoder, settings.dtype) for side in sides]
        logger.info("%s: %d × %d sentences", language, len(sides[0]), len(sides[1]))
        vectors = [store.fill(fill) for store in stores]
        k = min(_NEIGHBOURS, *map(len, sides))
        neighbours = search(work, stores[0], stores[1], k, settings.memory_mib, settings.device, fill)
        if not is_first_process():
            continue
        chooser = _Chooser(sides, vectors, neighbours, pairs, settings)
        tally = dict.fromkeys(NegativeCounts.__dataclass_fields__, 0)
        write_records(output / f"{language}.jsonl", (), _records(pairs, chooser, tally))
        mined[language] = NegativeCounts(**tally)
        logger.info("%s: %s", language, ", ".join(f"{count:,} {name}" for name, count in tally.items()))
    return mined if is_first_process() else None


def _sentences(work: Path, pairs: Bitext, side: str) -> Sentences:
    """Store the distinct sentences of one side of all pairs."""

    def read() -> Iterator[tuple[int, str]]:
        return enumerate(map(one_line, pairs.sentences(side)), start=1)

    return store_sentences("the data", digest([side, pairs.identity]), read, work / "sentences")


class _Chooser:
    """Choose the negatives of one language's pairs from the neighbours of both sides."""

    def __init__(
        self,
        sides: Sequence[Sentences],
        vectors: Sequence[ShardedVectors],
        neighbours: Sequence[Neighbours],
        pairs: Bitext,
        settings: MineNegativesSettings,
    ) -> None:
        self.sides, self.vectors, self.neighbours, self.settings = sides, vectors, neighbours, settings
        self.averages = [of_side.cosines[:, :_AVERAGED].mean(1) for of_side in neighbours]
        self.rows = rows = [
            of.rows(map(one_line, pairs.sentences(side))) for side, of in zip(("source", "target"), sides, strict=True)
        ]
        inside = (rows[0] >= 0) & (rows[1] >= 0)
        known = rows[0][inside] * len(sides[1]) + rows[1][inside]
        self.known = np.unique(np.append(known, -1))  # pairs, and none

    def choose(self, start: int, count: int) -> tuple[list[list[str]], list[list[str]]]:
        """Return the source negatives and the target negatives of each of these pairs."""
        source, target = (torch.from_numpy(rows[start : start + count]) for rows in self.rows)
        inside = (source >= 0) & (target >= 0)  # neither side is too long
        rows = source.clamp_min(0), target.clamp_min(0)
        units = [unit_vectors(vectors, of_side.numpy()) for vectors, of_side in zip(self.vectors, rows, strict=True)]
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
        return [[candidates[row] for row, is_wrong in zip(*pair, strict=True) if is_wrong] for pair in best]


def _records(bitext: Bitext, chooser: _Chooser, tally: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield each pair with its negatives, and count pairs and negatives."""
    starts = range(0, len(bitext), _PAIRS_PER_PART)
    for start in Progress(starts, desc="choosing negatives", unit=" parts", delay=2):
        pairs = bitext[start : start + _PAIRS_PER_PART]
        for pair, *negatives in zip(pairs, *chooser.choose(start, len(pairs)), strict=True):
            written = dict(zip(NEGATIVES, negatives, strict=True))
            tally["pairs"] += 1
            tally["pairs_without_negatives"] += not any(written.values())
            for name, sentences in written.items():
                tally[name] += len(sentences)
            yield record_of(pair) | written
