"""End a run that cannot go on: SIGTERM saves a checkpoint, a NaN or infinite loss names its step and sentences."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_xsent.errors import TrainingError
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining

SIDES = ("source", "target")


class StopOnSigterm(TrainerCallback):
    """On SIGTERM, which spot machines send, finish the step and save a checkpoint: ``requested`` on all processes."""

    def __init__(self) -> None:
        self.received = self.requested = False
        self._before: Any = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Install the signal handler, which only a main thread may."""
        self.received = self.requested = False
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._receive)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Stop all processes after the same step, whichever received the signal."""
        told = self.received
        if args.world_size > 1:
            flag = torch.tensor(int(told), device=args.device)
            torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
            told = bool(flag)
        if told:
            self.requested = control.should_save = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restore the earlier signal handler."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = True


def broken_step(
    what: str,
    step: int,
    batch: Mapping[str, Any],
    model: SentenceEncoderForPreTraining,
    tokenizer: PreTrainedTokenizerBase,
    file: Path,
) -> TrainingError:
    """Build the error that names the step and the sentences, and write the process's batch to ``file``."""
    sides = [tokenizer.batch_decode(batch[f"{side}_input_ids"], skip_special_tokens=True) for side in SIDES]
    pairs = list(zip(*sides, strict=True))
    weights = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
    suspects = pairs if weights else [pairs[row] for row in _without_vector(batch, model)] or pairs
    file.parent.mkdir(parents=True, exist_ok=True)
    records = ({**dict(zip(SIDES, pair, strict=True)), "suspect": pair in suspects} for pair in pairs)
    lines = (json.dumps(record, ensure_ascii=False) for record in records)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    state = f"weights are NaN or infinite already, {weights[0]} first" if weights else "the weights are sound"
    return TrainingError(
        f"step {step}: {what}, in a batch of {len(pairs)} pairs; look first at {suspects[0]!r} (all in {file}); "
        f"{state}: lower the learning rate or leave these sentences out, and --resume the last checkpoint"
    )


@torch.no_grad()
def _without_vector(batch: Mapping[str, Any], model: SentenceEncoderForPreTraining) -> list[int]:
    """Find the pairs with a NaN or infinite sentence vector."""
    sentences = model.encode_pairs(batch).sentences
    sound = sentences.source.isfinite().all(-1) & sentences.target.isfinite().all(-1)
    return (~sound).nonzero().flatten().tolist()
