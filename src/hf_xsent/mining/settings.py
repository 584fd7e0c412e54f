"""Declare the settings of the mining commands, without importing torch."""

from __future__ import annotations

from dataclasses import dataclass

from hf_xsent.errors import RecipeError
from hf_xsent.settings.common import EncodingSettings, WorkSettings
from hf_xsent.settings.declare import setting


@dataclass(frozen=True, kw_only=True)
class MineSettings(EncodingSettings, WorkSettings):
    """Find translations among the lines of two text files.

    hf-xsent mine news.zh.txt news.en.txt --model runs/mine --output pairs.tsv --threshold 1.06
    torchrun --nproc_per_node 8 --no-python hf-xsent mine …   # share encoding and search among processes
    hf-xsent mine … --engine ray --address auto   # or among Ray workers, which must share the work folder

    Interrupted? The same command resumes: embeddings and neighbours are cached in the work folder.
    """

    source: str = setting(
        None, "Sentences of one language, one per line; plain or .gz, .bz2, .xz, .zst.", positional=True, required=True
    )
    target: str = setting(None, "Sentences of the other language, one per line.", positional=True, required=True)
    output: str = setting(
        None, "Write the pairs to this TSV file, best first.", metavar="FILE", required=True, aliases=("o",)
    )
    margin: str = setting(
        "ratio",
        "Score by cosine / neighbours' mean cosine (ratio), cosine - that mean (distance), or cosine (absolute).",
        choices=("ratio", "distance", "absolute"),
    )
    candidates: str = setting(
        "max",
        "Take best targets of sources (forward), the reverse (backward), both (intersection), or each once (max).",
        choices=("max", "forward", "backward", "intersection"),
    )
    threshold: float | None = setting(None, "Minimum score of a pair; 1.06 is usual for ratio.")
    calibrate: str | None = setting(
        None,
        "Choose the threshold with the best F1 on this TSV of some gold pairs (texts or line numbers).",
        metavar="GOLD",
    )
    top: int | None = setting(None, "Write the N best pairs. (default: all)", at_least=1)
    plot: str | None = setting(None, "Plot the histogram of scores to this SVG file.", metavar="FILE", local=True)
    index: str | None = setting(
        None, "Search a faiss index such as IVF4096,Flat instead of all sentences. (default: exact search)"
    )
    probes: int = setting(32, "Number of cells of an IVF index to search per sentence (nprobe).", at_least=1)
    engine: str = setting("local", "Run on this machine or on a Ray cluster.", choices=("local", "ray"), local=True)
    address: str = setting("auto", "Address of the Ray cluster; auto: the running one, local: a new one.", local=True)
    memory_mib: int = setting(512, "Maximum memory of the search's blocks, in MiB.", at_least=1, local=True)
    vectors: str = setting("float32", "Store embeddings in this precision.", choices=("float32", "float16"))
    k: int = setting(4, "Average the cosines of N nearest neighbours in the margin.", at_least=1)

    def __post_init__(self) -> None:
        """Check the settings that exclude each other."""
        if self.threshold is not None and self.calibrate is not None:
            raise RecipeError(
                f"threshold is {self.threshold}, but calibrate would choose one from {self.calibrate}: set only one of "
                "them"
            )
