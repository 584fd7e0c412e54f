"""Takes runs over that an older script made (its JSON has figures, but no models), so that they are not repeated.

  python benchmarks/studies/from_method_study.py dap_study.json benchmarks/studies/dap.yaml OUTPUT KEY=VALUE …

KEY=VALUE are those of ``hf-xsent compare --set``, which with the same study, OUTPUT and values does the rest. Budget
and batch must be those of the old runs. Their CPU seconds include loading and reading.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hf_xsent.comparison.pipeline import list_runs
from hf_xsent.evaluation.report import write_json
from hf_xsent.evaluation.retrieval import PROTOCOL


def main(results: str, study: str, output: str, *changes: str) -> None:
    """One folder a run, as if its process had left it."""
    content = json.loads(Path(results).read_text(encoding="utf-8"))
    old = {(one["method"], one["pooling"], one["seed"]): one for one in content["runs"]}
    for run in list_runs(study, output, changes):
        one = old.get((run.method, run.pooling, run.seed))
        if one is None or run.finished:
            continue
        batch = run.recipe.get("per_device_train_batch_size")
        if (run.steps, batch) != (content["settings"]["steps"], content["settings"]["batch"]):
            sys.exit(f"{run.name} has {run.steps} steps of {batch} pairs, unlike {results}: {content['settings']}")
        run.begin()
        groups = {name: {"mean": mean} for name, mean in one["groups"].items()}
        for task, some in (("tatoeba", groups), ("retrieval", {})):
            figures = {"groups": some | {"measured": {"mean": one["dev" if task == "retrieval" else task]}}}
            about = {
                "identity": run.identities[task],
                "protocol": PROTOCOL,
                "headings": {"mean": "mean"},
                "main": "mean",
            }
            write_json(run.scores_file(task), {"task": task, **about, "languages": {}, **figures})
        log = {"step": run.steps, "cpu_seconds": one["cpu_seconds"], "seconds": one["seconds"], **one["last_losses"]}
        run.training.mkdir(exist_ok=True)
        (run.training / "metrics.jsonl").write_text(json.dumps(log) + "\n", encoding="utf-8")
        print(f"{run.name}: {run.folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
