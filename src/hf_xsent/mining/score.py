"""Score existing pairs, such as crawled bitext, by cosine or, with pools of sentences, by margin; filter them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from hf_xsent.data.cleaning.filtering import FilterRules, PairFilter
from hf_xsent.data.cleaning.report import CleaningReport
from hf_xsent.data.identification import check_language
from hf_xsent.data.pairs import open_pairs
from hf_xsent.data.readers.compression import check_text_output
from hf_xsent.data.readers.formats import read_pairs
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.data.sentences import load_sentences
from hf_xsent.errors import DataError
from hf_xsent.logs import Progress
from hf_xsent.mining.margin import margin_score
from hf_xsent.mining.neighbours import Vectors, nearest_one_way
from hf_xsent.mining.output import one_line, write_table
from hf_xsent.mining.settings import ScoreSettings
from hf_xsent.mining.vectors import VectorStore
from hf_xsent.models.encode_interface import SupportsEncode, check_finite
from hf_xsent.models.opening import open_encoder, this_device
from hf_xsent.settings.command import command

COLUMNS = ("score", "cosine", "source", "target")
_PAIRS_PER_BLOCK = 1 << 14
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
def score_pairs(settings: ScoreSettings) -> ScoredPairs:
    """Write the cosine of each pair, or its margin if both pools of sentences are given, to a TSV file.

    The pairs keep their order; memory does not grow with their number. For a margin, each sentence is compared with its
    ``k`` nearest in the pool of the other side. ``filter`` applies the default cleaning rules and the changes in a list
    such as ``["min_score=0.7"]``, which may be empty.

    ```python
    from hf_xsent import score_pairs

    score_pairs("crawled.tsv", "scored.tsv", "runs/mine")
    score_pairs([("Ein Hund.", "A dog.")], "few.tsv", "runs/mine", language="de", filter=["min_score=-1"])
    ```
    """
    source, pool_files = open_pairs(settings), [file for file in (settings.source_pool, settings.target_pool) if file]
    check_text_output(settings.output, [*source_files(source), *pool_files])
    pair_filter = None if settings.filter is None else _open_filter(settings, source)
    model, identity = open_encoder(settings)
    sides = [load_sentences(file, settings.work_folder / "sentences") for file in pool_files]
    for file, side in zip(pool_files, sides, strict=True):
        if len(side) < settings.k:
            raise DataError(f"{file} holds {len(side)} sentences, fewer than k = {settings.k}: lower --k")
    pools = [VectorStore(settings.work_folder, side, identity).encode(model) for side in sides]
    pairs = iter(Progress(read_pairs(source), desc="scoring", unit=" pairs"))
    blocks = iter(lambda: list(islice(pairs, _PAIRS_PER_BLOCK)), [])
    rows = (row for block in blocks for row in _rows(block, model, pools, settings))
    if pair_filter is not None:
        rows = (row for row in rows if pair_filter.accepts(row[2], row[3], float(row[0])))
    count = write_table(settings.output, COLUMNS, rows)
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


def _rows(
    pairs: list[tuple[str, str]], model: SupportsEncode, pools: Sequence[Vectors], settings: ScoreSettings
) -> Iterator[tuple[str, ...]]:
    """Yield the columns of each pair."""
    sides = [_embed(model, list(side)) for side in zip(*pairs, strict=True)]
    cosines = (sides[0] * sides[1]).sum(1)
    scores = cosines
    if pools:
        device = this_device(settings.device)
        averages = [
            nearest_one_way(side, pool, settings.k, device=device).cosines.mean(1)
            for side, pool in zip(sides, reversed(pools), strict=True)
        ]
        scores = margin_score(cosines, averages[0], averages[1])
    for (text, translation), score, cosine in zip(pairs, scores.tolist(), cosines.tolist(), strict=True):
        yield f"{score:.6f}", f"{cosine:.6f}", one_line(text), one_line(translation)


def _embed(model: SupportsEncode, texts: list[str]) -> torch.Tensor:
    """Return unit vectors."""
    vectors = np.asarray(model.encode(texts))
    check_finite(vectors, str(vectors.dtype), lambda row: repr(texts[row][:40]))
    return torch.nn.functional.normalize(torch.from_numpy(vectors).float(), dim=1)
