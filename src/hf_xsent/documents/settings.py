"""Declare the settings of aligning documents, without importing torch."""

from __future__ import annotations

from dataclasses import dataclass

from hf_xsent.data.languages import find_language
from hf_xsent.errors import RecipeError
from hf_xsent.settings.common import EncodingSettings, WorkSettings, output_setting
from hf_xsent.settings.declare import setting


@dataclass(frozen=True, kw_only=True)
class AlignDocumentsSettings(EncodingSettings, WorkSettings):
    """Align the sentences of documents with those of their translations, in order, and write the pairs.

    hf-xsent align-documents book.de.txt book.fr.txt --model runs/mine -o pairs.tsv
    hf-xsent align-documents "de/*.txt" "fr/*.txt" --model runs/mine -o pairs.jsonl --split text --languages de fr
    torchrun --nproc_per_node 8 --no-python hf-xsent align-documents …   # share the documents among processes

    Interrupted? The same command resumes: the alignments of documents are cached in the work folder.
    """

    source: str = setting(
        None,
        "A document, or a folder or glob of them; plain or .gz, .bz2, .xz, .zst.",
        positional=True,
        required=True,
    )
    target: str = setting(
        None, "Its translation, or a folder (equal names) or glob (equal matches of *).", positional=True, required=True
    )
    output: str = output_setting("Write the pairs to this TSV, JSONL or Parquet file.")
    split: str = setting(
        "lines",
        "Documents have one sentence per line (lines), or running text to be split into sentences (text).",
        choices=("lines", "text"),
    )
    languages: list[str] | None = setting(
        None,
        "Language codes of both sides, for --split text. (default: identified)",
        metavar="CODE",
    )
    threshold: float | None = setting(
        None, "Minimum score of a pair: random sentences score 0, equal embeddings 1.", results=False
    )
    on_error: str = setting(
        "raise",
        "At a document that cannot be read or aligned, stop (raise), or skip, count and report it (skip).",
        choices=("raise", "skip"),
    )
    max_length: int | None = setting(
        None,
        "Truncate sentences to N tokens. (default: 256, or the model's if longer; an opened model's own)",
        at_least=3,
    )

    def __post_init__(self) -> None:
        """Refuse unknown languages, and languages of lines, which are not split."""
        if self.languages is not None and self.split == "lines":
            raise RecipeError("--languages has the rules of sentence splitting: add --split text")
        if self.languages is not None and len(self.languages) != 2:
            raise RecipeError(f"--languages takes the codes of source and target, not {len(self.languages)}")
        for code in self.languages or ():
            find_language(code)
