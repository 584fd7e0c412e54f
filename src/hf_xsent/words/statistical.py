"""Align words with eflomal (Östling and Tiedemann, 2016), a statistical model estimated on the given pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from hf_xsent.data.words.links import Link, parse_links
from hf_xsent.data.words.splitting import Words
from hf_xsent.errors import import_extra

_MAX_WORDS = 1000  # per sentence, the limit of eflomal


class StatisticalAligner:
    """An aligner trained on the pairs it aligns (better with more pairs), symmetrised by grow-diag-final-and."""

    identity: tuple[()] = ()

    def __init__(self) -> None:
        self._library = import_extra("align", "the statistical aligner", "eflomal")

    def align(self, sources: Sequence[Words], targets: Sequence[Words]) -> list[list[Link]]:
        """Return the links of each pair."""
        texts = [[" ".join(words.strings[:_MAX_WORDS]) for words in side] for side in (sources, targets)]
        with TemporaryDirectory() as folder:
            files = [Path(folder) / name for name in ("forward", "backward")]
            names = [str(file) for file in files]
            self._library.Aligner().align(*texts, links_filename_fwd=names[0], links_filename_rev=names[1])
            lines = [file.read_text(encoding="utf-8").splitlines() for file in files]
        return [grow_diag_final_and(set(parse_links(a)), set(parse_links(b))) for a, b in zip(*lines, strict=True)]


def grow_diag_final_and(forward: set[Link], backward: set[Link]) -> list[Link]:
    """Merge the links of both directions (Koehn et al., 2005), common links first.

    Start with the links that both directions have. Repeatedly add links of either direction next to an accepted one
    (also diagonally), if at least one of their two words is still unlinked. Then add the other links whose two words
    are both unlinked.
    """
    links = sorted(forward & backward)
    union = forward | backward
    sources, targets = {i for i, _ in links}, {j for _, j in links}

    def add(link: Link) -> None:
        links.append(link)
        sources.add(link[0])
        targets.add(link[1])

    grown = True
    while grown:
        grown = False
        for i, j in list(links):
            for link in ((i + di, j + dj) for di in (-1, 0, 1) for dj in (-1, 0, 1)):
                if link in union and (link[0] not in sources or link[1] not in targets):
                    add(link)
                    grown = True
    for link in sorted(union):
        if link[0] not in sources and link[1] not in targets:
            add(link)
    return links
