"""Run mteb's tasks on records from a local folder, without downloads.

import mteb
from sentence_transformers import SentenceTransformer

tasks = [mteb_task(TatoebaTask.load("data/tatoeba", ["de", "fr"])), mteb_task(Sts17Task.load("data/sts17"))]
mteb.evaluate(SentenceTransformer("exported"), tasks, cache=None)
"""

from __future__ import annotations

from typing import Any

from hf_xsent.data.benchmarks.sts import STS17_TRACKS
from hf_xsent.errors import DataError, MissingExtraError
from hf_xsent.evaluation.mining_f1 import BuccTask
from hf_xsent.evaluation.retrieval import TatoebaTask
from hf_xsent.evaluation.similarity import Sts17Task, Sts22Task
from hf_xsent.evaluation.task import EvaluationTask

_NAMES = {"tatoeba": "Tatoeba", "bucc": "BUCC", "sts17": "STS17", "sts22": "STS22.v2"}
_SPLIT = "test"


def mteb_task(task: EvaluationTask) -> Any:
    """Return mteb's task with the records of ``task``.

    On Tatoeba, mteb's ``accuracy`` × 100 equals our ``forward``, except for ties of repeated sentences. On STS, mteb's
    ``cosine_spearman`` × 100 equals our ``spearman``, except if all cosines are equal (0 here, NaN in mteb). Track 4b
    of STS 2017, which mteb does not have, is dropped. mteb's BUCC is a different task: for each source that has a gold
    translation, retrieve the nearest target. For BUCC, the returned task has one split of each language
    pair: the first that exists of sample, dev, training and test.
    """
    try:
        import mteb
    except ImportError as error:
        raise MissingExtraError('this needs mteb: pip install "hf-xsent[mteb]"') from error
    if task.name not in _NAMES:
        raise DataError(f"mteb has no task for {task.name}, only for {', '.join(_NAMES)}")
    subsets = _subsets(task)
    theirs = mteb.get_task(_NAMES[task.name], hf_subsets=list(subsets))
    theirs.dataset = {name: {_SPLIT: columns} for name, columns in subsets.items()}
    theirs.data_loaded = True
    return theirs


def _subsets(task: EvaluationTask) -> dict[str, Any]:
    """Return the records by mteb's names of languages."""
    from datasets import Dataset

    if isinstance(task, TatoebaTask):
        pairs = {
            f"{test_set.language}-eng": {"sentence1": test_set.sources, "sentence2": test_set.targets}
            for test_set in task.sets
        }
        return {name: Dataset.from_dict(columns) for name, columns in pairs.items()}
    if isinstance(task, BuccTask):
        first_splits = {bucc.pair: bucc for bucc in reversed(task.sets)}
        return {
            pair: {
                "sentence1": [bucc.sources[source] for source, _ in sorted(bucc.gold)],
                "sentence2": bucc.targets,
                "gold": sorted(bucc.gold),
            }
            for pair, bucc in first_splits.items()
        }
    assert isinstance(task, Sts17Task | Sts22Task)
    subsets = {}
    for test_set in task.sets:
        pair = test_set.language
        if name := STS17_TRACKS[pair].on_hub if pair in STS17_TRACKS else pair:
            columns = {"sentence1": test_set.sources, "sentence2": test_set.targets, "score": test_set.gold}
            subsets[name] = Dataset.from_dict(columns)
    if not subsets:
        names = ", ".join(test_set.language for test_set in task.sets)
        raise DataError(f"mteb's {_NAMES[task.name]} does not have {names}: choose other language pairs")
    return subsets
