"""Mine translations in files, and score existing pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from hf_xsent.api.opening import one_source, open_encoder, this_device, this_process, work_folder
from hf_xsent.data.cleaning.filtering import FilterRules, PairFilter
from hf_xsent.data.cleaning.report import CleaningReport
from hf_xsent.data.identification import check_language
from hf_xsent.data.readers.columns import Columns
from hf_xsent.data.readers.formats import check_source, read_pairs
from hf_xsent.data.readers.sources import resolve_sources, source_files
from hf_xsent.data.sentences import load_sentences
from hf_xsent.errors import DataError, RecipeError
from hf_xsent.files import check_writable
from hf_xsent.mining import negatives, pipeline, scoring
from hf_xsent.mining.margin import MinedPairs
from hf_xsent.mining.ray_engine import RayEngine
from hf_xsent.mining.settings import MineSettings
from hf_xsent.mining.vectors import VectorStore
from hf_xsent.settings.command import command

_PAIRS_TO_IDENTIFY = 10_000


@command(MineSettings)
def mine_files(settings: MineSettings) -> FoundPairs | None:
    """Mine translations among the lines of two files, and write them to a TSV file, best first.

    Of several processes, only rank 0 writes and returns the pairs.

    ```python
    from hf_xsent import mine_files

    mined = mine_files("news.zh.txt", "news.en.txt", "pairs.tsv", model="runs/mine", threshold=1.06)
    print(len(mined.pairs), mined.pairs.score[:3])
    ```
    """
    device = this_device(settings.device)
    runner: Any = RayEngine(settings.address, device) if settings.engine == "ray" else this_process()
    here = "cpu" if settings.engine == "ray" and not torch.cuda.is_available() else device  # GPUs of the workers only
    options = {name: getattr(settings, name) for name in ("pooling", "max_length", "precision")} | {"device": here}
    encoder, identity = open_encoder(settings.model, options)
    names = ("k", "margin", "candidates", "threshold", "top", "memory_mib", "index", "probes", "calibrate", "plot")
    of_mining = {name: getattr(settings, name) for name in names} | {"vector_dtype": settings.vectors, "device": here}
    pairs = pipeline.mine_files(
        settings.source, settings.target, settings.output, encoder, identity, settings.work_folder,
        pipeline.MiningSettings(**of_mining), runner,
    )  # fmt: skip
    return None if pairs is None else FoundPairs(pairs, settings.output)


@dataclass(frozen=True)
class FoundPairs:
    """The mined pairs, and the file that has them."""

    pairs: MinedPairs
    output: str

    def __str__(self) -> str:
        return f"{len(self.pairs):,} pairs, best first, are in {self.output}"


def mine_negatives(
    data: Any,
    output: str | Path,
    model: Any,
    *,
    target_language: str = "en",
    columns: Columns | Mapping[str, Columns] | None = None,
    work: str | Path | None = None,
    pooling: str | None = None,
    max_length: int | None = None,
    precision: str = "float32",
    device: str | None = None,
    **settings: Any,
) -> dict[str, negatives.NegativeCounts]:
    """Mine hard negatives of pairs, write LANGUAGE.jsonl files into a folder; return the counts of each language.

    ``data`` maps languages to files, like that of ``pretrain``. ``settings`` are those of ``NegativeSettings``:
    negatives, neighbours, max_share, margin, all_targets, … ``work`` (default: OUTPUT.work) caches embeddings and
    neighbours, so that the same call resumes. Of several processes, only rank 0 writes and returns the counts.

    ```python
    from hf_xsent import mine_negatives

    counts = mine_negatives({"de": "pairs.tsv"}, "negatives", "runs/mine", negatives=2)
    print(counts["de"])
    ```
    """
    chosen = negatives.NegativeSettings(**settings)
    sources = resolve_sources(data, target_language=target_language, columns=columns)
    for source in (one for some in sources.values() for one in some):
        check_source(source)
    device = this_device(device)
    options = {"pooling": pooling, "max_length": max_length, "precision": precision, "device": device}
    encoder, identity = open_encoder(model, options)
    folder = work_folder(work, output)
    chosen = replace(chosen, device=device)
    return negatives.mine_negatives(sources, output, encoder, identity, folder, chosen, this_process())


@dataclass(frozen=True)
class ScoredPairs:
    """The number of pairs written, and what the filter removed (None without a filter)."""

    pairs: int
    report: CleaningReport | None


def score_pairs(
    pairs: Any,
    output: str | Path,
    model: Any,
    *,
    language: str = "und",
    target_language: str = "en",
    columns: Columns | Mapping[str, Columns] | None = None,
    source_pool: str | Path | None = None,
    target_pool: str | Path | None = None,
    k: int = 4,
    margin: str = "ratio",
    rules: Sequence[str] | None = None,
    work: str | Path | None = None,
    pooling: str | None = None,
    max_length: int | None = None,
    precision: str = "float32",
    device: str | None = None,
) -> ScoredPairs:
    """Write the cosine of each pair, or its margin if both pools of sentences are given, to a TSV file.

    ``rules`` filters the pairs by the default cleaning rules and the changes in a list such as ``["min_score=0.7"]``,
    which may be empty.

    ```python
    from hf_xsent import score_pairs

    score_pairs("crawled.tsv", "scored.tsv", "runs/mine")
    score_pairs([("Ein Hund.", "A dog.")], "few.tsv", "runs/mine", language="de", rules=["min_score=-1"])
    ```
    """
    pools_given = [one for one in (source_pool, target_pool) if one]
    if len(pools_given) == 1:
        raise RecipeError("margins need both pools: give --source_pool and --target_pool")
    source = one_source(pairs, language, target_language, columns)
    check_writable(output, [*source_files(source), *map(Path, pools_given)])
    check_source(source)
    pair_filter = None
    if rules is not None:
        pair_filter = PairFilter(FilterRules.parse(rules), language, target_language)
        sample = zip(*islice(read_pairs(source), _PAIRS_TO_IDENTIFY), strict=True)
        for texts, code, name in zip(sample, (language, target_language), ("source", "target"), strict=False):
            check_language(texts, code, f"the {name} side of {pairs}")
    folder = work_folder(work, output)
    if pools_given:
        check_writable(folder / "sentences" / "lock")
    options = {"pooling": pooling, "max_length": max_length, "precision": precision, "device": device}
    encoder, identity = open_encoder(model, options)
    pools = None
    if pools_given:
        sides = [load_sentences(file, folder / "sentences") for file in pools_given]
        for file, side in zip(pools_given, sides, strict=True):
            if len(side) < k:
                raise DataError(f"{file} holds {len(side)} sentences, fewer than k = {k}: lower --k")
        sources, targets = (VectorStore.open(folder, side, identity).encode(encoder) for side in sides)
        pools = (sources, targets)
    accepts = None if pair_filter is None else pair_filter.accepts
    count = scoring.score_pairs(source, output, encoder, pools, k, margin, this_device(device), accepts)
    return ScoredPairs(count, None if pair_filter is None else CleaningReport({language: pair_filter.counts}))
