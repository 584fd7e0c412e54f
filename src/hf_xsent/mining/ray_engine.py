"""The same tasks on a Ray cluster: encoding and search on many machines that share the work folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from tqdm import tqdm

from hf_xsent.errors import MissingExtraError, OutputError
from hf_xsent.mining.search import SearchShard
from hf_xsent.mining.tasks import Task
from hf_xsent.models.encodes import SupportsEncode


@dataclass(frozen=True)
class RayEngine:
    """Runs tasks on the cluster at ``address`` (``auto``: the one of this machine; ``local``: one of its own).

    With a GPU as ``device`` each task asks the cluster for one, and computes there, whatever the number here.
    A task whose worker dies is run again; what it left half is not seen, since files are whole or not there.
    """

    address: str = "auto"
    device: str = "cpu"

    def __call__(self, tasks: Sequence[Task], doing: str, model: SupportsEncode | None = None) -> None:
        """Run what is missing, in any order."""
        ray = self._connect()
        missing = [task for task in tasks if not task.path.is_file()]
        gpus = int(self.device.startswith("cuda"))
        run = ray.remote(_run).options(num_gpus=gpus)
        with _on_cpu(model):
            shared = ray.put(model)  # the model travels once
        waiting = [run.remote(task, shared, "cuda" if gpus else "cpu") for task in missing]
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


def _run(task: Task, model: SupportsEncode | None, device: str) -> None:
    """In a worker, to which Ray shows no GPU but the task's own."""
    if task.path.is_file():  # of a worker that was lost, the file may be there all the same
        return
    if isinstance(task, SearchShard):
        task = replace(task, options=replace(task.options, device=device))
    if (module := _module(model)) is not None:
        module.to(device)
    task.run(model)


@contextmanager
def _on_cpu(model: SupportsEncode | None) -> Iterator[None]:
    """For a while, so that what is packed then can be opened where there is no such GPU."""
    module = _module(model)
    weight = None if module is None else next(module.parameters(), None)
    if module is None or weight is None:
        yield
        return
    home = weight.device
    module.to("cpu")
    try:
        yield
    finally:
        module.to(home)


def _module(model: SupportsEncode | None) -> nn.Module | None:
    """What of a model lies on a device."""
    inner = getattr(model, "model", model)
    return inner if isinstance(inner, nn.Module) else None
