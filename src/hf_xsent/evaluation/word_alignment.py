"""Measure word alignment by a model's hidden states against gold links: the alignment error rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hf_xsent.data.benchmarks.gold_links import GoldPair, load_gold_links
from hf_xsent.data.readers.hub import select_names
from hf_xsent.errors import DataError, ModelError, RecipeError
from hf_xsent.evaluation.task import EvaluationTask, Metrics, Scores
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.words.embedding import THRESHOLD, EmbeddingAligner

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class GoldSet:
    """Sentence pairs with gold links of one language pair, such as zhen."""

    name: str
    pairs: list[GoldPair]


def load_gold_sets(source: str | PathLike[str], languages: Iterable[str] | None = None) -> list[GoldSet]:
    """Load ``SET.src-tgt`` and ``SET.gold`` of some sets, or of all in the folder."""
    folder = Path(source)
    names = sorted(path.stem for path in folder.glob("*.gold"))
    if not names:
        raise DataError(f"{folder} has no files SET.gold and SET.src-tgt, such as zhen.gold: give their folder")
    return [GoldSet(name, load_gold_links(folder / name)) for name in select_names(folder, names, languages)]


@dataclass(frozen=True)
class WordAlignmentTask(EvaluationTask):
    """Word alignment by hidden states (`EmbeddingAligner`), compared with manual gold links.

    The main score is 100 - AER, so that higher is better, as in all tasks. The layer with the lowest AER on the set
    ``choose`` is used for all sets; the last layer is measured too.
    """

    sets: Sequence[GoldSet]
    choose: str = ""

    name: ClassVar[str] = "word_alignment"
    unit: ClassVar[str] = "language pair"
    measures_any_data: ClassVar[bool] = True
    has_views: ClassVar[bool] = False
    title: ClassVar[str] = "Word alignment"
    protocol: ClassVar[str] = (
        f"alignment error rate (AER) of links by standardized hidden states (posterior of at least {THRESHOLD} in a "
        "hidden Markov model), measured twice: at the layer with the lowest AER on one set, and at the last layer"
    )
    headings: ClassVar[Mapping[str, str]] = {
        "pairs": "pairs",
        "agreement": "100 - AER",
        "error_rate": "AER",
        "last_error_rate": "AER, last layer",
        "layer": "layer",
    }
    main_metric: ClassVar[str] = "agreement"
    folders: ClassVar[tuple[str, ...]] = ()  # choose is required

    @classmethod
    def load(
        cls, source: str | PathLike[str], languages: Iterable[str] | None = None, choose: str | None = None
    ) -> Self:
        """Read some gold sets of a folder, or all; ``choose`` names the one on which the layer is chosen."""
        return cls(load_gold_sets(source, languages), choose or "")

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [gold.name for gold in self.sets]
        if self.choose not in names:
            raise RecipeError(
                f"word_alignment has no set {self.choose!r} on which the layer is chosen: give "
                f"--tasks.word_alignment.data FOLDER --tasks.word_alignment.choose SET, with one of {', '.join(names)}"
            )

    def inputs(self) -> Iterator[tuple[str, str]]:
        """Return no sentences: links need the hidden states of tokens, not embeddings of sentences."""
        return iter(())

    def texts(self, test_set: GoldSet) -> Iterable[str]:
        """Return the sentences and gold links of a set, and how links and layer are chosen."""
        yield f"{self.protocol} {test_set.name} {self.choose}"
        for pair in test_set.pairs:
            yield from (pair.source.text, pair.target.text, f"{sorted(pair.sure)} {sorted(pair.possible)}")

    def score(self, encode: Any) -> Scores:
        """Choose the layer on one set, then measure the error rate of each set with it and with the last layer.

        ``encode`` is a ``SentenceEmbedder``, or the encoder of ``evaluate``, which has one.
        """
        embedder = getattr(encode, "embedder", encode)
        if not isinstance(embedder, SentenceEmbedder):
            raise ModelError("word_alignment needs the hidden states of a model of this package: give its folder")
        depth = len(embedder.model.backbone.layers)
        chooser = next(gold for gold in self.sets if gold.name == self.choose)
        of_chooser = {layer: _counts(embedder, layer, chooser.pairs) for layer in range(1, depth + 1)}
        best = max(of_chooser, key=lambda layer: float(self.metrics(of_chooser[layer])[self.main_metric]))
        others: dict[str, Metrics] = {}
        rows: dict[str, np.ndarray] = {}
        for gold in self.sets:
            rows[gold.name], last = (
                of_chooser[layer] if gold is chooser else _counts(embedder, layer, gold.pairs)
                for layer in (best, depth)
            )
            others[gold.name] = {"last_error_rate": float(self.metrics(last)["error_rate"]), "layer": best}
        return self.scored(rows, others, {"all": [*rows]} | {name: [name] for name in rows})

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Compute AER and 100 - AER from the counts of links of some pairs.

        With aligned links A, sure links S and possible links P, S among them (Och and Ney, 2003):
        AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|).
        """
        links, sure, right_sure, right_possible = np.moveaxis(rows.sum(axis=-2), -1, 0)
        agreement = 100 * (right_sure + right_possible) / np.maximum(1, links + sure)
        return {"agreement": agreement, "error_rate": 100 - agreement}


def _counts(embedder: SentenceEmbedder, layer: int, pairs: Sequence[GoldPair]) -> np.ndarray:
    """Align the pairs, and count the links of each: aligned, sure, aligned and sure, aligned and possible."""
    aligner = EmbeddingAligner(embedder.model, embedder.tokenizer, layer)
    aligned = aligner.align([pair.source for pair in pairs], [pair.target for pair in pairs])
    counts = [
        (len(links), len(pair.sure), len(links & pair.sure), len(links & pair.possible))
        for links, pair in zip(map(set, aligned), pairs, strict=True)
    ]
    return np.array(counts, dtype=np.int64)
