"""Word links from the bitext's own statistics, without any model: eflomal (Östling and Tiedemann, 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hf_xsent.data.words.links import Link, parse_links
from hf_xsent.data.words.splitting import Words
from hf_xsent.errors import MissingExtraError

_MOST_WORDS = 1000  # of a sentence, of which eflomal takes no more


class StatisticalAligner:
    """Learns from the pairs it aligns, the more of them the better, in both directions; grow-diag-final-and."""

    learns = True

    def __init__(self) -> None:
        self._library = _eflomal()

    def align(self, sources: Sequence[Words], targets: Sequence[Words]) -> list[list[Link]]:
        """The links of each pair."""
        texts = [[" ".join(words.strings[:_MOST_WORDS]) for words in side] for side in (sources, targets)]
        with TemporaryDirectory() as folder:
            files = [Path(folder) / name for name in ("forward", "backward")]
            names = [str(file) for file in files]
            self._library.Aligner().align(*texts, links_filename_fwd=names[0], links_filename_rev=names[1])
            lines = [file.read_text(encoding="utf-8").splitlines() for file in files]
        return [grow_diag_final_and(set(parse_links(a)), set(parse_links(b))) for a, b in zip(*lines, strict=True)]


def _eflomal() -> Any:
    try:
        import eflomal
    except ImportError as error:
        raise MissingExtraError('the statistical aligner needs eflomal; run pip install "hf-xsent[align]"') from error
    return eflomal


def grow_diag_final_and(forward: set[Link], backward: set[Link]) -> list[Link]:
    """One set of links from those of both directions (Koehn et al., 2005), the common ones first.

    From the common links on, neighbours of a link are taken where they link a word that has none; then all that is
    left where neither word has one.
    """
    links = sorted(forward & backward)
    union, taken = forward | backward, set(links)
    sources, targets = {i for i, _ in links}, {j for _, j in links}

    def take(link: Link) -> None:
        links.append(link)
        taken.add(link)
        sources.add(link[0])
        targets.add(link[1])

    grown = True
    while grown:
        grown = False
        for i, j in list(links):
            for link in ((i + di, j + dj) for di in (-1, 0, 1) for dj in (-1, 0, 1)):
                if link in union and link not in taken and (link[0] not in sources or link[1] not in targets):
                    take(link)
                    grown = True
    for link in sorted(union):
        if link[0] not in sources and link[1] not in targets:
            take(link)
    return links
