"""Measure a dual-pivot epoch over cached features and one through the frozen encoder, in CPU and wall-clock seconds.

  OMP_NUM_THREADS=2 python benchmarks/dual_pivot.py --model ENCODER --data de=train/de-en.tsv.xz [--pairs 50000]

Features of the pairs' 100,000 sentences are random numbers of the real shape and type, memory-mapped like real ones;
the epoch reads every row once, in batches of 32. The encoder's cost is extrapolated from a few batches of the bitext.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

TRAINING: dict[str, Any] = {
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
    "max_grad_norm": 0.0,
    "save_strategy": "no",
    "eval_strategy": "no",
    "logging_steps": 500,
}
WAYS: dict[str, dict[str, Any]] = {
    "supervised": {"objectives": {"triplet_ranking": 1.0}},
    "unsupervised": {
        "objectives": {"adversarial": 1.0, "cycle": {"weight": 10.0, "negatives": 2, "margin": 0.2}},
    },
}


def main() -> None:
    """Train an epoch each way, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--pairs", type=int, default=50_000)
    parser.add_argument("--encoder_steps", type=int, default=5)
    parser.add_argument("--output", default="benchmarks/results/dual_pivot.json")
    options = parser.parse_args()

    from hf_xsent import AlignmentTrainingArguments, DualPivotForPreTraining, load_bitext
    from hf_xsent.data.sides import TextSides
    from hf_xsent.logs import configure_logging
    from hf_xsent.models.loading import load_tokenizer
    from hf_xsent.training.dual_pivot.features import FeatureCache, LayerSums
    from hf_xsent.training.trainer import AlignmentTrainer

    class RandomFeatures(FeatureCache):
        """Random features with the shape and files of real ones."""

        def layer_sums(self, sentences: Any) -> LayerSums:
            """Write one file per side."""
            numbers = np.random.default_rng(len(list(self.folder.glob("*.npy"))))
            path = self.folder / f"{len(list(self.folder.glob('*.npy')))}.npy"
            shape = (len(sentences), *self.embedder.shape)
            sums = np.lib.format.open_memmap(path, mode="w+", dtype=self.dtype, shape=shape)
            for start in range(0, len(sums), 5000):
                sums[start : start + 5000] = numbers.standard_normal(sums[start : start + 5000].shape, dtype=np.float32)
            identities = np.arange(len(sums), dtype=np.uint64)
            return LayerSums(path.stem, np.load(path, mmap_mode="r"), identities)

    configure_logging()
    tokenizer = load_tokenizer(options.model)
    results: dict[str, Any] = {"pairs": options.pairs, "batch": 32, "threads": torch.get_num_threads()}
    with tempfile.TemporaryDirectory() as folder:
        for way, settings in WAYS.items():
            for features in (True, False):
                model = DualPivotForPreTraining.from_backbone(options.model, max_length=64, **settings)
                steps = {} if features else {"max_steps": options.encoder_steps}
                stated: dict[str, Any] = {**TRAINING, "max_steps": -1, "num_train_epochs": 1, **steps}
                training = AlignmentTrainingArguments(output_dir=f"{folder}/run", use_cpu=True, **stated)
                cache = None
                if features:
                    cache = RandomFeatures(Path(folder) / way, model, tokenizer)
                    texts = ([f"s{n}" for n in range(options.pairs)], [f"t{n}" for n in range(options.pairs)])
                    rows: Any = TextSides({"de": texts}, shuffle_independently=not model.config.needs.pairs)
                else:
                    rows = load_bitext(options.data, max_pairs=5000)
                trainer = AlignmentTrainer(model, training, rows, processing_class=tokenizer, features=cache)
                clock, cpu = time.perf_counter(), time.process_time()
                trainer.train()
                taken = {"seconds": time.perf_counter() - clock, "cpu_seconds": time.process_time() - cpu}
                share = -(-options.pairs // 32) / trainer.state.global_step  # of a whole epoch
                name = f"{way}, {'features' if features else 'encoder'}"
                results[name] = {
                    "steps": trainer.state.global_step,
                    **{f"{unit}_an_epoch": round(value * share, 1) for unit, value in taken.items()},
                }
                print(name, results[name])
            both = (results[f"{way}, {kind}"]["cpu_seconds_an_epoch"] for kind in ("encoder", "features"))
            results[f"{way}, ratio"] = round(next(both) / next(both), 1)
    print(json.dumps(results, indent=1))
    Path(options.output).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
