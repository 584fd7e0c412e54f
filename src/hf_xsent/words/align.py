"""Align the words of all pairs of a file, part by part, so that an interrupted run resumes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hf_xsent.data.output import check_output, write_records
from hf_xsent.data.pairs import PairParts, open_pairs, store_pairs
from hf_xsent.data.readers.compression import is_jsonl
from hf_xsent.data.readers.records import pair_record
from hf_xsent.data.readers.sources import source_files
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
    check_output(settings.output, source_files(source))
    if Path(settings.output).suffix.lower() == ".parquet":
        raise OutputError(f"cannot write {settings.output} as Parquet: name the output .jsonl or .links")
    size = _ALL_PAIRS if settings.aligner == "statistical" else PAIRS_PER_PART
    parts = store_pairs(settings.language, [source], settings.work_folder / "pairs", size)
    job = AlignmentJob(settings if settings.engine == "local" else replace(settings, device="cpu"), parts, settings)
    model = None if settings.model is None else identify_model(settings.model)
    decisive = [parts.fingerprint, settings.aligner, job.aligner.identity, model]
    store = Store(settings.work_folder / "links" / digest(decisive))
    names = [f"{number:06d}.links" for number in range(len(parts))]
    engine(settings)(store, names, job, "aligning")
    if not is_first_process():
        return None
    linked = (
        (pair, links)
        for name, part in zip(names, parts, strict=True)
        for pair, links in zip(part, store.read(name, _read_lines), strict=True)
    )
    return _write(settings.output, linked)


class AlignmentJob:
    """Write the links of each pair of a part as Pharaoh lines; a process that unpickles the job opens the aligner."""

    def __init__(self, settings: AlignWordsSettings, parts: PairParts, of_workers: AlignWordsSettings) -> None:
        self.aligner, self.parts, self.of_workers = open_aligner(settings), parts, of_workers

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the settings, not the model."""
        return type(self), (self.of_workers, self.parts, self.of_workers)

    def __call__(self, name: str, path: Path) -> None:
        """Align the pairs, write their links."""
        pairs = self.parts[int(Path(name).stem)]
        sources, targets = ([split_words(pair[side]) for pair in pairs] for side in range(2))
        aligned = self.aligner.align(sources, targets)
        path.write_text("".join(f"{format_links(links)}\n" for links in aligned), "utf-8")


def _read_lines(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


def _write(output: str, linked_pairs: Iterator[tuple[tuple[Any, ...], str]]) -> AlignedPairs:
    """Write pairs with links if the name is that of a JSON Lines file, else Pharaoh lines."""
    count = 0

    def counted() -> Iterator[tuple[tuple[Any, ...], str]]:
        nonlocal count
        for pair, links in linked_pairs:
            count += bool(links)
            yield pair, links

    if is_jsonl(Path(output).name):
        write_records(output, (), (pair_record(*pair) | {"links": links} for pair, links in counted()))
    else:
        write_text(output, (f"{links}\n" for _, links in counted()))
    return AlignedPairs(count, output)
