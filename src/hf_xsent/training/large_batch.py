"""Gradient caching (Gao et al., 2021): any batch in the memory of one chunk, with the gradients of the whole.

The pairs are encoded twice: first without gradients, chunk by chunk, to know the sentence vectors of the whole batch
and with them the gradients of the sentence losses; then again, with the same random numbers, to send these gradients on
into the encoder. Token losses add up over the chunks, and so are computed in the second pass alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from accelerate.utils import DistributedType
from torch import Tensor, nn
from transformers import Trainer

from hf_xsent.models.pretraining import AlignmentOutput, CachedBatch, SentenceEncoderForPreTraining
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.tensors.gathering import sum_over_processes

Batch = Mapping[str, Tensor]

_REPLICATED = (DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


def cached_loss(trainer: Trainer, model: nn.Module, batch: Batch, pairs_per_chunk: int) -> AlignmentOutput:
    """Compute the losses of the batch, with the backward pass of all chunks but the last, whose loss is returned.

    The value of that loss is the whole batch's; its gradient is the last chunk's, so that the Trainer's own backward
    pass finishes the step (and synchronises processes, which the others do not).
    """
    chunks = split_batch(batch, pairs_per_chunk)
    unwrapped: SentenceEncoderForPreTraining = trainer.accelerator.unwrap_model(model)
    states, parts, counts = [], [], defaultdict[str, list[list[Tensor]]](list)
    with torch.no_grad(), trainer.accelerator.autocast():
        for chunk in chunks:
            states.append(RandomState(trainer.args.device))
            encoded = unwrapped.encode_pairs(chunk)
            parts.append(encoded.sentences)
            for name, sampled in encoded.sampled.items():
                counts[name].append([part.count for part in sampled])
    total, losses, gradients = _sentence_gradients(unwrapped, parts)
    whole = {name: [sum_over_processes(sum(part)) for part in zip(*some, strict=True)] for name, some in counts.items()}
    sums = defaultdict[str, Tensor](lambda: torch.zeros((), device=trainer.args.device))
    unscaled = {"scale_wrt_gas": False} if trainer.accelerator.distributed_type is DistributedType.DEEPSPEED else {}
    last = AlignmentOutput()
    for number, (chunk, state) in enumerate(zip(chunks, states, strict=True)):
        state.restore()
        final = number == len(chunks) - 1
        cached = CachedBatch(gradients[number], whole)
        with nullcontext() if final else _without_sync(trainer, model):
            with _added_in_place(trainer, unwrapped, final):
                last = model(**chunk, cached=cached)
            for name, loss in last.losses.items():
                sums[name] += loss
            if not final:
                trainer.accelerator.backward(last.loss / trainer.current_gradient_accumulation_steps, **unscaled)
    losses |= {name: losses.get(name, 0) + loss for name, loss in sums.items()}
    value = total + sum(unwrapped.config.objectives[name].weight * loss for name, loss in sums.items())
    return AlignmentOutput(loss=last.loss + (value - last.loss).detach(), losses=losses)


def _sentence_gradients(
    model: SentenceEncoderForPreTraining, parts: list[SentencePairs]
) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
    """Compute the sentence losses of the whole batch, and their gradients for the vectors of each chunk."""
    whole = SentencePairs.joined(parts)
    vectors = [whole.source.requires_grad_(), whole.target.requires_grad_()]
    with torch.enable_grad():
        total, losses = model.sentence_loss(whole)
        known = total.requires_grad  # not where there are token losses alone
        gradients = torch.autograd.grad(total, vectors, allow_unused=True) if known else (None, None)
    sizes = [len(part.source) for part in parts]
    sides = [
        (torch.zeros_like(one) if gradient is None else gradient).split(sizes)
        for one, gradient in zip(vectors, gradients, strict=True)
    ]
    return total.detach(), losses, [torch.cat(both) for both in zip(*sides, strict=True)]


def split_batch(batch: Batch, pairs_per_chunk: int) -> list[dict[str, Tensor]]:
    """Split the batch into chunks."""
    count = len(batch["source_input_ids"])
    chunks = []
    for start in range(0, count, pairs_per_chunk):
        rows = slice(start, start + pairs_per_chunk)
        chunk = {name: one[rows] for name, one in batch.items() if name != "language_ids"}
        if "language_ids" in batch:
            chunk["language_ids"] = torch.cat([side[rows] for side in batch["language_ids"].chunk(2)])
        chunks.append(chunk)
    return chunks


class RandomState:
    """Remember the random states of CPU and device, for a second pass."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.accelerator = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        """Set them back."""
        torch.set_rng_state(self.cpu)
        if self.accelerator is not None:
            torch.cuda.set_rng_state(self.accelerator, self.device)


@contextmanager
def _added_in_place(trainer: Trainer, model: SentenceEncoderForPreTraining, final: bool) -> Iterator[None]:
    """Add a chunk's rows to the gradient of the word table, once there is one: a second table costs much memory.

    DDP exchanges a dense gradient after the last chunk; engines that shard gradients need a dense one of each.
    """
    words = model.backbone.word_embeddings
    kind = trainer.accelerator.distributed_type
    rows_will_do = kind is DistributedType.NO or (kind in _REPLICATED and not final)
    before = words.sparse
    words.sparse = rows_will_do and words.weight.grad is not None
    try:
        yield
    finally:
        words.sparse = before


@contextmanager
def _without_sync(trainer: Trainer, model: nn.Module) -> Iterator[None]:
    """Only add up the gradients of this chunk: no exchange between processes, no step of DeepSpeed's engine."""
    syncs = trainer.accelerator.sync_gradients
    with trainer.accelerator.no_sync(model):
        trainer.accelerator.sync_gradients = False
        try:
            yield
        finally:
            trainer.accelerator.sync_gradients = syncs
