"""Declare the settings of ``quickstart``, without importing torch."""

from __future__ import annotations

from dataclasses import dataclass

from hf_xsent.settings.declare import setting


@dataclass(frozen=True, kw_only=True)
class QuickstartSettings:
    """Try everything on this machine: read bitext, train, search a mixed pool before and after.

    hf-xsent quickstart
    hf-xsent quickstart --model xlm-roberta-base --data de=pairs.tsv

    Without --data it trains on the translations of Django's messages; without --model, it starts from a small encoder
    with random weights. It needs neither a network nor an accelerator.
    """

    model: str | None = setting(None, "Start from this encoder: a folder or a Hub id. (default: a small new one)")
    data: list[str] | None = setting(
        None,
        "Train on these pairs: de.tsv, de=pairs.tsv, train/{language}-en.tsv … (default: Django's messages)",
        named=True,
        metavar="CODE=FILE",
    )
    output: str | None = setting(
        None,
        "Write into this folder. (default: the first free of quickstart, quickstart-2, …)",
        metavar="FOLDER",
        aliases=("o",),
    )
    max_steps: int | None = setting(None, "Train for N steps. (default: 300, or 100 with --model)", at_least=1)
    dev_pairs: int = setting(60, "Hold out N pairs per language, and evaluate on them.", at_least=1)
    seed: int = setting(0, "Seed of weights, split and data order.", at_least=0, at_most=2**32 - 1)
