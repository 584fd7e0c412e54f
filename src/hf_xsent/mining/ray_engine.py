"""Run shards on a Ray cluster: encode and search on many machines that share the work folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from hf_xsent.errors import MissingExtraError, OutputError
from hf_xsent.logs import Progress
from hf_xsent.mining.search import SearchShard
from hf_xsent.mining.shards import Shard, missing_shards
from hf_xsent.models.encode_interface import SupportsEncode


@dataclass(frozen=True)
class RayEngine:
    """A runner of shards on the cluster at ``address`` (``auto``: this machine's; ``local``: a new one).

    If ``device`` is a GPU, each shard requests one GPU from the cluster. Ray restarts a shard if its worker dies; files
    are written atomically, so a partial result is never read.
    """

    address: str = "auto"
    device: str = "cpu"

    def __call__(self, shards: Sequence[Shard], description: str, model: SupportsEncode | None = None) -> None:
        """Run the missing shards in any order."""
        ray = self._connect()
        missing = missing_shards(shards)
        gpus = int(self.device.startswith("cuda"))
        run = ray.remote(_run).options(num_gpus=gpus)
        module = _module(model)
        device = None if module is None else next((weight.device for weight in module.parameters()), None)
        if module is not None:
            module.to("cpu")  # workers without this GPU cannot unpickle it
        try:
            shared = ray.put(model)  # sent once
        finally:
            if module is not None and device is not None:
                module.to(device)
        waiting = [run.remote(shard, shared, "cuda" if gpus else "cpu") for shard in missing]
        with Progress(total=len(waiting), desc=description, unit=" shards") as bar:
            while waiting:
                done, waiting = ray.wait(waiting)
                try:
                    ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None  # the exception of the shard
                bar.update(len(done))
        for shard in shards:
            if not shard.path.is_file():
                raise OutputError(
                    f"{shard.path} is missing, although its task ended: mount {shard.path.parent} on every machine of "
                    "the cluster"
                )

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


def _run(shard: Shard, model: SupportsEncode | None, device: str) -> None:
    """Run a shard in a worker, which sees only the GPU that Ray assigned."""
    if shard.is_complete():  # a worker that died may have written it
        return
    if isinstance(shard, SearchShard):
        shard = replace(shard, options=replace(shard.options, device=device))
    if (module := _module(model)) is not None:
        module.to(device)
    shard.run(model)


def _module(model: SupportsEncode | None) -> nn.Module | None:
    """Return the torch module of a model, if it has one."""
    inner = getattr(model, "model", model)
    return inner if isinstance(inner, nn.Module) else None
