"""Run contenders in alternating steps, each in a separate process, so that other load affects all equally.

A contender is a function of a ``Turn`` and options; it calls ``turn.wait()`` before its first step and
``turn.done()`` after each one.
"""

from __future__ import annotations

import multiprocessing as mp
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any


class Turn:
    """The turn of one contender, which reports CPU seconds, wall seconds and page faults of its process per step."""

    def __init__(self, connection: Connection, steps: int) -> None:
        self.connection = connection
        self.steps = steps

    def wait(self) -> None:
        """Wait for the next turn."""
        self.connection.recv()
        self.started, self.clock, self.faults = time.process_time(), time.perf_counter(), _page_faults()

    def done(self) -> None:
        """Report the cost of the step, and wait for the next turn."""
        seconds, wall = time.process_time() - self.started, time.perf_counter() - self.clock
        self.connection.send((seconds, wall, _page_faults() - self.faults))
        self.wait()

    def as_callback(self) -> Any:
        """Return a Trainer callback that ends a step at ``on_step_end``."""
        from transformers import TrainerCallback

        turn = self

        class Turns(TrainerCallback):
            def on_train_begin(self, *_: Any, **__: Any) -> None:
                turn.wait()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                turn.done()

        return Turns()


Contender = Callable[..., None]


def take_turns(
    contenders: Mapping[str, Contender], steps: int, warmup: int, threads: int, **options: Any
) -> dict[str, dict[str, float]]:
    """Return medians of CPU seconds, wall seconds and page faults per step, and peak memory.

    The first ``warmup`` steps are not counted.
    """
    context = mp.get_context("spawn")
    lines: dict[str, Connection] = {}
    told: dict[str, list[tuple[float, float, int]]] = {name: [] for name in contenders}
    for name, contender in contenders.items():
        lines[name], other = context.Pipe()
        context.Process(target=_work, args=(contender, Turn(other, steps), threads, options), daemon=True).start()
        other.close()  # else recv waits forever for a contender that failed
    for step in range(steps):
        for name, line in lines.items():
            line.send("your turn")
            told[name].append(line.recv())
        print(step, {name: round(some[-1][0], 2) for name, some in told.items()}, file=sys.stderr, flush=True)
    result = {}
    for name, line in lines.items():
        line.send("finish")
        seconds, wall, faults = zip(*told[name][warmup:], strict=True)
        result[name] = {
            "cpu_seconds": round(statistics.median(seconds), 3),
            "wall_seconds": round(statistics.median(wall), 3),
            "page_faults": round(statistics.median(faults)),
            "peak_mib": round(line.recv()),
        }
    return result


def _work(contender: Contender, turn: Turn, threads: int, options: dict[str, Any]) -> None:
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    contender(turn, **options)
    turn.connection.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _page_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
