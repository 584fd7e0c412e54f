"""Align all pairs of a file in parts, each written atomically, so that an interrupted run continues."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import torch

from hf_xsent.alignment.aligners import AlignerSettings, WordAligner
from hf_xsent.data.readers.compression import is_jsonl, strip_compression
from hf_xsent.data.readers.formats import check_source, read_pairs, read_valid_pairs
from hf_xsent.data.readers.records import pair_record
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.data.words.links import format_links
from hf_xsent.data.words.splitting import split_words
from hf_xsent.errors import OutputError
from hf_xsent.files import check_writable, create_folder, digest, file_stamp, write_text
from hf_xsent.logs import Progress
from hf_xsent.models.fingerprint import fingerprint_model
from hf_xsent.stored_lines import read_with_checksum, write_with_checksum

Pairs = list[tuple[str, str]]
PAIRS_PER_PART = 2000

logger = logging.getLogger(__name__)

_aligner: WordAligner  # of a worker process


def align_source(
    source: BitextSource,
    output: str | Path,
    settings: AlignerSettings,
    work: str | Path | None = None,
    processes: int = 1,
    device: str | None = None,
) -> int:
    """Write the links of all pairs of a source: JSONL with the pairs if ``output`` is named .jsonl, else Pharaoh.

    Finished parts are stored in ``work`` (default: OUTPUT.work), in a subfolder named by a hash of file and settings.
    Return the number of pairs with links.
    """
    _check_files(source, output)
    for _ in Progress(read_pairs(source), desc="checking", unit=" pairs", delay=2):
        pass  # raise an error for a bad line before hours of work
    aligner = settings.build(device)
    folder = create_folder(Path(work or f"{output}.work") / _fingerprint(source, settings, aligner))
    missing = (
        (folder / f"{number:06d}.links", pairs)
        for number, pairs in enumerate(_parts(source, aligner.needs_all_pairs))
        if not _is_complete(folder / f"{number:06d}.links", pairs)
    )
    if processes == 1 or aligner.needs_all_pairs:
        for path, pairs in missing:
            _write_part(aligner, path, pairs)
    else:
        del aligner
        with get_context("spawn").Pool(processes, _start_worker, (settings, device, processes)) as pool:
            for _ in pool.imap_unordered(_write_part_in_worker, missing):
                pass
    links = (line for path in sorted(folder.glob("*.links")) for line in read_with_checksum(path) or [])
    return _write(source, output, links)


def convert_links(source: BitextSource, output: str | Path) -> int:
    """Write existing links, such as another tool's, in the format that the name of ``output`` says."""
    _check_files(source, output)
    return _write(source, output, (pair[2] or "" for pair in read_valid_pairs(source)))


def _check_files(source: BitextSource, output: str | Path) -> None:
    """Refuse a source that cannot be read, and an output that cannot be written or is an input."""
    check_source(source)
    output = Path(output)
    if strip_compression(output.name) != output.name:
        raise OutputError(
            f"cannot write links to a compressed file: name the output without {output.suffix}, not {output}"
        )
    check_writable(output, [*source_files(source), *([source.links] if source.links else [])])


def _fingerprint(source: BitextSource, settings: AlignerSettings, aligner: WordAligner) -> str:
    stamps = [file_stamp(path) for path in source_files(source)]
    model = None if settings.model is None else fingerprint_model(settings.model)
    return digest([asdict(source), stamps, settings.name, aligner.identity, model, PAIRS_PER_PART])


def _parts(source: BitextSource, all_in_one: bool) -> Iterator[Pairs]:
    pairs = iter(Progress(read_pairs(source), desc="aligning", unit=" pairs"))
    while part := list(pairs if all_in_one else islice(pairs, PAIRS_PER_PART)):
        yield part


def _write_part(aligner: WordAligner, path: Path, pairs: Pairs) -> None:
    sides = [[split_words(text) for text in side] for side in zip(*pairs, strict=True)]
    write_with_checksum(path, (format_links(links) for links in aligner.align(*sides)))


def _is_complete(path: Path, pairs: Pairs) -> bool:
    """Return whether the file of a part holds links of each pair; warn if it is damaged."""
    if not path.exists():
        return False
    if len(read_with_checksum(path) or []) == len(pairs):
        return True
    logger.warning("%s is damaged: it is computed again", path)
    return False


def _start_worker(settings: AlignerSettings, device: str | None, processes: int) -> None:
    global _aligner  # noqa: PLW0603 - a pool has no other place for the state of a worker
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    _aligner = settings.build(device)


def _write_part_in_worker(part: tuple[Path, Pairs]) -> None:
    _write_part(_aligner, *part)


def _write(source: BitextSource, output: str | Path, lines: Iterator[str]) -> int:
    jsonl = is_jsonl(Path(output).name)
    linked = 0

    def written() -> Iterator[str]:
        nonlocal linked
        for pair, links in zip(read_valid_pairs(source), lines, strict=True):
            record = pair_record(*pair) | {"links": links}
            yield (json.dumps(record, ensure_ascii=False) if jsonl else links) + "\n"
            linked += bool(links)

    write_text(output, written())
    return linked
