"""Align the words of sentence pairs, and the sentences of files of documents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_xsent.alignment.aligners import AlignerSettings
from hf_xsent.alignment.pipeline import align_source, convert_links
from hf_xsent.api.opening import one_source, open_encoder, this_device, this_process, work_folder
from hf_xsent.data.readers.columns import Columns
from hf_xsent.data.readers.formats import OnError
from hf_xsent.documents import pipeline
from hf_xsent.documents.alignment import open_model
from hf_xsent.documents.reading import pair_documents
from hf_xsent.errors import RecipeError
from hf_xsent.files import check_writable


def align_words(
    pairs: Any,
    output: str | Path,
    model: str | None = None,
    *,
    aligner: str = "embedding",
    layer: int | None = None,
    threshold: float | None = None,
    links: str | Path | None = None,
    link_words: str = "script",
    language: str = "und",
    columns: Columns | Mapping[str, Columns] | None = None,
    work: str | Path | None = None,
    processes: int = 1,
    precision: str = "float32",
    device: str | None = None,
) -> int:
    """Link the words of each pair; write JSONL with links or Pharaoh lines, return how many pairs have links.

    ``aligner`` is embedding (by the hidden states of a ``layer`` of the encoder ``model``), statistical (eflomal) or
    span (a WSPAlign ``model``). A higher ``threshold`` gives fewer, more precise links: embedding has probabilities
    (default 0.3), span sums of two (default 0.9). With ``links``, another tool's links are converted instead.

    ```python
    from hf_xsent import align_words

    linked = align_words("pairs.tsv", "pairs.jsonl", "xlm-roberta-base")
    ```
    """
    if processes < 1:
        raise RecipeError(f"--processes {processes} is not positive")
    given = {language: str(links)} if links else None
    if links and (model, aligner, layer, threshold) != (None, "embedding", None, None):
        raise RecipeError(
            "--links converts links instead of aligning: omit --model, --aligner, --layer and --threshold"
        )
    if not links and link_words != "script":
        raise RecipeError(f"--link_words {link_words} describes --links FILE: state it, or omit --link_words")
    source = one_source(pairs, language, "en", columns, links=given, link_words=link_words)
    if given:
        return convert_links(source, output)
    settings = AlignerSettings(aligner, model, layer, threshold, precision)
    settings.check()
    return align_source(source, output, settings, work, processes, device)


def align_document_files(
    source: str,
    target: str,
    output: str | Path,
    model: Any,
    *,
    split: str = "lines",
    languages: tuple[str, str] | None = None,
    threshold: float | None = None,
    on_error: OnError = "raise",
    work: str | Path | None = None,
    pooling: str | None = None,
    max_length: int | None = None,
    precision: str = "float32",
    device: str | None = None,
) -> int | None:
    """Align documents with their translations, and write the sentence pairs to a TSV or JSONL file.

    ``source`` and ``target`` are files, folders (equal names) or globs (equal matches of ``*``); ``split="text"``
    splits running text into sentences. ``on_error="skip"`` skips documents that cannot be read or aligned, with a
    warning. For lists of sentences use ``align_documents``. Of several processes, only rank 0 writes the output and
    returns the number of pairs.

    ```python
    from hf_xsent import align_document_files

    count = align_document_files("book.de.txt", "book.fr.txt", "pairs.tsv", "runs/mine", languages=("de", "fr"))
    ```
    """
    settings = pipeline.DocumentSettings(split, languages, threshold, on_error)
    documents = pair_documents(source, target, on_error)
    check_writable(output, [file for _, *both in documents for file in both])
    options = {
        "pooling": pooling,
        "max_length": max_length,
        "precision": precision,
        "device": this_device(device),
    }
    encoder, identity = open_encoder(model, options, open_model)
    folder = work_folder(work, output)
    return pipeline.align_document_files(documents, output, encoder, identity, folder, settings, this_process())
