"""Fill stores in this process, shared with those that torchrun starts, or by the workers of a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from hf_xsent.errors import HfXsentError, MissingExtraError, OutputError, RecipeError
from hf_xsent.logs import Progress
from hf_xsent.runs.store import Store
from hf_xsent.settings.common import WorkSettings

# Computes the missing results of a store: names of files, the job that writes each, a label for progress.
Fill = Callable[[Store, Sequence[str], Any, str], None]
_BLOCKS = 64  # of a data set per worker: a block is what a worker gets at once


def engine(settings: WorkSettings) -> Fill:
    """Return what fills the stores of a command."""
    if settings.engine == "local":
        if (settings.address, settings.worker_cpus) != ("auto", 1):
            raise RecipeError("--address and --worker_cpus are those of a Ray cluster: add --engine ray")
        return Store.fill
    return RayEngine(settings.address, settings.worker_cpus, getattr(settings, "device", None))


def is_first_process() -> bool:
    """Return whether this process writes the results of all processes, which torchrun starts."""
    return int(os.environ.get("RANK", 0)) == 0


@dataclass(frozen=True)
class RayEngine:
    """Fill stores by Ray Data: the names of missing results are a data set, a pool of workers computes them.

    Each worker copies the job once, so that it opens the model once, and takes ``cpus`` cores, or a GPU if the cluster
    has any and ``device`` is not cpu. Ray replaces workers that die and repeats what they computed. All machines must
    share the work folder.
    """

    address: str = "auto"
    cpus: int = 1
    device: str | None = None

    def __call__(self, store: Store, names: Sequence[str], job: Any, description: str) -> None:
        """Compute the missing results in any order."""
        missing = store.missing(names)
        if not missing:
            return
        ray = self._connect()
        available = ray.cluster_resources()
        gpus = 0 if self.device == "cpu" else int(available.get("GPU", 0))
        workers = max(1, min(len(missing), gpus or int(available["CPU"]) // self.cpus))
        pool = ray.data.ActorPoolStrategy(min_size=1, max_size=workers, initial_size=workers)
        done = ray.data.from_items(missing, override_num_blocks=min(len(missing), _BLOCKS * workers)).map_batches(
            _Worker,
            fn_constructor_args=(store, job, os.getcwd()),
            batch_size=1,
            compute=pool,
            num_cpus=self.cpus,
            num_gpus=1 if gpus else None,
        )
        try:
            with Progress(total=len(missing), desc=description, unit=" files") as bar:
                for _ in done.iter_rows():
                    bar.update()
        except ray.exceptions.RayTaskError as error:
            raise _original(error) from None
        if store.missing(names):
            raise OutputError(f"{store.folder} lacks results of other machines: mount it on each of the cluster")

    def _connect(self) -> Any:
        try:
            import ray
            import ray.data
        except ImportError as error:
            raise MissingExtraError('--engine ray needs Ray Data: run pip install "hf-xsent[ray]"') from error
        if not ray.is_initialized():
            try:
                ray.init(address=self.address, log_to_driver=False)
            except ConnectionError as error:
                raise OutputError(f"no Ray cluster at {self.address}: start one with ray start --head") from error
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors of workers are raised here
        context = ray.data.DataContext.get_current()
        context.raise_original_map_exception = True
        context.enable_progress_bars = context.print_on_execution_start = False
        return ray


class _Worker:
    """Compute results in a process of the cluster, which sees only the GPU that Ray assigned to it."""

    def __init__(self, store: Store, job: Any, folder: str) -> None:
        with suppress(OSError):
            os.chdir(folder)  # that of the command, from which relative paths start
        self.store, self.job = store, job

    def __call__(self, batch: Any) -> Any:
        for name in map(str, batch["item"]):
            self.store.compute(name, partial(self.job, name))
        return batch


def _original(error: Any) -> BaseException:
    """Return our error that a worker raised, or Ray's error."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, HfXsentError):
        cause = getattr(cause, "cause", None) or cause.__cause__
    return cause or error
