"""The same tasks on a Ray cluster: encoding and search on many machines that share the work folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from hf_xsent.errors import MissingExtraError, OutputError
from hf_xsent.mining.tasks import Task
from hf_xsent.models.encodes import Encodes


@dataclass(frozen=True)
class RayEngine:
    """Runs tasks on the cluster at ``address`` (``auto``: the one of this machine; ``local``: one of its own).

    A task whose worker dies is run again; what it left half is not seen, since files are whole or not there.
    """

    address: str = "auto"

    def __call__(self, tasks: Sequence[Task], doing: str, model: Encodes | None = None) -> None:
        """Run what is missing, in any order."""
        ray = self._connect()
        missing = [task for task in tasks if not task.path.is_file()]
        run, shared = ray.remote(_run), ray.put(model)  # the model travels once
        waiting = [run.remote(task, shared) for task in missing]
        with tqdm(total=len(waiting), desc=doing, unit=" shards", disable=None) as bar:
            while waiting:
                done, waiting = ray.wait(waiting)
                try:
                    ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None  # what the task raised
                bar.update(len(done))
        for task in tasks:
            if not task.path.is_file():
                raise OutputError(f"{task.path} was made elsewhere: every machine of the cluster needs this folder")

    def _connect(self) -> Any:
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError('--engine ray needs Ray: run pip install "hf-xsent[ray]"') from error
        if not ray.is_initialized():
            try:
                ray.init(address=self.address, log_to_driver=False)
            except ConnectionError as error:
                raise OutputError(
                    f"no Ray cluster answers at {self.address}: start one with ray start --head"
                ) from error
        return ray


def _run(task: Task, model: Encodes | None) -> None:
    if not task.path.is_file():  # of a worker that was lost, the file may be there all the same
        task.run(model)
