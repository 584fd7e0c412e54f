"""Pair skipped sentences whose translation is at another place: captions, notes and other moved text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hf_xsent.documents.anchors import mutual_neighbours
from hf_xsent.documents.beads import Scale
from hf_xsent.documents.search import MIN_SIMILARITY, Bead
from hf_xsent.documents.spans import Side


def pair_moved(source: Side, target: Side, scale: Scale, beads: Sequence[Bead]) -> list[Bead]:
    """Replace confident mutual nearest neighbours among the skipped sentences by 1–1 beads, in the source's order."""
    skipped = (
        np.array([one.start for one, other in beads if not other], np.int64),
        np.array([other.start for one, other in beads if not one], np.int64),
    )
    if not all(map(len, skipped)):
        return list(beads)
    rows, columns, similarity = mutual_neighbours(source.select(skipped[0]), target.select(skipped[1]), scale)
    confident = similarity >= MIN_SIMILARITY
    moved = dict(zip(skipped[0][rows[confident]].tolist(), skipped[1][columns[confident]].tolist(), strict=True))
    paired = set(moved.values())
    return [
        (one, range(moved[one.start], moved[one.start] + 1)) if not other and one.start in moved else (one, other)
        for one, other in beads
        if one or other.start not in paired
    ]
