"""Align the words of all pairs of a file, part by part, so that an interrupted run resumes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

from hf_xsent.data.pairs import open_pairs
from hf_xsent.data.readers.compression import check_text_output, is_jsonl
from hf_xsent.data.readers.formats import LinkedPair, read_pairs, read_valid_pairs
from hf_xsent.data.readers.records import pair_record
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.data.words.links import format_links, with_links
from hf_xsent.data.words.splitting import split_words
from hf_xsent.files import digest, write_text
from hf_xsent.logs import Progress
from hf_xsent.models.opening import is_first_process
from hf_xsent.runs.identity import identify_files, identify_model
from hf_xsent.runs.store import Store
from hf_xsent.settings.command import command
from hf_xsent.words.aligners import WordAligner, open_aligner
from hf_xsent.words.settings import AlignWordsSettings

PAIRS_PER_PART = 2000


@dataclass(frozen=True)
class AlignedPairs:
    """The number of pairs with links, and the file that has them."""

    pairs: int
    output: str

    def __str__(self) -> str:
        return f"{self.pairs:,} pairs with links are in {self.output}"


@command(AlignWordsSettings)
def align_words(settings: AlignWordsSettings) -> AlignedPairs | None:
    """Link the words of each pair, or convert links; write JSONL with the pairs, or Pharaoh lines.

    A higher ``threshold`` gives fewer, more precise links: embedding has probabilities (default 0.3), span sums of two
    (default 0.9). Of several processes, only the first writes and returns the number of pairs with links.

    ```python
    from hf_xsent import align_words

    aligned = align_words("pairs.tsv", "pairs.jsonl", model="xlm-roberta-base")
    ```
    """
    source = open_pairs(settings)
    check_text_output(settings.output, [*source_files(source), *filter(None, [settings.links])], jsonl=True)
    if settings.links:
        return _write(settings.output, with_links(read_valid_pairs(source), settings.links, settings.link_words))
    for _ in Progress(read_pairs(source), desc="checking", unit=" pairs", delay=2):
        pass  # raise an error for a bad line before hours of work
    aligner = open_aligner(settings)
    model = None if settings.model is None else identify_model(settings.model)
    contents = identify_files(source_files(source))
    decisive = [asdict(source), contents, settings.aligner, aligner.identity, model, PAIRS_PER_PART]
    store = Store(settings.work_folder / digest(decisive))
    if is_first_process():
        parts = (
            zip(part, _links(store, number, part, aligner), strict=True) for number, part in _parts(source, aligner)
        )
        return _write(settings.output, chain.from_iterable(parts))
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for number, part in _parts(source, aligner):
        if number % count == rank:
            _links(store, number, part, aligner)
    return None


def _parts(source: BitextSource, aligner: WordAligner) -> Iterator[tuple[int, list[LinkedPair]]]:
    """Yield the pairs in numbered parts."""
    pairs = iter(Progress(read_valid_pairs(source), desc="aligning", unit=" pairs"))
    number = 0
    while part := list(pairs if aligner.needs_all_pairs else islice(pairs, PAIRS_PER_PART)):
        yield number, part
        number += 1


def _links(store: Store, number: int, pairs: Sequence[LinkedPair], aligner: WordAligner) -> list[str]:
    """Return the links of each pair of a part, aligned now or by an earlier run."""
    return store.get(f"{number:06d}.links", partial(_write_links, aligner, pairs), _read_lines)


def _write_links(aligner: WordAligner, pairs: Sequence[LinkedPair], path: Path) -> None:
    sources, targets = [split_words(pair[0]) for pair in pairs], [split_words(pair[1]) for pair in pairs]
    path.write_text("".join(f"{format_links(links)}\n" for links in aligner.align(sources, targets)), "utf-8")


def _read_lines(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


def _write(output: str, linked_pairs: Iterator[tuple[LinkedPair, str]]) -> AlignedPairs:
    jsonl, count = is_jsonl(Path(output).name), 0

    def lines() -> Iterator[str]:
        nonlocal count
        for pair, links in linked_pairs:
            count += bool(links)
            yield (json.dumps(pair_record(*pair) | {"links": links}, ensure_ascii=False) if jsonl else links) + "\n"

    write_text(output, lines())
    return AlignedPairs(count, output)
