"""Pair skipped sentences with their translations elsewhere in the document: captions, notes and other moved text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hf_xsent.documents.anchors import mutual_neighbours
from hf_xsent.documents.beads import Scale
from hf_xsent.documents.search import MIN_SIMILARITY, Bead
from hf_xsent.documents.spans import EncodedDocument


def pair_moved(source: EncodedDocument, target: EncodedDocument, scale: Scale, beads: Sequence[Bead]) -> list[Bead]:
    """Pair confident mutual nearest neighbours among the skipped sentences, as 1–1 beads in source order."""
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
