"""Count the pairs that cleaning removed, by language and rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hf_xsent.errors import DataError


@dataclass
class CleaningCounts:
    """Counts of one language's rows: ``read = retained + bad + sum(removed)``."""

    read: int = 0
    retained: int = 0
    bad: int = 0
    removed: dict[str, int] = field(default_factory=dict)

    def remove(self, rule: str, count: int = 1) -> None:
        """Count pairs that a rule removed."""
        if count:
            self.removed[rule] = self.removed.get(rule, 0) + count

    def __add__(self, other: CleaningCounts) -> CleaningCounts:
        removed = dict(Counter(self.removed) + Counter(other.removed))
        return CleaningCounts(self.read + other.read, self.retained + other.retained, self.bad + other.bad, removed)

    def require_pairs(self, name: str) -> None:
        """Raise a `DataError` with the reasons if no pair is retained."""
        if self.retained:
            return
        if not self.read:
            raise DataError(f"{name} has no pairs; check its format and columns")
        reasons = [f"{rule} removed {count}" for rule, count in Counter(self.removed).most_common()]
        reasons += [f"{self.bad} were bad rows"] if self.bad else []
        raise DataError(f"cleaning removed all {self.read} pairs of {name}: {', '.join(reasons)}; "
                        "check the language and columns, or relax the rule")  # fmt: skip


@dataclass
class CleaningReport:
    """Counts of cleaning by language."""

    languages: dict[str, CleaningCounts] = field(default_factory=dict)

    @property
    def total(self) -> CleaningCounts:
        """Return the sum over all languages."""
        return sum(self.languages.values(), CleaningCounts())

    def of_part(self, retained: Mapping[str, int], rule: str) -> CleaningReport:
        """Return the report of a part of the pairs; all others count as removed by ``rule``."""
        part = {}
        for name, count in self.languages.items():
            left = retained.get(name, 0)
            part[name] = replace(count, retained=left, removed=dict(count.removed))
            part[name].remove(rule, count.retained - left)
        return CleaningReport(part)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {name: asdict(count) for name, count in {**self.languages, "total": self.total}.items()}

    def table(self) -> str:
        """Return a text table: one line per language, one column for each rule that removed anything."""
        total = self.total
        rules = list(total.removed)
        lines = [["language", "read", "retained", "bad", *rules]]
        for name, count in {**self.languages, "total": total}.items():
            numbers = [count.read, count.retained, count.bad, *(count.removed.get(rule, 0) for rule in rules)]
            lines.append([name, *(f"{number:,}" for number in numbers)])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        layout = "  ".join([f"{{:<{widths[0]}}}", *(f"{{:>{width}}}" for width in widths[1:])])
        return "\n".join(layout.format(*line) for line in lines)
