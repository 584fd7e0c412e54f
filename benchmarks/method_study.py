"""Methods from the same start, with equal steps, several seeds and poolings: the objectives of one paper side by side.

  OMP_WAIT_POLICY=PASSIVE python benchmarks/method_study.py dap --model ENCODER --data "train/{language}-en.tsv.xz" \
    --dev "dev/{language}-en.tsv" --tatoeba tatoeba --work runs/study
  … method_study.py wacse … --pooling cls --links="links/{language}-en.links"
  … method_study.py ppa … --pooling cls --steps 300 --keep

Each run is ``hf-xsent pretrain`` with the study's small recipe and what the table says; it is measured on Tatoeba (36
languages, and WACSE's groups of 4, 5 and 8 with little data) and on 300 held-out pairs of every fourth language. Runs
that are in --output already are not repeated, so a study may be stopped and started again. Other flags, written
--flag=value, go to every run. With --keep the models stay in --work, for ``finetuning_study.py``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).parents[1] / "trainer_scripts/recipes"
RANKING, RTL, TLM = "translation_ranking=1", "representation_translation", "translation_language_modeling"
MOCO, LESS_TLM = "momentum_contrast=1", "translation_language_modeling=0.1"
LESS_RANKING, AWP, WTR = "translation_ranking=0.8", "aligned_word_prediction", "word_translation_ranking"
STUDIES = {  # the recipe, and the objectives of each method
    "dap": (
        "dap-small.yaml",
        {
            "TR": [RANKING],
            "TR + 0.1 TLM": [RANKING, f"{TLM}=0.1"],
            "TR + 0.8 TLM": [RANKING, f"{TLM}=0.8"],
            "DAP, weight 0.03": [RANKING, f"{RTL}=0.03"],
            "DAP, weight 0.1": [RANKING, f"{RTL}=0.1"],
            "DAP, weight 0.8": [RANKING, f"{RTL}=0.8"],
        },
    ),
    "ppa": (
        "ppa-small.yaml",
        {
            "TR": [RANKING],
            "TLM": [LESS_TLM],
            "MoCo": [MOCO],
            "PPA": [MOCO, LESS_TLM],
            "PPA, weight 1": [MOCO, f"{TLM}=1"],
            "MoCo + MLM": [MOCO, "masked_language_modeling=0.1"],
        },
    ),
    "wacse": (
        "wacse-small.yaml",
        {
            "TR": [LESS_RANKING],
            "TR + AWP": [LESS_RANKING, f"{AWP}=0.02"],
            "TR + WTR": [LESS_RANKING, f"{WTR}=0.18"],
            "WACSE": [LESS_RANKING, f"{AWP}=0.02", f"{WTR}=0.18"],
            "WACSE, weights 0.1": [LESS_RANKING, f"{AWP}=0.1", f"{WTR}=0.1"],
        },
    ),
}
GROUPS = ("4", "5", "8", "36")  # of Tatoeba


def run(name: str, pooling: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train and measure once."""
    from hf_xsent.data.benchmarks import load_tatoeba, tatoeba_groups
    from hf_xsent.data.bitext import load_bitext
    from hf_xsent.evaluation.retrieval import retrieval_by_language
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.training.pretrain import main

    folder = Path(options.work) / (
        f"{name}-{pooling}-{seed}".replace(" ", "").replace(",", "-") if options.keep else "run"
    )
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
    recipe, methods = STUDIES[options.study]
    trainer = main([str(RECIPES / recipe), *arguments, "--objectives", *methods[name], *options.flags])
    seconds = {"cpu_seconds": time.process_time() - started, "seconds": time.perf_counter() - began}
    losses = {key: value for line in trainer.state.log_history for key, value in line.items() if "loss_" in key}
    embedder = SentenceEmbedder(trainer.model, trainer.tokenizer)
    dev = load_bitext(options.dev, cleaning=None, cache_dir=Path(options.work) / "cache", max_pairs=300)
    tests = {
        "dev": {language: dev.pairs(language) for language in list(dev.languages)[::4]},
        "tatoeba": {
            one.language: (one.sources, one.targets)
            for one in load_tatoeba(options.tatoeba, options.languages or tatoeba_groups()["36"])
        },
    }
    scores = {
        test: {language: one.mean for language, one in retrieval_by_language(embedder, pairs, progress=False).items()}
        for test, pairs in tests.items()
    }
    accuracy = {test: statistics.mean(some.values()) for test, some in scores.items()}
    groups = {
        group: statistics.mean(scores["tatoeba"][one] for one in members)
        for group, members in tatoeba_groups().items()
        if group in GROUPS and {*members} <= {*scores["tatoeba"]}
    }
    about = {"method": name, "pooling": pooling, "seed": seed}
    return about | accuracy | {"groups": groups, **seconds, "last_losses": losses}


def table(runs: list[dict[str, Any]]) -> str:
    """Means over seeds, and what the seeds differ by."""
    groups = "".join(f"{group:>8}" for group in GROUPS)
    lines = [f"{'':20}{'pooling':>9}{'seeds':>7}{'Tatoeba':>9}{'dev':>8}{'± seeds':>9}{'CPU min':>9}{groups}"]
    for key in dict.fromkeys((one["method"], one["pooling"]) for one in runs):
        some = [one for one in runs if (one["method"], one["pooling"]) == key]
        scores = [one["tatoeba"] for one in some]
        by_group = [[one["groups"][group] for one in some if group in one.get("groups", {})] for group in GROUPS]
        lines.append(
            f"{key[0]:20}{key[1]:>9}{len(some):>7}{statistics.mean(scores):>9.2f}"
            f"{statistics.mean(one['dev'] for one in some):>8.2f}{(max(scores) - min(scores)) / 2:>9.2f}"
            f"{statistics.mean(one['cpu_seconds'] for one in some) / 60:>9.1f}"
            + "".join(f"{statistics.mean(one):>8.2f}" if one else f"{'':8}" for one in by_group)
        )
    return "\n".join(lines)


def main() -> None:
    """Every run that is missing; then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=list(STUDIES))
    for name in ("model", "data", "dev", "tatoeba", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--methods", nargs="+", help="Run these methods of the study instead of all.")
    parser.add_argument("--pooling", nargs="+", default=["cls", "mean"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--languages", nargs="+", help="Measure these languages of Tatoeba instead of the 36.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--keep", action="store_true", help="Keep the trained models.")
    parser.add_argument("--output", help="Default: benchmarks/results/STUDY_study.json.")
    options, options.flags = parser.parse_known_args()
    known = STUDIES[options.study][1]
    if unknown := {*(options.methods or [])} - {*known}:
        parser.error(f"the study {options.study} has no method {unknown.pop()!r}: choose from {', '.join(known)}")
    output = Path(options.output or f"benchmarks/results/{options.study}_study.json")
    runs: list[dict[str, Any]] = json.loads(output.read_text())["runs"] if output.exists() else []
    done = {(one["method"], one["pooling"], one["seed"]) for one in runs}
    for seed in options.seeds:
        for pooling in options.pooling:
            for method in options.methods or known:
                if (method, pooling, seed) not in done:
                    runs.append(run(method, pooling, seed, options))
                    settings = {"steps": options.steps, "batch": options.batch, "flags": options.flags}
                    output.write_text(json.dumps({"settings": settings, "runs": runs}, indent=2) + "\n")
                    print(table(runs), flush=True)
    print(table(runs))


if __name__ == "__main__":
    main()
