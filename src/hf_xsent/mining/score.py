"""Score existing pairs, such as crawled bitext, by cosine, and filter them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_xsent.data.bitext import Bitext
from hf_xsent.data.cleaning.excluded import without_excluded
from hf_xsent.data.cleaning.filtering import FilterRules, PairFilter
from hf_xsent.data.cleaning.report import CleaningReport
from hf_xsent.data.identification import check_language
from hf_xsent.data.output import check_output, one_line, write_records
from hf_xsent.data.pairs import open_pairs, record_of, store_pairs
from hf_xsent.data.readers.compression import is_jsonl
from hf_xsent.data.readers.fields import LEDGER, NEGATIVES, PAIR_FIELDS
from hf_xsent.files import digest, write_arrays
from hf_xsent.mining.parquet import is_parquet
from hf_xsent.mining.settings import ScoreSettings
from hf_xsent.models.encoder import Encoder, open_encoder
from hf_xsent.models.text_encoder import check_finite
from hf_xsent.runs.engines import engine, is_first_process
from hf_xsent.runs.store import Store
from hf_xsent.settings.command import command

logger = logging.getLogger(__name__)

COLUMNS = ("score", "source", "target")
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
    """Write each pair with its score, the cosine of its sentences.

    The pairs keep their order; memory does not grow with their number. ``filter`` applies the default cleaning rules
    and the changes in a list such as ``["min_score=0.7"]``, which may be empty. The work folder caches scores, so that
    the same call resumes. Of several processes, only the first writes and returns the number of pairs.

    ```python
    from hf_xsent import score_pairs

    score_pairs("crawled.tsv", "scored.tsv", "runs/mine")
    score_pairs([("Ein Hund.", "A dog.")], "few.tsv", "runs/mine", language="de", filter=["min_score=-1"])
    ```
    """
    source = open_pairs(settings)
    folder = [settings.pairs] if isinstance(settings.pairs, str) else []  # of Parquet, if it is one
    check_output(settings.output, [*source.files, *folder])
    pair_filter = None
    if settings.filter is not None and settings.filter is not False:
        rules = FilterRules.parse([] if settings.filter is True else settings.filter)
        pair_filter = PairFilter(rules, source.language, source.target_language)
    pairs = store_pairs({source.language: [source]}, settings.work_folder / "pairs")
    others = PAIR_FIELDS[2:] if is_parquet(settings.output) else LEDGER  # TSV has no links and negatives
    columns = (*COLUMNS, *(name for name in others if name in pairs.fields))
    if not is_jsonl(settings.output) and (lost := pairs.fields.difference(columns)):
        logger.warning("a TSV has no %s: name the output .jsonl or .parquet to keep them", " and ".join(sorted(lost)))
    if pair_filter is not None:
        sample = list(pairs[:_PAIRS_TO_IDENTIFY])
        for side, code in (("source", source.language), ("target", source.target_language)):
            check_language((pair[side] for pair in sample), code, f"the {side} side of {source.name}")
    fill, encoder = engine(settings), open_encoder(settings, searches=False)
    store = Store(settings.work_folder / "scores" / digest([pairs.identity, encoder.identity, _PAIRS_PER_PART]))
    names = [f"{start:09d}.npy" for start in range(0, len(pairs), _PAIRS_PER_PART)]
    fill(store, names, ScoreJob(encoder, pairs), "scoring")
    if not is_first_process():
        return None
    scores = chain.from_iterable(store.read(name, np.load).tolist() for name in names)
    records: Iterator[dict[str, Any]] = (
        {"score": round(score, 6)} | record_of(pair) | {side: one_line(pair[side]) for side in ("source", "target")}
        for pair, score in zip(pairs, scores, strict=True)
    )
    if pair_filter is not None:
        records = (row for row in records if pair_filter.accepts(row["source"], row["target"], row["score"]))
        if excluded := pair_filter.excluded:
            sides = {*NEGATIVES} & pairs.fields
            records = (
                row | {side: without_excluded(row[side], excluded) for side in sides if side in row} for row in records
            )
    count = write_records(settings.output, columns, records)
    report = None if pair_filter is None else CleaningReport({source.language: pair_filter.counts})
    return ScoredPairs(count, report, settings.output)


@dataclass(frozen=True)
class ScoreJob:
    """Write the score of each pair of a part."""

    encoder: Encoder
    pairs: Bitext

    def __call__(self, name: str, path: Path) -> None:
        """Encode the pairs, write their cosines."""
        start = int(Path(name).stem)
        pairs = list(self.pairs[start : start + _PAIRS_PER_PART])
        sides = [self._embed([pair[side] for pair in pairs]) for side in ("source", "target")]
        write_arrays(path, (sides[0] * sides[1]).sum(1).numpy())

    def _embed(self, texts: list[str]) -> torch.Tensor:
        """Return unit vectors."""
        vectors = self.encoder.encode(texts)
        check_finite(vectors, str(vectors.dtype), lambda row: repr(texts[row][:40]))
        return torch.nn.functional.normalize(torch.from_numpy(vectors).float(), dim=1)
