"""Align the words of all pairs of a file, part by part, so that an interrupted run resumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hf_xsent.data.bitext import Bitext
from hf_xsent.data.output import check_output, write_records
from hf_xsent.data.pairs import open_pairs, record_of, store_pairs
from hf_xsent.data.readers.compression import is_jsonl
from hf_xsent.data.words.links import format_links
from hf_xsent.data.words.splitting import split_words
from hf_xsent.errors import OutputError
from hf_xsent.files import digest, write_text
from hf_xsent.runs.engines import engine, is_first_process
from hf_xsent.runs.identity import identify_model
from hf_xsent.runs.store import Store
from hf_xsent.settings.command import command
from hf_xsent.words.aligners import open_aligner
from hf_xsent.words.settings import AlignWordsSettings

PAIRS_PER_PART = 2000
_ALL_PAIRS = 1 << 40  # the statistical aligner estimates its model on all pairs


@dataclass(frozen=True)
class AlignedPairs:
    """The number of pairs with links, and the file that has them."""

    pairs: int
    output: str

    def __str__(self) -> str:
        return f"{self.pairs:,} pairs with links are in {self.output}"


@command(AlignWordsSettings)
def align_words(settings: AlignWordsSettings) -> AlignedPairs | None:
    """Link the words of each pair; write JSONL with the pairs, or Pharaoh lines.

    A higher ``threshold`` gives fewer, more precise links: embedding has probabilities (default 0.3), span sums of two
    (default 0.9). Of several processes, only the first writes and returns the number of pairs with links.

    ```python
    from hf_xsent import align_words

    aligned = align_words("pairs.tsv", "pairs.jsonl", model="xlm-roberta-base")
    ```
    """
    source = open_pairs(settings)
    if Path(settings.output).suffix.lower() in (".tsv", ".csv", ".parquet"):
        raise OutputError(f"cannot write {settings.output}: name the output .jsonl or .links")
    check_output(settings.output, source.files)
    size = _ALL_PAIRS if settings.aligner == "statistical" else PAIRS_PER_PART
    pairs = store_pairs({source.language: [source]}, settings.work_folder / "pairs")
    ours = settings if settings.engine == "local" else replace(settings, device="cpu")
    job = AlignmentJob(ours, pairs, size, settings)
    model = None if settings.model is None else identify_model(settings.model)
    decisive = [pairs.identity, size, settings.aligner, job.aligner.identity, model]
    store = Store(settings.work_folder / "links" / digest(decisive))
    counts = {f"{start:09d}.links": min(size, len(pairs) - start) for start in range(0, len(pairs), size)}
    engine(settings)(store, [*counts], job, "aligning")
    if not is_first_process():
        return None
    linked = zip(pairs, _links(store, counts), strict=True)
    if is_jsonl(Path(settings.output).name):
        write_records(settings.output, (), (record_of(pair) | {"links": links} for pair, links in linked))
    else:
        write_text(settings.output, (f"{links}\n" for _, links in linked))
    return AlignedPairs(sum(map(bool, _links(store, counts))), settings.output)


class AlignmentJob:
    """Write the links of each pair of a part as Pharaoh lines; a process that unpickles the job opens the aligner."""

    def __init__(
        self, settings: AlignWordsSettings, pairs: Bitext, pairs_per_part: int, of_workers: AlignWordsSettings
    ) -> None:
        self.aligner = open_aligner(settings)
        self.pairs, self.pairs_per_part, self.of_workers = pairs, pairs_per_part, of_workers

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings, not the model."""
        return type(self), (self.of_workers, self.pairs, self.pairs_per_part, self.of_workers)

    def __call__(self, name: str, path: Path) -> None:
        """Align the pairs, write their links."""
        start = int(Path(name).stem)
        pairs = list(self.pairs[start : start + self.pairs_per_part])
        sources, targets = ([split_words(pair[side]) for pair in pairs] for side in ("source", "target"))
        aligned = self.aligner.align(sources, targets)
        path.write_text("".join(f"{format_links(links)}\n" for links in aligned), "utf-8")


def _links(store: Store, counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the links of each pair, from files with these numbers of lines."""
    for name, count in counts.items():
        yield from store.read(name, partial(_read_links, count))


def _read_links(count: int, path: Path) -> list[str]:
    *lines, last = path.read_text("utf-8").split("\n")
    if last or len(lines) != count:
        raise ValueError(f"{len(lines)} lines, not {count}")
    return lines
