r"""Fine-tune several encoders in English with equal settings, and measure every language.

  OMP_WAIT_POLICY=PASSIVE python benchmarks/finetuning_study.py xnli --models before=ENCODER PPA=runs/study/PPA-cls-0 \
    --work runs/nli --train en=sick/SICK_train.txt en=xnli/dev-en.tsv.xz --xnli=xnli
  … finetuning_study.py mlqa --models before=ENCODER PPA=runs/study/PPA-cls-0 --work runs/qa \
    --train en=tydiqa/tydiqa.goldp.en.train.json.xz --mlqa=mlqa --mlqa_split=dev --xquad=xquad --max_test=400

Each run is ``hf-xsent finetune`` with SETTINGS; other flags, written --flag=value, apply to every run. Runs that are in
--output are not repeated, and an interrupted run resumes from its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

SETTINGS: dict[str, dict[str, Any]] = {  # for small encoders and little data, on a CPU
    "xnli": {"learning_rate": 5e-5, "num_train_epochs": 2, "per_device_train_batch_size": 32, "max_length": 128},
    "mlqa": {"learning_rate": 1e-4, "num_train_epochs": 2, "per_device_train_batch_size": 16, "max_length": 384},
}


def run(name: str, model: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune and measure once."""
    from hf_xsent import finetune

    folder = Path(options.work) / f"{name}-{seed}"
    flags = {**SETTINGS[options.task], "model": model, "output_dir": folder, "seed": seed, "save_steps": 100}
    started, began = time.process_time(), time.perf_counter()
    words = [f"--{key}={value}" for key, value in flags.items()]
    reports = finetune.run([options.task, *words, "--train", *options.train, "--resume", *options.flags])
    seconds = {"cpu_seconds": time.process_time() - started, "seconds": time.perf_counter() - began}
    shutil.rmtree(folder)  # the results stay in --output
    return {"model": name, "seed": seed, "scores": {report.benchmark: report.scores for report in reports}, **seconds}


def table(runs: list[dict[str, Any]]) -> str:
    """Format a line per benchmark and model: the mean over languages and seeds, then each language."""
    lines = []
    for benchmark in runs[0]["scores"]:
        languages = list(runs[0]["scores"][benchmark])
        kind = next(iter(runs[0]["scores"][benchmark][languages[0]]))
        lines.append(
            f"{benchmark + ', ' + kind:24}{'seeds':>6}{'mean':>8}" + "".join(f"{language:>8}" for language in languages)
        )
        for model in dict.fromkeys(run["model"] for run in runs):
            of_model = [run["scores"][benchmark] for run in runs if run["model"] == model]
            means = [statistics.mean(scores[language][kind] for scores in of_model) for language in languages]
            lines.append(
                f"{model:24}{len(of_model):>6}{statistics.mean(means):>8.2f}"
                + "".join(f"{mean:>8.2f}" for mean in means)
            )
    return "\n".join(lines)


def main() -> None:
    """Run all that is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=list(SETTINGS))
    parser.add_argument("--models", nargs="+", required=True, metavar="NAME=PATH")
    parser.add_argument("--train", nargs="+", required=True, metavar="LANGUAGE=FILE")
    parser.add_argument("--work", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--output", help="Default: benchmarks/results/finetuning_TASK.json.")
    options, options.flags = parser.parse_known_args()
    output = Path(options.output or f"benchmarks/results/finetuning_{options.task}.json")
    settings = {**SETTINGS[options.task], "train": options.train, "flags": options.flags}
    results = json.loads(output.read_text()) if output.exists() else {"settings": settings, "runs": []}
    if results["settings"] != settings:
        raise SystemExit(f"{output} has runs with other settings: name another --output")
    runs: list[dict[str, Any]] = results["runs"]
    done = {(earlier["model"], earlier["seed"]) for earlier in runs}
    for seed in options.seeds:
        for named_model in options.models:
            name, _, model = named_model.partition("=")
            if (name, seed) not in done:
                runs.append(run(name, model, seed, options))
                output.write_text(json.dumps(results, indent=2) + "\n")
                print(table(runs), flush=True)
    print(table(runs))


if __name__ == "__main__":
    main()
