"""A bridge to mteb: its own tasks over our records, so that a local folder is enough and nothing is downloaded.

import mteb
from sentence_transformers import SentenceTransformer

tasks = [mteb_task(TatoebaTask.load("data/tatoeba", ["de", "fr"])), mteb_task(Sts17Task.load("data/sts17"))]
mteb.evaluate(SentenceTransformer("exported"), tasks, cache=None)
"""

from __future__ import annotations

from typing import Any

from hf_xsent.data.benchmarks.bucc import BuccSet
from hf_xsent.data.benchmarks.sts import STS17_TRACKS
from hf_xsent.errors import DataError, MissingExtraError
from hf_xsent.evaluation.mining_f1 import BuccTask
from hf_xsent.evaluation.retrieval import TatoebaTask
from hf_xsent.evaluation.similarity import Sts17Task, Sts22Task
from hf_xsent.evaluation.task import EvaluationTask

_NAMES = {"tatoeba": "Tatoeba", "bucc": "BUCC", "sts17": "STS17", "sts22": "STS22.v2"}
_SPLIT = "test"


def mteb_task(task: EvaluationTask) -> Any:
    """The task of mteb that measures the same records, in the way that mteb measures.

    Its ``accuracy`` on Tatoeba is our ``forward``, its ``cosine_spearman`` our ``spearman``. Tracks that mteb does not
    have (4b of STS 2017) are left out. BUCC is another task there: the nearest target of each gold source.
    """
    try:
        import mteb
    except ImportError as error:
        raise MissingExtraError('this needs mteb: pip install "hf-xsent[mteb]"') from error
    subsets = _subsets(task)
    if not subsets:
        raise DataError(f"mteb's {_NAMES[task.name]} has none of these languages")
    theirs = mteb.get_task(_NAMES[task.name], hf_subsets=list(subsets))
    theirs.dataset = {name: {_SPLIT: columns} for name, columns in subsets.items()}
    theirs.data_loaded = True
    return theirs


def _subsets(task: EvaluationTask) -> dict[str, Any]:
    """The records by the names that mteb gives to languages."""
    from datasets import Dataset

    if isinstance(task, TatoebaTask):
        pairs = {f"{one.language}-eng": {"sentence1": one.sources, "sentence2": one.targets} for one in task.sets}
        return {name: Dataset.from_dict(columns) for name, columns in pairs.items()}
    if isinstance(task, BuccTask):
        first_splits = {one.pair: one for one in reversed(task.sets)}
        return {pair: _gold_sources(one) for pair, one in first_splits.items()}
    assert isinstance(task, Sts17Task | Sts22Task)
    named = {_hub_name(one.pair): one for one in task.sets}
    return {
        name: Dataset.from_dict({"sentence1": one.first, "sentence2": one.second, "score": one.gold})
        for name, one in named.items()
        if name
    }


def _hub_name(pair: str) -> str | None:
    return STS17_TRACKS[pair].on_hub if pair in STS17_TRACKS else pair


def _gold_sources(one: BuccSet) -> dict[str, list[Any]]:
    gold = sorted(one.gold)
    return {"sentence1": [one.sources[source] for source, _ in gold], "sentence2": one.targets, "gold": gold}
