"""Read the records of tasks on parallel text: the same sentences in each language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, ClassVar

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

    parallel: ClassVar[bool] = True

    @classmethod
    def load(
        cls, source: str | PathLike[str], languages: Iterable[str] | None = None, max_pairs: int | None = None
    ) -> Self:
        """Read parallel text in all or some languages; by default the first 300 lines."""
        return cls(load_parallel(source, languages, max_pairs or LINES))

    def inputs(self) -> Iterator[tuple[str, str]]:
        """Iterate over the sentences of all languages."""
        return (("", text) for test_set in self.sets for text in test_set.sentences)
