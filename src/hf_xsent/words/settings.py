"""Declare the settings of aligning words, without importing torch."""

from __future__ import annotations

from dataclasses import dataclass

from hf_xsent.data.pair_settings import PairSettings
from hf_xsent.errors import RecipeError
from hf_xsent.settings.common import WorkSettings, output_setting
from hf_xsent.settings.declare import setting


@dataclass(frozen=True, kw_only=True)
class AlignerSettings:
    """Which aligner links words, and how."""

    aligner: str = setting(
        "embedding",
        "Align by hidden states, by eflomal or by WSPAlign (span).",
        choices=("embedding", "statistical", "span"),
    )
    model: str | None = setting(
        None, "Encoder of the embedding or span aligner: a folder or a Hub id. Not required for eflomal."
    )
    layer: int | None = setting(
        None, "Compare the hidden states of this layer (embedding). (default: 0.6 of the encoder's layers)", at_least=0
    )
    threshold: float | None = setting(
        None,
        "Least score of a link, at most 1 (embedding) or 2 (span). (default: 0.3 for embedding, 0.9 for span)",
        above=0,
        at_most=2,
    )
    precision: str = setting(
        "float32",
        "Encode in this precision; auto: bfloat16 if that is faster on this device, which is measured.",
        choices=("float32", "auto", "bfloat16", "float16"),
    )
    device: str | None = setting(
        None, "Compute on this torch device. (default: a GPU per process if available, else the CPU)", local=True
    )

    def __post_init__(self) -> None:
        """Refuse settings that the aligner does not have."""
        if self.aligner != "statistical" and self.model is None:
            raise RecipeError(f"the {self.aligner} aligner needs a model: a folder or a Hub id")
        allowed = {"embedding": {"model", "layer", "threshold"}, "span": {"model", "threshold"}, "statistical": set()}
        for name in ("model", "layer", "threshold"):
            if getattr(self, name) is not None and name not in allowed[self.aligner]:
                raise RecipeError(f"the {self.aligner} aligner has no {name}: omit --{name}")
        if self.aligner == "embedding" and (self.threshold or 0) > 1:
            raise RecipeError(
                f"threshold {self.threshold} links no word: scores of the embedding aligner are at most 1"
            )


@dataclass(frozen=True, kw_only=True)
class AlignWordsSettings(AlignerSettings, WorkSettings, PairSettings):
    """Link the words of sentence pairs, for training with word alignment (WACSE).

    hf-xsent align-words pairs.tsv --model xlm-roberta-base -o pairs.jsonl   # then: … --data de=pairs.jsonl
    hf-xsent align-words pairs.tsv --aligner statistical -o pairs.links      # one line of links per pair
    torchrun --nproc_per_node 8 --no-python hf-xsent align-words …   # share the pairs among processes

    Interrupted? The same command resumes: links are cached in the work folder.
    """

    output: str = output_setting("Write pairs with links (.jsonl) or Pharaoh lines here.")
