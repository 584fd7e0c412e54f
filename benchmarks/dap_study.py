"""TR, TR + TLM and DAP from the same start, with equal steps, several seeds and both poolings.

  OMP_WAIT_POLICY=PASSIVE python benchmarks/dap_study.py --model ENCODER --data "train/{language}-en.tsv.xz" \
    --dev "dev/{language}-en.tsv" --tatoeba tatoeba --work runs/dap-study

Each run is ``hf-xsent pretrain`` with the recipe dap-small and what the table says; it is measured on Tatoeba (36
languages) and on 300 held-out pairs of every fourth language. Runs that are in --output already are not repeated, so
the study may be stopped and started again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

RECIPE = Path(__file__).parents[1] / "trainer_scripts/recipes/dap-small.yaml"
RANKING, RTL, TLM = "translation_ranking=1", "representation_translation", "translation_language_modeling"
METHODS = {
    "TR": [RANKING],
    "TR + 0.1 TLM": [RANKING, f"{TLM}=0.1"],
    "TR + 0.8 TLM": [RANKING, f"{TLM}=0.8"],
    "DAP, weight 0.03": [RANKING, f"{RTL}=0.03"],
    "DAP, weight 0.1": [RANKING, f"{RTL}=0.1"],
    "DAP, weight 0.8": [RANKING, f"{RTL}=0.8"],
}


def run(name: str, pooling: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train and measure once."""
    from hf_xsent.data.benchmarks import load_tatoeba, tatoeba_groups
    from hf_xsent.data.bitext import load_bitext
    from hf_xsent.evaluation.retrieval import retrieval_by_language
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.training.pretrain import main

    folder = Path(options.work) / "run"
    shutil.rmtree(folder, ignore_errors=True)
    flags: dict[str, Any] = {
        "model": options.model,
        "data": options.data,
        "output_dir": folder,
        "cache_dir": Path(options.work) / "cache",
        "pooling": pooling,
        "seed": seed,
        "max_steps": options.steps,
        "per_device_train_batch_size": options.batch,
    }
    arguments = [f"--{key}={value}" for key, value in flags.items()]
    started, began = time.process_time(), time.perf_counter()
    trainer = main([str(RECIPE), *arguments, "--objectives", *METHODS[name], *options.flags])
    seconds = {"cpu_seconds": time.process_time() - started, "seconds": time.perf_counter() - began}
    losses = {key: value for line in trainer.state.log_history for key, value in line.items() if "loss_" in key}
    embedder = SentenceEmbedder(trainer.model, trainer.tokenizer)
    dev = load_bitext(options.dev, cleaning=None, cache_dir=Path(options.work) / "cache", max_pairs=300)
    tests = {
        "dev": {language: dev.pairs(language) for language in dev.languages[::4]},
        "tatoeba": {
            one.language: (one.sources, one.targets)
            for one in load_tatoeba(options.tatoeba, options.languages or tatoeba_groups()["36"])
        },
    }
    accuracy = {
        test: statistics.mean(one.mean for one in retrieval_by_language(embedder, pairs, progress=False).values())
        for test, pairs in tests.items()
    }
    return {"method": name, "pooling": pooling, "seed": seed, **accuracy, **seconds, "last_losses": losses}


def table(runs: list[dict[str, Any]]) -> str:
    """Means over seeds, and what the seeds differ by."""
    lines = [f"{'':20}{'pooling':>9}{'seeds':>7}{'Tatoeba':>9}{'dev':>8}{'± seeds':>9}{'CPU min':>9}"]
    for key in dict.fromkeys((one["method"], one["pooling"]) for one in runs):
        some = [one for one in runs if (one["method"], one["pooling"]) == key]
        scores = [one["tatoeba"] for one in some]
        lines.append(
            f"{key[0]:20}{key[1]:>9}{len(some):>7}{statistics.mean(scores):>9.2f}"
            f"{statistics.mean(one['dev'] for one in some):>8.2f}{(max(scores) - min(scores)) / 2:>9.2f}"
            f"{statistics.mean(one['cpu_seconds'] for one in some) / 60:>9.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Every run that is missing; then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "data", "dev", "tatoeba", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--pooling", nargs="+", default=["cls", "mean"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--languages", nargs="+", help="Measure these languages of Tatoeba instead of the 36.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--flags", nargs="*", default=[], help="More flags for every run, written --flag=value.")
    parser.add_argument("--output", default="benchmarks/results/dap_study.json")
    options = parser.parse_args()
    output = Path(options.output)
    runs: list[dict[str, Any]] = json.loads(output.read_text())["runs"] if output.exists() else []
    done = {(one["method"], one["pooling"], one["seed"]) for one in runs}
    for seed in options.seeds:
        for pooling in options.pooling:
            for method in options.methods:
                if (method, pooling, seed) not in done:
                    runs.append(run(method, pooling, seed, options))
                    settings = {"steps": options.steps, "batch": options.batch, "flags": options.flags}
                    output.write_text(json.dumps({"settings": settings, "runs": runs}, indent=2) + "\n")
                    print(table(runs), flush=True)
    print(table(runs))


if __name__ == "__main__":
    main()
