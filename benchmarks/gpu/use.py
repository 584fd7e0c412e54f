"""Measure encoding beside SentenceTransformer.encode, and exact mining by size."""

from __future__ import annotations

import time

import numpy as np
from setting import Setting, operations, peak_mib, peak_operations, repeated, sentences, token_counts
from steps import sentence_transformer


def encode(setting: Setting, contender: str, precision: str) -> None:
    """Encode sentences and report sentences per second."""
    import torch

    from hf_xsent import SentenceEmbedder

    dtype = getattr(torch, precision)
    texts = sentences(setting, 64 if setting.quick else 50_000)
    note = {}
    if contender == "ours":
        embedder = SentenceEmbedder.from_pretrained(
            setting.encoder, "mean", max_length=32, precision=dtype, device=setting.device
        )
        embedder.tokens_per_batch = 512 if setting.quick else 65_536

        def work() -> object:
            return embedder.encode(texts)
    else:
        model, note["note"] = sentence_transformer(setting, dtype=dtype)

        def work() -> object:
            return model.encode(texts, batch_size=8 if setting.quick else 2048, show_progress_bar=False)

    rate = len(texts) / min(repeated(setting, work, 5, 0.4))
    done = operations(setting, token_counts(texts)) / len(texts) * rate
    setting.report(
        sentences_per_second=round(rate, 1),
        peak_mib=peak_mib(setting.device),
        share_of_peak=round(done / peak_operations(setting, dtype), 4),
        **note,
    )


def mine(setting: Setting, precision: str) -> None:
    """Mine growing sizes, up to 1M × 1M, and stop before a size that the time does not suffice for."""
    import torch

    from hf_xsent.mining.neighbours import nearest_both_ways

    width = 32 if setting.quick else 768
    sizes = [500, 1000] if setting.quick else [50_000, 200_000, 1_000_000]
    before = None
    for count in sizes:
        if before is not None and (expected := before[1] * (count / before[0]) ** 2) > setting.left:
            setting.report(note=f"{count:,} × {count:,}: not run, expected {expected:.0f} s, {setting.left:.0f} s left")
            return
        generator = np.random.default_rng(0)
        source = generator.standard_normal((count, width), dtype=np.float32)
        target = generator.standard_normal((count, width), dtype=np.float32)
        target[: count // 2] += 1.5 * source[: count // 2]
        started = time.monotonic()
        _, of_target = nearest_both_ways(
            source,
            target,
            memory_mib=256 if setting.quick else 4096,
            device=setting.device,
            dtype=getattr(torch, precision),
        )
        before = (count, time.monotonic() - started)
        right = (of_target.indices[: count // 2, 0] == torch.arange(count // 2)).float().mean().item()
        setting.report(
            seconds=round(before[1], 2),
            cosines_per_second=round(count * count / before[1]),
            peak_mib=peak_mib(setting.device),
            note=f"{count:,} × {count:,} × {width}, {right:.2%} of the true pairs found",
        )
