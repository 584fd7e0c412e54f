"""Model cards, written from what a run left behind (recipe, trainer state, counts) and from evaluation JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import (
    EvalResult,
    EvalResultEntry,
    ModelCard,
    ModelCardData,
    eval_result_entries_to_yaml,
)

from hf_xsent.errors import ModelError, OutputError
from hf_xsent.files import is_local
from hf_xsent.publishing.evaluation_tables import EvaluationTable

_POOLING_WORDS = {
    "cls": "the first token's state",
    "mean": "the mean over the tokens",
    "max": "the maximum over the tokens",
    "sum": "a learned mix of all layers, summed over the tokens",  # modules of sentence-transformers, no last states
}
_POOLING_CODE = {
    "cls": "vectors = states[:, 0]",
    "mean": 'mask = batch["attention_mask"].unsqueeze(-1)\nvectors = (states * mask).sum(1) / mask.sum(1)',
    "max": 'mask = batch["attention_mask"].unsqueeze(-1)\nvectors = states.masked_fill(mask == 0, -torch.inf).amax(1)',
}
_OF_THIS_MACHINE = ("output_dir", "cache_dir", "logging_dir", "run_name", "hub_token")
_TAGS = [
    "sentence-transformers",
    "feature-extraction",
    "sentence-similarity",
    "cross-lingual",
    "bitext-mining",
    "hf-xsent",
]


@dataclass
class CardFacts:
    """All that a card says; ``trained_here`` is false where the figures are a paper's, and nobody trained weights."""

    name: str
    base_model: str
    license: str
    languages: list[str]  # ISO 639 codes
    dimensions: int
    pooling: str
    max_length: int
    normalize: bool = False
    recipe: dict[str, Any] = field(default_factory=dict)
    repository: str = ""
    datasets: list[str] = field(default_factory=list)
    training: list[str] = field(default_factory=list)  # sentences about the run
    pairs: dict[str, int] = field(default_factory=dict)
    tables: list[EvaluationTable] = field(default_factory=list)
    trained_here: bool = True
    plain: bool = True  # an export, not the checkpoint of a run
    settings_from: str = "The recipe"

    @property
    def method(self) -> dict[str, str]:
        """What is known of the method that the recipe names."""
        name = str(self.recipe.get("method", "alignment"))
        if list(objectives(self.recipe)) == ["translation_ranking"]:
            name = "translation_ranking"
        known: dict[str, dict[str, str]] = yaml.safe_load(_resource("methods.yaml"))
        if name not in known:
            raise ModelError(f"no model card is known for the method {name!r}: describe it in publishing/methods.yaml")
        return known[name]


def render_card(facts: CardFacts, complete: bool = True) -> ModelCard:
    """The card as huggingface_hub has it, whose metadata it has checked; a missing fact is told in one sentence."""
    for name in ("base_model", "license", "languages"):
        if complete and not getattr(facts, name):
            raise OutputError(f"the model card lacks the field {name}: give it as --{name}")
    measured = [result for table in facts.tables if table.measured for result in table.results]
    data = ModelCardData(
        language=facts.languages or None,
        license=facts.license or None,
        library_name="sentence-transformers" if facts.plain else "transformers",
        pipeline_tag="sentence-similarity",
        tags=_TAGS if facts.plain else _TAGS[1:],
        base_model=facts.base_model or None,
        datasets=facts.datasets or None,
        model_name=facts.name,
        eval_results=[
            EvalResult(
                task_type="sentence-similarity" if one.task_type is None else one.task_type,
                dataset_type=one.dataset_id,
                dataset_name=one.dataset_name,
                dataset_split="test",
                metric_type=one.metric,
                metric_value=one.value,
                metric_name=one.metric_name,
            )
            for one in measured
        ]
        or None,
    )
    return ModelCard.from_template(
        data,
        template_str=_resource("model_card_template.md"),
        name=facts.name,
        base_model=facts.base_model,
        license=facts.license,
        repository=facts.repository or facts.name,
        method=facts.method,
        languages=facts.languages,
        dimensions=facts.dimensions,
        max_length=facts.max_length,
        normalize=facts.normalize,
        pooling_in_words=_POOLING_WORDS[facts.pooling],
        pooling_code=_POOLING_CODE.get(facts.pooling),
        training=facts.training,
        pairs=facts.pairs,
        recipe=_recipe_text(facts.recipe),
        tables=facts.tables,
        trained_here=facts.trained_here,
        plain=facts.plain,
        settings_from=facts.settings_from,
    )


def write_card(folder: str | Path, facts: CardFacts) -> Path:
    """README.md, and the measured results where the Hub's leaderboards look for them."""
    folder, card = Path(folder), render_card(facts)
    (folder / "README.md").write_text(f"{card}\n" if not str(card).endswith("\n") else str(card), encoding="utf-8")
    entries = [
        EvalResultEntry(dataset_id=one.dataset_id, task_id=one.task_id, value=one.value, notes=table.note)
        for table in facts.tables
        if table.measured
        for one in table.results
    ]
    if entries:
        (folder / ".eval_results").mkdir(exist_ok=True)
        text = yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True)
        (folder / ".eval_results" / "hf-xsent.yaml").write_text(text, encoding="utf-8")
    return folder / "README.md"


def facts_of_run(run: str | Path) -> dict[str, Any]:
    """What a run's folder says of itself: recipe, languages, pairs, steps; for ``CardFacts``."""
    run = Path(run)
    try:
        recipe = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{run} is no folder of a run: it has no recipe.yaml") from error
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    counts = json.loads((run / "bitext.json").read_text(encoding="utf-8")) if (run / "bitext.json").is_file() else {}
    pairs = {language: int(count["retained"]) for language, count in counts.items() if language != "total"}
    target = str(recipe.get("target_language", "en"))
    return {
        "name": run.resolve().name,
        "base_model": "" if is_local(str(recipe.get("model", ""))) else str(recipe.get("model", "")),
        "languages": sorted({*pairs, target} if pairs else set()),
        "dimensions": int(config["encoder_config"]["hidden_size"]),
        "pooling": config["pooling"],
        "max_length": config["max_length"],
        "normalize": config["normalize"],
        "recipe": recipe,
        "pairs": pairs,
        "training": _training_sentences(run),
    }


def objectives(recipe: Mapping[str, Any]) -> dict[str, float]:
    """Return the weights of a recipe's losses."""
    stated = recipe.get("objectives") or {}
    weights = {name: one.get("weight", 1.0) if isinstance(one, Mapping) else one for name, one in stated.items()}
    return {name: float(weight) for name, weight in weights.items()}


def _training_sentences(run: Path) -> list[str]:
    states = sorted(run.glob("checkpoint-*/trainer_state.json"), key=lambda path: int(path.parent.name.split("-")[1]))
    if not states:
        return []
    state = json.loads(states[-1].read_text(encoding="utf-8"))
    sentences = [f"It took {state['global_step']:,} steps ({state['epoch']:.2f} passes over the data)."]
    if state.get("best_metric") is not None:
        step = state.get("best_global_step")
        sentences.append(
            f"The weights are those of step {step:,}, the best on dev pairs: {state['best_metric']:.2f}% retrieval "
            "accuracy@1, mean of both directions."
        )
    return sentences


def _recipe_text(recipe: Mapping[str, Any]) -> str:
    shown = {key: _without_folders(value) for key, value in recipe.items() if key not in _OF_THIS_MACHINE}
    return yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=120).rstrip()


def _without_folders(value: Any) -> Any:
    """Paths of the machine that trained are nobody else's business: of absolute ones the file name stays."""
    if isinstance(value, str):
        name, equals, path = value.rpartition("=")
        return name + equals + Path(path).name if path.startswith("/") else value
    if isinstance(value, Sequence):
        return [_without_folders(one) for one in value]
    return {key: _without_folders(one) for key, one in value.items()} if isinstance(value, Mapping) else value


def _resource(name: str) -> str:
    return (files("hf_xsent.publishing") / name).read_text(encoding="utf-8")
