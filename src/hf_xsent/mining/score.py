"""Score existing pairs, such as crawled bitext, by cosine or, with pools of sentences, by margin; filter them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_xsent.data.cleaning.filtering import FilterRules, PairFilter
from hf_xsent.data.cleaning.report import CleaningReport
from hf_xsent.data.identification import check_language
from hf_xsent.data.output import check_output, one_line, write_records
from hf_xsent.data.pairs import PairParts, open_pairs, store_pairs
from hf_xsent.data.readers.formats import LinkedPair, read_pairs
from hf_xsent.data.readers.records import LEDGER, PAIR_FIELDS
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.data.sentences import load_sentences
from hf_xsent.errors import DataError
from hf_xsent.files import digest, write_arrays
from hf_xsent.mining.margin import margin_score
from hf_xsent.mining.neighbours import nearest_one_way
from hf_xsent.mining.parquet import is_parquet
from hf_xsent.mining.settings import ScoreSettings
from hf_xsent.mining.vectors import VectorStore
from hf_xsent.models.encoder import Encoder, open_encoder
from hf_xsent.models.precision import choose_device
from hf_xsent.models.text_encoder import check_finite
from hf_xsent.runs.engines import engine, is_first_process
from hf_xsent.runs.store import Store
from hf_xsent.settings.command import command

COLUMNS = ("score", "cosine", "source", "target")
_PAIRS_PER_PART = 1 << 14
_PAIRS_TO_IDENTIFY = 10_000


@dataclass(frozen=True)
class ScoredPairs:
    """The number of pairs written to a file, and what the filter removed (None without a filter)."""

    pairs: int
    report: CleaningReport | None
    output: str

    def __str__(self) -> str:
        table = "" if self.report is None else f"{self.report.table()}\n"
        return f"{table}{self.pairs:,} scored pairs are in {self.output}"


@command(ScoreSettings)
def score_pairs(settings: ScoreSettings) -> ScoredPairs | None:
    """Write the cosine of each pair, or its margin if both pools of sentences are given.

    The pairs keep their order; memory does not grow with their number. For a margin, each sentence is compared with its
    ``k`` nearest in the pool of the other side. ``filter`` applies the default cleaning rules and the changes in a list
    such as ``["min_score=0.7"]``, which may be empty. The work folder caches scores, so that the same call resumes. Of
    several processes, only the first writes and returns the number of pairs.

    ```python
    from hf_xsent import score_pairs

    score_pairs("crawled.tsv", "scored.tsv", "runs/mine")
    score_pairs([("Ein Hund.", "A dog.")], "few.tsv", "runs/mine", language="de", filter=["min_score=-1"])
    ```
    """
    source, pool_files = open_pairs(settings), [file for file in (settings.source_pool, settings.target_pool) if file]
    check_output(settings.output, [*source_files(source), *pool_files])
    pair_filter = None if settings.filter is None else _open_filter(settings, source)
    parts = store_pairs(settings.language, [source], settings.work_folder / "pairs", _PAIRS_PER_PART)
    fill, encoder = engine(settings), open_encoder(settings, searches=bool(pool_files))
    sides = [load_sentences(file, settings.work_folder / "sentences") for file in pool_files]
    for file, side in zip(pool_files, sides, strict=True):
        if len(side) < settings.k:
            raise DataError(f"{file} holds {len(side)} sentences, fewer than k = {settings.k}: lower --k")
    pools = [VectorStore(settings.work_folder, side, encoder) for side in sides]
    for pool in pools:
        pool.fill(fill)
    decisive = [parts.fingerprint, encoder.identity, [pool.made_from for pool in pools], settings.k if pools else None]
    store = Store(settings.work_folder / "scores" / digest(decisive))
    names = [f"{number:06d}.npy" for number in range(len(parts))]
    fill(store, names, ScoreJob(encoder, parts, pools, settings.k, settings.device), "scoring")
    if not is_first_process():
        return None
    records = (record for name, part in zip(names, parts, strict=True) for record in _records(store, name, part))
    if pair_filter is not None:
        records = (row for row in records if pair_filter.accepts(row["source"], row["target"], row["score"]))
    others = PAIR_FIELDS[2:] if is_parquet(settings.output) else LEDGER  # TSV has no links and negatives
    count = write_records(settings.output, (*COLUMNS, *(name for name in others if name in parts.columns)), records)
    report = None if pair_filter is None else CleaningReport({settings.language: pair_filter.counts})
    return ScoredPairs(count, report, settings.output)


def _open_filter(settings: ScoreSettings, source: BitextSource) -> PairFilter:
    """Read the rules; raise an error if the first pairs are not in the languages of the settings."""
    languages = settings.language, settings.target_language
    pair_filter = PairFilter(FilterRules.parse(settings.filter), *languages)
    sample = zip(*islice(read_pairs(source), _PAIRS_TO_IDENTIFY), strict=True)
    for texts, code, name in zip(sample, languages, ("source", "target"), strict=False):
        check_language(texts, code, f"the {name} side of {settings.pairs}")
    return pair_filter


def _records(store: Store, name: str, pairs: Sequence[LinkedPair]) -> Iterator[dict[str, Any]]:
    """Yield the pairs of a part with their scores."""
    for pair, (score, cosine) in zip(pairs, store.read(name, np.load).tolist(), strict=True):
        texts = (one_line(text) for text in pair[:2])
        others = dict(zip(PAIR_FIELDS[2:], pair[2:], strict=True))
        scored = dict(zip(COLUMNS, (round(score, 6), round(cosine, 6), *texts), strict=True))
        yield scored | {name: value for name, value in others.items() if value is not None}


@dataclass(frozen=True)
class ScoreJob:
    """Write score and cosine of each pair of a part."""

    encoder: Encoder
    parts: PairParts
    pools: Sequence[VectorStore]  # of sources and of targets, or none
    k: int
    device: str | None

    def __call__(self, name: str, path: Path) -> None:
        """Encode the pairs, compare them, write the scores."""
        pairs = self.parts[int(Path(name).stem)]
        sides = [self._embed([pair[side] for pair in pairs]) for side in range(2)]
        scores = cosines = (sides[0] * sides[1]).sum(1)
        if self.pools:
            averages = [
                nearest_one_way(side, pool.read(), self.k, device=choose_device(self.device)).cosines.mean(1)
                for side, pool in zip(sides, reversed(self.pools), strict=True)
            ]
            scores = margin_score(cosines, averages[0], averages[1])
        write_arrays(path, torch.stack((scores, cosines), 1).numpy())

    def _embed(self, texts: list[str]) -> torch.Tensor:
        """Return unit vectors."""
        vectors = self.encoder.encode(texts)
        check_finite(vectors, str(vectors.dtype), lambda row: repr(texts[row][:40]))
        return torch.nn.functional.normalize(torch.from_numpy(vectors).float(), dim=1)
