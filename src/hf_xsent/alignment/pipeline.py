"""Links for all pairs of a file, in parts on disk, each written whole or not at all: a run goes on where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import torch
from tqdm import tqdm

from hf_xsent.alignment.aligners import AlignerSettings, WordAligner
from hf_xsent.data.readers.compression import is_jsonl, strip_compression
from hf_xsent.data.readers.formats import check_source, read_items, read_pairs
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.data.words.links import format_links
from hf_xsent.data.words.splitting import split_words
from hf_xsent.errors import DataError, OutputError
from hf_xsent.files import check_writable, digest, file_stamp, write_text
from hf_xsent.models.fingerprint import fingerprint_model

PAIRS_PER_PART = 2000

Pairs = Sequence[tuple[str, str]]

_aligner: WordAligner  # of a worker process


def align_file(
    source: BitextSource,
    output: str | Path,
    settings: AlignerSettings,
    work: str | Path | None = None,
    processes: int = 1,
    device: str | None = None,
) -> int:
    """Write the links of all pairs of a source: JSONL with the pairs where the name says so, else Pharaoh lines.

    Parts are kept in ``work`` (default: OUTPUT.work) under a name made of the file and the settings. Returns how many
    pairs have a link.
    """
    check_source(source)
    _check_output(source, output)
    for _ in tqdm(read_pairs(source), desc="checking", unit=" pairs", delay=2, disable=None):
        pass  # a bad line is told before hours of work
    aligner = settings.build(device)
    folder = Path(work or f"{output}.work") / _fingerprint(source, settings)
    folder.mkdir(parents=True, exist_ok=True)
    parts: Iterator[tuple[int, list[tuple[str, str]]]] = enumerate(_parts(source, aligner.learns))
    if processes == 1 or aligner.learns:
        for number, pairs in parts:
            if not _part(folder, number).is_file():
                _write_part(folder, number, _lines(aligner, pairs))
    else:
        del aligner
        missing = ((pairs, folder, number) for number, pairs in parts if not _part(folder, number).is_file())
        with get_context("spawn").Pool(processes, _start_worker, (settings, device, processes)) as pool:
            for _ in pool.imap_unordered(_work, missing):
                pass
    return _write(source, output, _all_lines(folder))


def convert_links(source: BitextSource, output: str | Path) -> int:
    """Write links that exist, such as another tool's, in the form that the name of ``output`` asks for."""
    check_source(source)
    _check_output(source, output)
    items = (_raised(item) for item in read_items(source))
    return _write(source, output, (links or "" for _, _, links in items))


def _raised(item: tuple[str, str, str | None] | DataError) -> tuple[str, str, str | None]:
    if isinstance(item, DataError):
        raise item
    return item


def _fingerprint(source: BitextSource, settings: AlignerSettings) -> str:
    stamps = [file_stamp(path) for path in source_files(source)]
    model = None if settings.model is None else fingerprint_model(settings.model)
    return digest([asdict(source), stamps, asdict(settings), model, PAIRS_PER_PART])


def _parts(source: BitextSource, whole: bool) -> Iterator[list[tuple[str, str]]]:
    pairs = iter(tqdm(read_pairs(source), desc="aligning", unit=" pairs", disable=None))
    while some := list(pairs if whole else islice(pairs, PAIRS_PER_PART)):
        yield some


def _lines(aligner: WordAligner, pairs: Pairs) -> list[str]:
    sides = [[split_words(text) for text in side] for side in zip(*pairs, strict=True)]
    return [format_links(links) for links in aligner.align(sides[0], sides[1])]


def _part(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.links"


def _write_part(folder: Path, number: int, lines: Sequence[str]) -> None:
    write_text(_part(folder, number), (f"{line}\n" for line in lines))


def _start_worker(settings: AlignerSettings, device: str | None, processes: int) -> None:
    global _aligner  # noqa: PLW0603 - what a pool's process keeps between its tasks
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    _aligner = settings.build(device)


def _work(task: tuple[Pairs, Path, int]) -> None:
    pairs, folder, number = task
    _write_part(folder, number, _lines(_aligner, pairs))


def _all_lines(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.links")):
        yield from path.read_text(encoding="utf-8").splitlines()


def _check_output(source: BitextSource, output: str | Path) -> None:
    """A file that can be written as its name says, and that nothing is read from."""
    output = Path(output)
    if strip_compression(output.name) != output.name:
        raise OutputError(f"links are written as they are, not compressed: name {output} without {output.suffix}")
    check_writable(output, [*source_files(source), *([source.links] if source.links else [])])


def _write(source: BitextSource, output: str | Path, lines: Iterator[str]) -> int:
    output = Path(output)
    jsonl = is_jsonl(output.name)
    linked = 0

    def written() -> Iterator[str]:
        nonlocal linked
        for (text, translation), links in zip(read_pairs(source), lines, strict=True):
            record = {"source": text, "target": translation, "links": links}
            yield (json.dumps(record, ensure_ascii=False) if jsonl else links) + "\n"
            linked += bool(links)

    write_text(output, written())
    return linked
