"""Gradient caching (Gao et al., 2021): the gradients of the full batch, in the memory of one chunk.

1. Encode the pairs chunk by chunk without gradients, to get the sentence embeddings of the whole batch.
2. Compute the sentence losses of the batch and their gradients with respect to these embeddings and to the objectives'
   own weights.
3. Encode the chunks again with the same random numbers, and backpropagate the cached gradients into the encoder.

Token losses are sums over chunks: each chunk's is computed in its second pass, step 3, from its hidden states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from accelerate.utils import DistributedType
from torch import Tensor, nn
from transformers import Trainer

from hf_xsent.compat import return_freed_memory
from hf_xsent.models.pretraining import AlignmentOutput, CachedBatch, SentenceEncoderForPreTraining
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.tensors.gathering import sum_over_processes

Batch = Mapping[str, Tensor]

_REPLICATED = (DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
_MANY_CHUNKS = 16  # at which the time to return freed memory does not matter


def cached_loss(trainer: Trainer, model: nn.Module, batch: Batch, pairs_per_chunk: int) -> AlignmentOutput:
    """Run the backward passes of all chunks but the last, and return the loss of the batch.

    The gradients of these chunks are in ``weight.grad`` on return, not averaged over processes. The returned loss has
    the value of the full batch and the gradient of the last chunk: the Trainer's backward pass adds this gradient and
    averages over processes.
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
    many = len(chunks) >= _MANY_CHUNKS and trainer.args.device.type == "cpu"
    if many:
        return_freed_memory()
    total, losses, gradients = _sentence_gradients(unwrapped, parts, batch)
    if many:
        return_freed_memory()
    total_counts = {
        name: [sum_over_processes(sum(part)) for part in zip(*of_chunks, strict=True)]
        for name, of_chunks in counts.items()
    }
    sums = defaultdict[str, Tensor](lambda: torch.zeros((), device=trainer.args.device))
    unscaled = {"scale_wrt_gas": False} if trainer.accelerator.distributed_type is DistributedType.DEEPSPEED else {}
    last = AlignmentOutput()
    for number, (chunk, state) in enumerate(zip(chunks, states, strict=True)):
        state.restore()
        final = number == len(chunks) - 1
        embeddings = torch.cat([of_chunks[number] for of_chunks in gradients.embeddings])
        cached = CachedBatch(embeddings, gradients.weights if final else {}, total_counts)
        with nullcontext() if final else _no_sync(trainer, model):
            with _sparse_words(trainer, unwrapped, final):
                last = model(**chunk, cached=cached)
            for name, loss in last.losses.items():
                sums[name] += loss
            if not final:
                trainer.accelerator.backward(last.loss / trainer.current_gradient_accumulation_steps, **unscaled)
    losses |= {name: losses.get(name, 0) + loss for name, loss in sums.items()}
    value = total + sum(unwrapped.config.objectives[name].weight * loss for name, loss in sums.items())
    return AlignmentOutput(loss=last.loss + (value - last.loss).detach(), losses=losses)


class SentenceGradients(NamedTuple):
    """The gradients of a batch's sentence losses."""

    embeddings: list[Sequence[Tensor]]  # of each field of ``SentencePairs.trained``: those of each chunk
    weights: dict[str, Tensor]  # of the objectives' weights, by name


def _sentence_gradients(
    model: SentenceEncoderForPreTraining, parts: list[SentencePairs], batch: Batch
) -> tuple[Tensor, dict[str, Tensor], SentenceGradients]:
    """Compute the sentence losses of the full batch, and their gradients.

    Gradients are float32 or wider: that of one pair is small in a large batch, and fp16's scaler has not scaled it yet.
    ``parts`` is emptied, to free its memory.
    """
    whole = SentencePairs.joined(parts)
    sizes = [{name: len(vectors) for name, vectors in part.trained().items()} for part in parts]
    parts.clear()
    wide: Any = {
        name: vectors.to(torch.promote_types(vectors.dtype, torch.float32)) for name, vectors in whole.trained().items()
    }
    whole = replace(whole, **wide)
    embeddings = {name: vectors.requires_grad_() for name, vectors in whole.trained().items()}
    weights = {name: weight for name, weight in model.objectives.named_parameters() if weight.requires_grad}
    inputs = [*embeddings.values(), *weights.values()]
    with torch.enable_grad():
        total, losses = model.sentence_loss(whole, batch)
        trained = total.requires_grad  # false if all objectives are token losses
        gradients = torch.autograd.grad(total, inputs, allow_unused=True) if trained else [None] * len(inputs)
    of_embeddings, of_weights = gradients[: len(embeddings)], gradients[len(embeddings) :]
    by_field = [
        (torch.zeros_like(vectors) if gradient is None else gradient).split([size[name] for size in sizes])
        for (name, vectors), gradient in zip(embeddings.items(), of_embeddings, strict=True)
    ]
    named = zip(weights, of_weights, strict=True)
    by_weight = {name: gradient for name, gradient in named if gradient is not None}
    return total.detach(), losses, SentenceGradients(by_field, by_weight)


def split_batch(batch: Batch, pairs_per_chunk: int) -> list[dict[str, Tensor]]:
    """Split the batch into chunks of pairs; ``language_ids`` holds all sources, then all targets."""
    count = len(batch["source_input_ids"])
    chunks = []
    for start in range(0, count, pairs_per_chunk):
        rows = slice(start, start + pairs_per_chunk)
        whole = {name: value for name, value in batch.items() if name != "language_ids" and "_negative_" not in name}
        chunk = {name: value[rows] for name, value in whole.items()}
        for side in ("source", "target"):
            if (pair := batch.get(f"{side}_negative_rows")) is not None:
                own = (pair >= rows.start) & (pair < rows.stop)
                for what in ("input_ids", "attention_mask", "rows"):
                    chunk[f"{side}_negative_{what}"] = batch[f"{side}_negative_{what}"][own]
                chunk[f"{side}_negative_rows"] = chunk[f"{side}_negative_rows"] - start
        if "language_ids" in batch:
            chunk["language_ids"] = torch.cat([side[rows] for side in batch["language_ids"].chunk(2)])
        chunks.append(chunk)
    return chunks


class RandomState:
    """The random states of CPU and GPU before a chunk, which its second pass restores."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.accelerator = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        """Set both random states."""
        torch.set_rng_state(self.cpu)
        if self.accelerator is not None:
            torch.cuda.set_rng_state(self.accelerator, self.device)


@contextmanager
def _sparse_words(trainer: Trainer, model: SentenceEncoderForPreTraining, final: bool) -> Iterator[None]:
    """Use sparse gradients of the word embeddings after the first chunk, to save the memory of a second dense gradient.

    DDP needs a dense gradient in the last chunk, DeepSpeed in every chunk.
    """
    words = model.backbone.word_embeddings
    kind = trainer.accelerator.distributed_type
    sparse_suffices = kind is DistributedType.NO or (kind in _REPLICATED and not final)
    before = words.sparse
    words.sparse = sparse_suffices and words.weight.grad is not None
    try:
        yield
    finally:
        words.sparse = before


@contextmanager
def _no_sync(trainer: Trainer, model: nn.Module) -> Iterator[None]:
    """Accumulate gradients without averaging them over processes, and without a step of DeepSpeed's engine."""
    syncs = trainer.accelerator.sync_gradients
    with trainer.accelerator.no_sync(model):
        trainer.accelerator.sync_gradients = False
        try:
            yield
        finally:
            trainer.accelerator.sync_gradients = syncs
