"""Compare the cost of a training step with a padded Hugging Face loop and with the trainer of sentence-transformers.

  OMP_WAIT_POLICY=PASSIVE python benchmarks/training_step.py --model ENCODER --data "train/{language}-en.tsv.xz"

Same model, pairs, batch, precision, optimiser and clipping; each contender is a separate process and their steps
alternate, so that other load of the machine affects all equally. Prints pairs per CPU second (medians) and peak
memory, and writes them to --output.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from turns import Turn, take_turns

Pairs = list[tuple[str, str]]
TR = {"translation_ranking": 1.0}


def sample_pairs(data: str, number: int) -> Pairs:
    """Sample pairs of all languages by size^0.5, in a fixed order."""
    from hf_xsent.data.bitext import load_bitext
    from hf_xsent.data.sampling.mixing import TemperatureSampler

    bitext = load_bitext(data)
    sampler = TemperatureSampler(bitext.ranges, alpha=0.5, seed=0, num_samples=number)
    return [(pair["source"], pair["target"]) for pair in bitext.__getitems__(list(sampler))]


def ours(turn: Turn, options: argparse.Namespace, pairs: Pairs, objectives: Any = TR) -> None:
    """Train with AlignmentTrainer, by default with translation ranking."""
    from torch.utils.data import DataLoader

    from hf_xsent import AlignmentTrainer, AlignmentTrainingArguments, XlmrWithRTLHead
    from hf_xsent.models.loading import load_tokenizer

    class InOrder(AlignmentTrainer):
        def get_train_dataloader(self) -> Any:
            return DataLoader(self.train_dataset, self.args.train_batch_size, collate_fn=self.data_collator)

    examples: Any = [{"source": source, "target": target, "language": "und"} for source, target in pairs]
    model = XlmrWithRTLHead.from_backbone(
        options.model, pooling=options.pooling, max_length=options.max_length, objectives=objectives
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = AlignmentTrainingArguments(output_dir=folder, **trainer_options(options))
        trainer = InOrder(model, arguments, examples, processing_class=load_tokenizer(options.model))
        trainer.add_callback(turn.as_callback())
        trainer.train()


def sentence_transformers(turn: Turn, options: argparse.Namespace, pairs: Pairs) -> None:
    """Train with SentenceTransformerTrainer and MultipleNegativesRankingLoss."""
    from datasets import Dataset
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    transformer = Transformer(options.model, max_seq_length=options.max_length)
    model = SentenceTransformer(
        modules=[transformer, Pooling(transformer.get_embedding_dimension(), options.pooling)], device="cpu"
    )
    dataset = Dataset.from_dict({"anchor": [a for a, _ in pairs], "positive": [b for _, b in pairs]})
    with tempfile.TemporaryDirectory() as folder:
        trainer = SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(output_dir=folder, **trainer_options(options)),
            train_dataset=dataset,
            loss=MultipleNegativesRankingLoss(model),
        )
        trainer.add_callback(turn.as_callback())
        trainer.train()


def padded_loop(turn: Turn, options: argparse.Namespace, pairs: Pairs) -> None:
    """Train with a plain loop: each side padded to its longest, two forward passes, cross entropy."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    precision = torch.autocast("cpu", torch.bfloat16, enabled=options.bf16)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModel.from_pretrained(options.model, add_pooling_layer=False).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, fused=True)

    def embed(sentences: list[str]) -> torch.Tensor:
        batch = tokenizer(sentences, padding=True, truncation=True, max_length=options.max_length, return_tensors="pt")
        with precision:
            states = model(**batch).last_hidden_state.float()
        if options.pooling == "cls":
            return states[:, 0]
        mask = batch["attention_mask"][..., None]
        return (states * mask).sum(1) / mask.sum(1)

    turn.wait()
    for step in range(turn.steps):
        some = pairs[step * options.batch : (step + 1) * options.batch]
        source, target = (torch.nn.functional.normalize(embed(list(side)), dim=-1) for side in zip(*some, strict=True))
        loss = torch.nn.functional.cross_entropy(source @ target.T / 0.05, torch.arange(len(some)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        turn.done()


def trainer_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that both trainers share."""
    return {
        "per_device_train_batch_size": options.batch,
        "max_steps": options.steps,
        "bf16": options.bf16,
        "use_cpu": True,
        "learning_rate": options.learning_rate,
        "save_strategy": "no",
        "logging_steps": 10_000,
        "disable_tqdm": True,
        "report_to": "none",
    }


CONTENDERS = {"hf-xsent": ours, "padded loop": padded_loop, "sentence-transformers": sentence_transformers}


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Run the contenders in alternation; return costs relative to ours."""
    pairs = sample_pairs(options.data, options.batch * options.steps)
    result: dict[str, Any] = take_turns(
        CONTENDERS, options.steps, options.warmup, options.threads, options=options, pairs=pairs
    )
    for figures in result.values():
        figures["pairs_per_cpu_second"] = round(options.batch / figures["cpu_seconds"], 2)
        figures["speedup_of_ours"] = round(figures["cpu_seconds"] / result["hf-xsent"]["cpu_seconds"], 2)
    return result


def main() -> None:
    """Compare at each length, print and save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="Encoder to train: folder or Hub id.")
    parser.add_argument("--data", required=True, help="Pairs, such as train/{language}-en.tsv.xz.")
    parser.add_argument("--max_length", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--pooling", default="mean")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="Compute in bfloat16, all contenders.")
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    parser.add_argument("--output", default="benchmarks/results/training_step.json")
    options = parser.parse_args()
    results = {}
    for length in options.max_length:
        results[f"max_length {length}"] = compare(argparse.Namespace(**{**vars(options), "max_length": length}))
    settings = {key: getattr(options, key) for key in ("pooling", "batch", "steps", "warmup", "threads", "bf16")}
    Path(options.output).write_text(json.dumps({"settings": settings, "results": results}, indent=2) + "\n")
    for length, result in results.items():
        print(f"\n{length}\n{'':24}CPU s/step  pairs/CPU s  peak MiB  cost beside ours")
        for name, figures in result.items():
            print(
                f"{name:24}{figures['cpu_seconds']:>10.2f}{figures['pairs_per_cpu_second']:>13.1f}{figures['peak_mib']:>10}"
                f"{figures['speedup_of_ours']:>17.2f}"
            )


if __name__ == "__main__":
    main()
