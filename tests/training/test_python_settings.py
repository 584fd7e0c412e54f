"""Settings of ``pretrain`` in Python that are mappings."""

from __future__ import annotations

from pathlib import Path

import yaml

from hf_xsent.api.training import _arguments
from hf_xsent.training.reading import read_recipe
from hf_xsent.training.run_card import write_recipe


def test_prompts_and_arguments_of_schedulers_stay_mappings(tmp_path: Path) -> None:
    settings = {
        "model": "encoder",
        "data": {"de": "pairs.tsv"},
        "output_dir": "runs/out",
        "use_cpu": True,
        "prompts": {"query": "query: "},
        "default_prompt_name": "query",
        "lr_scheduler_type": "warmup_stable_decay",
        "lr_scheduler_kwargs": {"num_decay_steps": 2},
    }
    recipe = read_recipe(_arguments(None, settings))
    assert recipe.config.prompts == {"query": "query: "}
    assert recipe.training.lr_scheduler_kwargs == {"num_decay_steps": 2}
    write_recipe(tmp_path, "pretrain", {}, recipe.training)
    recorded = yaml.safe_load((tmp_path / "recipe.yaml").read_text("utf-8"))
    assert recorded["lr_scheduler_kwargs"] == {"num_decay_steps": 2}
