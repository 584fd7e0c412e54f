"""Measure whole commands, from their start to their files, beside the same work with sentence-transformers.

  python benchmarks/whole_run.py --model ENCODER --data "train/{language}-en.tsv.xz" --tatoeba FOLDER --bf16

Training: read pairs, train by translation ranking, save, export. Evaluation: accuracy on Tatoeba in both directions.
Start-up: imports, ``--help`` and a wrong flag. Both libraries have the same pairs, batches, steps, lengths and
precision; times are those of all processes of a command.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LEARNING_RATE = 1e-4


def train_theirs(options: argparse.Namespace) -> None:
    """Train with SentenceTransformerTrainer and MultipleNegativesRankingLoss, and save."""
    from datasets import load_dataset
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    transformer = Transformer(options.model, max_seq_length=options.max_length)
    model = SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension(), "mean")])
    names = {"delimiter": "\t", "column_names": ["anchor", "positive"], "quoting": 3}
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=options.batch,
            num_train_epochs=1,
            learning_rate=LEARNING_RATE,
            bf16=options.bf16,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
        )
        SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=load_dataset("csv", data_files=options.pairs_file, split="train", cache_dir=folder, **names),
            loss=MultipleNegativesRankingLoss(model, scale=50),
        ).train()
        model.save(f"{folder}/final")


def evaluate_theirs(options: argparse.Namespace) -> None:
    """Measure with a TranslationEvaluator for each language."""
    import torch
    from sentence_transformers.sentence_transformer.evaluation import TranslationEvaluator

    from hf_xsent.data.benchmarks.tatoeba import load_tatoeba
    from sentence_transformers import SentenceTransformer

    dtype = torch.bfloat16 if options.bf16 else torch.float32
    model = SentenceTransformer(options.model, device="cpu", model_kwargs={"dtype": dtype})
    model.max_seq_length = options.max_length
    for pairs in load_tatoeba(options.tatoeba, options.languages):
        TranslationEvaluator(pairs.sources, pairs.targets, name=pairs.language)(model)


THEIRS = {"training": train_theirs, "evaluation": evaluate_theirs}


def commands(options: argparse.Namespace, work: Path) -> dict[str, dict[str, list[list[str]]]]:
    """Return the command lines of each part by library."""
    python, ours = [sys.executable], [str(Path(sys.executable).with_name("hf-xsent"))]
    again = [*python, __file__, *sys.argv[1:], "--pairs_file", str(options.pairs_file), "--theirs"]
    pretrain = f"""pretrain --method alignment --objectives translation_ranking=1 --pooling mean
        --objectives.translation_ranking.temperature 0.02 --model {options.model} --data und={options.pairs_file}
        --max_length {options.max_length} --per_device_train_batch_size {options.batch} --num_train_epochs 1
        --learning_rate {LEARNING_RATE} --bf16 {str(options.bf16).lower()} --use_cpu true --dropout 0 --dev_pairs 0
        --eval_strategy no --save_strategy no --rules {{}} --output_dir {work}/run"""
    evaluate = f"""evaluate {options.model} --tasks tatoeba={options.tatoeba} --languages {" ".join(options.languages)}
        --max_length {options.max_length} --precision {"bfloat16" if options.bf16 else "float32"} --device cpu
        --output {work}/results.json"""
    return {
        "training": {
            "hf-xsent": [[*ours, *pretrain.split()], [*ours, "export", f"{work}/run", "--output", f"{work}/exported"]],
            "sentence-transformers": [[*again, "training"]],
        },
        "evaluation": {
            "hf-xsent": [[*ours, *evaluate.split()]],
            "sentence-transformers": [[*again, "evaluation"]],
        },
        "start-up": {
            "import torch": [[*python, "-c", "import torch"]],
            "import transformers.Trainer": [[*python, "-c", "from transformers import Trainer"]],
            "import sentence_transformers": [[*python, "-c", "import sentence_transformers"]],
            "import hf_xsent.AlignmentTrainer": [[*python, "-c", "from hf_xsent import AlignmentTrainer"]],
            "hf-xsent pretrain --help": [[*ours, "pretrain", "--help"]],
            "hf-xsent pretrain with a wrong flag": [[*ours, "pretrain", "--leraning_rate", "1"]],
        },
    }


def timed(lines: list[list[str]], wrong: bool) -> dict[str, float]:
    """Run command lines one after the other; return their wall-clock and CPU seconds."""
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    for line in lines:
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if (done.returncode != 0) != wrong:
            sys.exit(f"{' '.join(line)} ended with exit code {done.returncode}: {done.stderr[-2000:]}")
    wall, after = time.perf_counter() - clock, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_seconds": round(wall, 2), "cpu_seconds": round(cpu, 2)}


def write_pairs(options: argparse.Namespace, file: Path) -> None:
    """Write equally many pairs of each language to one file."""
    from itertools import islice

    from hf_xsent.data.readers.formats import read_pairs
    from hf_xsent.data.readers.resolving import resolve_sources

    sources = [source for of_language in resolve_sources(options.data).values() for source in of_language]
    with file.open("w", encoding="utf-8") as out:
        for source in sources:
            for pair in islice(read_pairs(source), options.pairs // len(sources)):
                out.write("\t".join(pair) + "\n")


def main() -> None:
    """Run all commands, print and save the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True, help='pairs, such as "train/{language}-en.tsv.xz"')
    parser.add_argument("--tatoeba", required=True)
    parser.add_argument("--languages", nargs="+", default=["36"], help="of Tatoeba")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--max_length", type=int, default=64)
    parser.add_argument("--bf16", action="store_true", help="for both libraries")
    parser.add_argument("--only", nargs="+", choices=("training", "evaluation", "start-up"), help="measure these parts")
    parser.add_argument("--output", default="benchmarks/results/whole_run.json")
    parser.add_argument("--pairs_file", help=argparse.SUPPRESS)
    parser.add_argument("--theirs", choices=THEIRS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.theirs:
        THEIRS[options.theirs](options)
        return
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    results: dict[str, Any] = {name: getattr(options, name) for name in ("pairs", "batch", "languages", "bf16")}
    with tempfile.TemporaryDirectory() as folder:
        options.pairs_file = Path(folder) / "pairs.tsv"
        write_pairs(options, options.pairs_file)
        for part, contenders in commands(options, Path(folder)).items():
            if not options.only or part in options.only:
                results[part] = {name: timed(lines, "wrong" in name) for name, lines in contenders.items()}
                print(json.dumps({part: results[part]}, indent=2), flush=True)
    Path(options.output).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
