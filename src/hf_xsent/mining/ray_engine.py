"""Compute the files of a store on a Ray cluster, whose machines share the work folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from hf_xsent.errors import MissingExtraError, OutputError
from hf_xsent.logs import Progress
from hf_xsent.mining.search import SearchJob
from hf_xsent.runs.store import Store


@dataclass(frozen=True)
class RayEngine:
    """Fill stores on the cluster at ``address`` (``auto``: this machine's; ``local``: a new one).

    If ``device`` is a GPU, each task requests one GPU from the cluster. Ray starts a task again if its worker dies.
    """

    address: str = "auto"
    device: str = "cpu"

    def __call__(self, store: Store, names: Sequence[str], job: Any, description: str) -> None:
        """Compute the missing results in any order."""
        ray = self._connect()
        gpus = int(self.device.startswith("cuda"))
        run = ray.remote(_run).options(num_gpus=gpus)
        shared = ray.put(job)  # sent once
        waiting = [run.remote(store, name, shared, "cuda" if gpus else "cpu") for name in store.missing(names)]
        with Progress(total=len(waiting), desc=description, unit=" files") as bar:
            while waiting:
                done, waiting = ray.wait(waiting)
                try:
                    ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None  # the exception of the task
                bar.update(len(done))
        if store.missing(names):
            raise OutputError(f"{store.folder} lacks results of other machines: mount it on each of the cluster")

    def _connect(self) -> Any:
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError('--engine ray needs Ray: run pip install "hf-xsent[ray]"') from error
        if not ray.is_initialized():
            try:
                ray.init(address=self.address, log_to_driver=False)
            except ConnectionError as error:
                raise OutputError(f"no Ray cluster at {self.address}: start one with ray start --head") from error
        return ray


def _run(store: Store, name: str, job: Any, device: str) -> None:
    """Compute a result in a worker, which sees only the GPU that Ray assigned."""
    if isinstance(job, SearchJob):
        job = replace(job, device=device)
    else:
        model = getattr(job, "model", None)
        if isinstance(module := getattr(model, "model", model), nn.Module):
            module.to(device)

    def write(path: Path) -> None:
        job(name, path)

    store.compute(name, write)
