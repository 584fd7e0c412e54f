"""Score existing pairs, such as crawled bitext, by cosine or, with pools of sentences, by margin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from hf_xsent.data.readers.formats import check_source, read_pairs
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.files import check_writable
from hf_xsent.logs import Progress
from hf_xsent.mining.margin import margin_score
from hf_xsent.mining.neighbours import Vectors, nearest_one_way
from hf_xsent.mining.output import one_line, write_table
from hf_xsent.models.encode_interface import SupportsEncode, check_finite

COLUMNS = ("score", "cosine", "source", "target")
_PAIRS_PER_BLOCK = 1 << 14


def score_pairs(
    source: BitextSource,
    output: str | Path,
    model: SupportsEncode,
    pools: tuple[Vectors, Vectors] | None = None,
    k: int = 4,
    margin: str = "ratio",
    device: str | torch.device = "cpu",
    accepts: Callable[[str, str, float], bool] | None = None,
) -> int:
    """Write ``score``, ``cosine`` and both texts of each pair of a file, in its order; return the number of pairs.

    Without ``pools``, the score is the cosine. With ``pools`` (embeddings of other source and target sentences), it is
    the margin: each sentence is compared with its ``k`` nearest in the pool of the other side, on ``device``. With
    ``accepts``, a function of both texts and the score, only pairs for which it returns true are written. Memory does
    not grow with the file.
    """
    check_writable(output, source_files(source))
    check_source(source)
    pairs = iter(Progress(read_pairs(source), desc="scoring", unit=" pairs"))
    blocks = iter(lambda: list(islice(pairs, _PAIRS_PER_BLOCK)), [])
    rows = (row for block in blocks for row in _rows(block, model, pools, k, margin, device))
    if accepts is not None:
        rows = (row for row in rows if accepts(row[2], row[3], float(row[0])))
    return write_table(output, COLUMNS, rows)


def _rows(
    pairs: list[tuple[str, str]],
    model: SupportsEncode,
    pools: tuple[Vectors, Vectors] | None,
    k: int,
    margin: str,
    device: str | torch.device,
) -> Iterator[tuple[str, ...]]:
    sides = [_embed(model, list(side)) for side in zip(*pairs, strict=True)]
    source, target = (torch.nn.functional.normalize(side, dim=1) for side in sides)
    cosines = (source * target).sum(1)
    scores = cosines
    if pools is not None:
        averages = [
            nearest_one_way(side, pool, k, device=device).cosines.mean(1)
            for side, pool in ((source, pools[1]), (target, pools[0]))
        ]
        scores = margin_score(cosines, averages[0], averages[1], margin)
    for (text, translation), score, cosine in zip(pairs, scores.tolist(), cosines.tolist(), strict=True):
        yield f"{score:.6f}", f"{cosine:.6f}", one_line(text), one_line(translation)


def _embed(model: SupportsEncode, texts: list[str]) -> torch.Tensor:
    vectors = np.asarray(model.encode(texts))
    check_finite(vectors, str(vectors.dtype), lambda row: repr(texts[row][:40]))
    return torch.from_numpy(vectors).float()
