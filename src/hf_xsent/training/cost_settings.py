"""Declare the settings of ``cost``, without importing torch."""

from __future__ import annotations

from dataclasses import dataclass

from hf_xsent.settings.declare import setting


@dataclass(frozen=True, kw_only=True)
class CostSettings:
    """Measure what training methods cost on one encoder: operations and time per pair.

    hf-xsent cost xlm-roberta-base --data de=pairs.tsv --methods tr tr+tlm dap --output cost.json
    """

    model: str = setting(None, "Measure with this encoder: a folder or a Hub id.", positional=True, required=True)
    data: list[str] = setting(
        None, "Read sentence pairs from these files.", required=True, named=True, metavar="CODE=FILE"
    )
    methods: list[str] = setting(
        ["tr", "tr+tlm", "dap"],
        "Measure these methods.",
        choices=("tr", "tr+mlm", "tr+tlm", "dap", "ppa", "wacse"),
    )
    pairs: int = setting(32, "Batch size in pairs.", at_least=2)
    max_length: int = setting(32, "Truncate sentences to N tokens.", at_least=2)
    repeats: int = setting(5, "Report the median of N steps.", at_least=1)
    device: str | None = setting(
        None, "Compute on this torch device. (default: a GPU if available, else the CPU)", local=True
    )
    output: str | None = setting(
        None,
        "Write the results to this JSON file, too. (default: only show them)",
        metavar="FILE",
        local=True,
        aliases=("o",),
    )
