"""The model card of a run's own folder, as push_to_hub sends it: a checkpoint, to be opened with hf_xsent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from transformers import Trainer

from hf_xsent.publishing.model_card import CardFacts, facts_of_run, render_card
from hf_xsent.training.output_folder import RECIPE_FILE


def write_run_card(trainer: Trainer, name: str | None, license: str | None, base_model: str | None) -> None:
    """README.md of the output folder; what nobody stated is left out, for a run is not to fail at its end."""
    folder = Path(str(trainer.args.output_dir))
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    if not (folder / RECIPE_FILE).is_file():
        text = yaml.safe_dump(_stated(trainer, model), sort_keys=False)
        (folder / RECIPE_FILE).write_text(text, encoding="utf-8")
    known = facts_of_run(folder)
    bitext: Any = trainer.train_dataset
    if not known["languages"] and hasattr(bitext, "languages"):
        known["pairs"] = dict(bitext.languages)
        known["languages"] = sorted({*known["pairs"], getattr(trainer, "target_language", "en")})
    known |= {"license": license or "", "base_model": base_model or known["base_model"], "plain": False}
    known["name"] = name or known["name"]
    facts = CardFacts(**known, repository=str(trainer.hub_model_id or known["name"]))
    (folder / "README.md").write_text(f"{render_card(facts, complete=False)}", encoding="utf-8")


def _stated(trainer: Trainer, model: Any) -> dict[str, Any]:
    """The settings of a run that had no recipe."""
    config, args = model.config, trainer.args
    return {
        "model": config.encoder_config.name_or_path or None,
        "method": config.model_type,
        "objectives": config.recipe()["objectives"],
        "pooling": config.pooling,
        "max_length": config.max_length,
        "per_device_train_batch_size": args.per_device_train_batch_size,
        "max_steps": trainer.state.max_steps,
        "learning_rate": args.learning_rate,
        "seed": args.seed,
    }
