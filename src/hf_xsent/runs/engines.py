"""Fill stores in this process, shared with those that torchrun starts, or by the workers of a Ray cluster."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from hf_xsent.errors import HfXsentError, OutputError, RecipeError, import_extra
from hf_xsent.logs import Progress
from hf_xsent.runs.store import Store
from hf_xsent.settings.common import WorkSettings

# Computes the missing results of a store: names of files, the job that writes each, a label for progress.
Fill = Callable[[Store, Sequence[str], Any, str], None]
_MOST_DEATHS = 3  # of workers that compute the same result


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


class RayEngine:
    """Fill stores by workers of a Ray cluster, which stay for all stores of a command.

    Each worker opens the model once per store, and takes ``cpus`` cores, or a GPU if the cluster has any and ``device``
    is not cpu. A worker whose process or machine dies is replaced, and its result computed again. All machines must
    share the work folder.
    """

    def __init__(self, address: str = "auto", cpus: int = 1, device: str | None = None) -> None:
        self.address, self.cpus, self.device = address, cpus, device
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[Any, str | None]] = {}  # worker, and what it computes: None while it starts

    def __call__(self, store: Store, names: Sequence[str], job: Any, description: str) -> None:
        """Compute the missing results in any order."""
        missing = store.missing(names)
        if not missing:
            return
        ray = self._connect()
        try:
            self._start(ray, len(missing))
            with Progress(total=len(missing), desc=description, unit=" files") as bar:
                self._compute(ray, store, missing, ray.put((store, job)), bar)
        except BaseException:
            self._idle, self._busy = [], {}  # Ray ends workers without a handle
            raise
        if store.missing(names):
            raise OutputError(f"{store.folder} lacks results of other machines: mount it on each of the cluster")

    def _start(self, ray: Any, results: int) -> None:
        """Start as many workers as can compute at once."""
        available = ray.cluster_resources()
        gpus = 0 if self.device == "cpu" else int(available.get("GPU", 0))
        self._worker = ray.remote(num_cpus=self.cpus, num_gpus=min(gpus, 1))(_Worker)
        workers = max(1, min(results, gpus or int(available["CPU"]) // self.cpus))
        for _ in range(workers - len(self._idle) - len(self._busy)):
            self._add_worker()

    def _add_worker(self) -> None:
        worker = self._worker.remote(os.getcwd())
        self._busy[worker.__ray_ready__.remote()] = worker, None

    def _compute(self, ray: Any, store: Store, missing: list[str], work: Any, bar: Progress) -> None:
        """Give each idle worker a result to compute until all are there."""
        waiting, left, deaths = deque(missing), {*missing}, Counter[str | None]()
        while left:
            while waiting and self._idle:
                worker, result = self._idle.pop(), waiting.popleft()
                self._busy[worker.compute.remote([work], result)] = worker, result
            (done,), _ = ray.wait([*self._busy])
            worker, name = self._busy.pop(done)
            try:
                ray.get(done)
            except ray.exceptions.RayActorError as error:
                deaths[name] += 1
                if deaths[name] > _MOST_DEATHS:
                    task = f"computing {store.path(name)}" if name else "when they started"
                    raise OutputError(f"{deaths[name]} Ray workers died {task}: {error}") from None
                self._add_worker()
                waiting.extend([name] if name else [])
            except ray.exceptions.RayTaskError as error:
                raise error.cause if isinstance(error.cause, HfXsentError | OSError) else error from None
            else:
                deaths.pop(name, None)
                self._idle.append(worker)
                if name is not None:
                    left.remove(name)
                    bar.update()

    def _connect(self) -> Any:
        ray = import_extra("ray", "--engine ray", "ray")
        if not ray.is_initialized():
            try:
                ray.init(address=self.address, log_to_driver=False)
            except (ConnectionError, ValueError) as error:
                raise OutputError(
                    f"no Ray cluster at {self.address}: start one with ray start --head, and give HOST:PORT"
                ) from error
        return ray


class _Worker:
    """Compute results in a process of the cluster, which sees only the GPU that Ray assigned to it."""

    def __init__(self, folder: str) -> None:
        with suppress(OSError):
            os.chdir(folder)  # that of the command, from which relative paths start
        self.work: dict[Any, tuple[Store, Any]] = {}  # copied once, with the model that the job opens

    def compute(self, work: list[Any], name: str) -> None:
        """Compute a result of a store by its job; ``work`` refers to both."""
        import ray

        if work[0] not in self.work:
            self.work[work[0]] = ray.get(work[0])
        store, job = self.work[work[0]]
        store.compute(name, partial(job, name))
