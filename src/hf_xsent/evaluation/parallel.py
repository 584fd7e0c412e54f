"""Read the records of tasks on parallel text: the same sentences in each language."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from hf_xsent.data.benchmarks.parallel import ParallelSet, load_parallel
from hf_xsent.evaluation.task import EvaluationTask

if TYPE_CHECKING:
    from typing_extensions import Self

LINES = 300  # of each language
FOLDERS = ("ntrex", "flores", "flores200_dataset")


@dataclass(frozen=True)
class ParallelTask(EvaluationTask):
    """A task on the sentences of several languages, line i of which are translations."""

    sets: Sequence[ParallelSet]

    @classmethod
    def load(
        cls, source: str | PathLike[str], languages: Iterable[str] | None = None, max_pairs: int | None = None
    ) -> Self:
        """Read parallel text in all or some languages; by default the first 300 lines."""
        return cls(load_parallel(source, languages, max_pairs or LINES))

    def sides(self, test_set: ParallelSet) -> tuple[Sequence[str], Sequence[str]]:
        """Return the sentences; there is no other side."""
        return test_set.sentences, ()

    def texts(self, test_set: ParallelSet) -> Iterable[str]:
        """Return language and sentences."""
        return test_set.language, *test_set.sentences
