"""Report the batch and the weights of a step whose loss or gradients are NaN or infinite."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hf_xsent.errors import TrainingError
from hf_xsent.files import write_text


def bad_step(trainer: Any, what: str, batch: Mapping[str, Any]) -> TrainingError:
    """Write this process's batch to a file, and build an error with the step and the first suspect pair."""
    args, step = trainer.args, trainer.state.global_step + 1
    if "source_input_ids" not in batch:  # features
        return TrainingError(
            f"step {step}: {what}: lower the learning rate, or clip the critic's weights (--clip 0.01), and continue "
            "from the last checkpoint with --resume_with_changes"
        )
    model = trainer.accelerator.unwrap_model(trainer.model)
    sides = [
        trainer.tokenizer.batch_decode(batch[f"{side}_input_ids"], skip_special_tokens=True)
        for side in ("source", "target")
    ]
    pairs = list(zip(*sides, strict=True))
    not_finite = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
    rows = range(len(pairs)) if not_finite else _rows_not_finite(model, batch) or range(len(pairs))
    of_process = f".{args.process_index}" if args.world_size > 1 else ""
    file = Path(str(args.output_dir)) / f"bad_batch{of_process}.jsonl"
    records = (
        {"source": source, "target": target, "suspect": row in rows} for row, (source, target) in enumerate(pairs)
    )
    write_text(file, (json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    state = f"weights are NaN or infinite, {not_finite[0]} first" if not_finite else "all weights are finite"
    return TrainingError(
        f"step {step}: {what}, in a batch of {len(pairs)} pairs; look first at {pairs[rows[0]]!r} (all in {file}); "
        f"{state}: lower the learning rate or drop these sentences, and continue from the last checkpoint with "
        "--resume_with_changes"
    )


@torch.no_grad()
def _rows_not_finite(model: Any, batch: Mapping[str, Any]) -> list[int]:
    """Find the pairs with a NaN or infinite sentence embedding."""
    sentences = model.sentence_pairs(batch)
    finite = sentences.source.isfinite().all(-1) & sentences.target.isfinite().all(-1)
    rows: list[int] = (~finite).nonzero().flatten().tolist()
    return rows
