"""Settings of ``pretrain`` in Python that are mappings."""

from __future__ import annotations

from hf_xsent.api.training import _arguments
from hf_xsent.training.reading import read_recipe


def test_prompts_and_arguments_of_schedulers_stay_mappings() -> None:
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
