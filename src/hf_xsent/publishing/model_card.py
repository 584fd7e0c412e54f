"""Write model cards from the files of a run (recipe, trainer state, numbers of pairs) and of evaluations (JSON)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, ModelCard, ModelCardData, eval_result_entries_to_yaml

from hf_xsent.errors import ModelError, OutputError, shortened
from hf_xsent.files import is_local, write_text
from hf_xsent.models.loading import SETTINGS
from hf_xsent.models.sentence_transformer_files import read_modules
from hf_xsent.pages.tables import markdown_text
from hf_xsent.publishing.evaluation_tables import EvaluationTable, read_tables, with_one_result
from hf_xsent.publishing.export_folder import check_export, read_run_facts
from hf_xsent.settings.yaml12 import parse_yaml

_REPOSITORY = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", re.ASCII)
_POOLING_WORDS = {
    "cls": "the first token's hidden state",
    "mean": "the mean over the tokens",
    "max": "the maximum over the tokens",
    "sum": "a weighted sum of layers, summed over the tokens",  # needs all layers: not in _POOLING_CODE
    "mean of layers": "a weighted sum of layers, averaged over the tokens",
}
_MASK = 'mask = batch["attention_mask"].unsqueeze(-1)\n'
_POOLING_CODE = {
    "cls": "embeddings = states[:, 0]",
    "mean": f"{_MASK}embeddings = (states * mask).sum(1) / mask.sum(1)",
    "max": f"{_MASK}embeddings = states.masked_fill(mask == 0, -torch.inf).amax(1)",
}
_EXAMPLES = ("A dog runs.", "Ein Hund rennt.")
_LOCAL_KEYS = ("output_dir", "cache_dir", "logging_dir", "run_name", "hub_token")
_TAGS = ["feature-extraction", "sentence-similarity", "cross-lingual", "bitext-mining", "hf-xsent"]


@dataclass
class CardFacts:
    """The content of a card; ``trained_here`` is false for a model without weights, whose results are its paper's."""

    name: str
    base_model: str
    license: str
    languages: list[str]  # ISO 639 codes
    dimensions: int
    pooling: str
    max_length: int
    normalize: bool = False
    prompt: str = ""  # prepended to each sentence
    truncated: bool = False  # whether the model has more dimensions than its embeddings
    recipe: dict[str, Any] = field(default_factory=dict)
    repository: str = ""
    datasets: list[str] = field(default_factory=list)
    training: list[str] = field(default_factory=list)  # sentences about steps and checkpoint
    pairs: dict[str, int] = field(default_factory=dict)
    tables: list[EvaluationTable] = field(default_factory=list)
    trained_here: bool = True
    plain: bool = True  # an export, not the checkpoint of a run
    settings_from: str = "The recipe"

    @property
    def method(self) -> dict[str, str]:
        """Title, description and citation of the recipe's method."""
        name = str(self.recipe.get("method", "alignment"))
        if [*(self.recipe.get("objectives") or ())] == ["translation_ranking"]:
            name = "translation_ranking"
        known: dict[str, dict[str, str]] = yaml.safe_load(_resource("methods.yaml"))
        if name not in known:
            raise ModelError(
                f"the method {name!r} has no description for a model card: add one to publishing/methods.yaml"
            )
        return known[name]


def render_card(facts: CardFacts, complete: bool = True) -> ModelCard:
    """Render the card. Refuse a wrong repository id and, if ``complete``, missing facts."""
    for name in ("base_model", "license", "languages"):
        if complete and not getattr(facts, name):
            raise OutputError(f"the model card lacks the field {name}: give it as --{name}")
    data = ModelCardData(
        language=facts.languages or None,
        license=facts.license or None,
        library_name="sentence-transformers" if facts.plain else "transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", *_TAGS] if facts.plain else _TAGS,
        base_model=facts.base_model or None,
        datasets=facts.datasets or None,
        model_name=facts.name,
        eval_results=[result for table in facts.tables if table.measured for result in table.results] or None,
    )
    if facts.repository and not _REPOSITORY.fullmatch(facts.repository):
        raise OutputError(f"the repository {shortened(facts.repository)} is not a Hub id: give it as owner/name")
    if facts.pooling not in _POOLING_WORDS:
        raise ModelError(f"the model card cannot describe the pooling {shortened(facts.pooling)}: export the run again")
    recipe = _recipe_text(facts.recipe) if facts.recipe else ""
    shown = vars(facts) | {
        **{name: markdown_text(getattr(facts, name)) for name in ("name", "base_model", "license")},
        "languages": [markdown_text(language) for language in facts.languages],
        "pairs": {markdown_text(language): count for language, count in facts.pairs.items()},
        "tables": [_shown_table(table) for table in facts.tables],
        "repository": facts.repository or (facts.name if _REPOSITORY.fullmatch(facts.name) else "path/to/this/folder"),
        "method": facts.method,
        "pooling_in_words": _POOLING_WORDS[facts.pooling],
        "pooling_code": _POOLING_CODE.get(facts.pooling),
        "sentences": ", ".join(json.dumps(facts.prompt + sentence, ensure_ascii=False) for sentence in _EXAMPLES),
        "recipe": recipe,
        "fence": "`" * max(3, 1 + max(map(len, re.findall("`+", recipe)), default=0)),
    }
    return ModelCard.from_template(data, template_str=_resource("model_card_template.md"), **shown)


def write_model_card(
    folder: str | Path,
    facts: CardFacts | None = None,
    *,
    run: str | Path | None = None,
    results: Sequence[str | Path] = (),
    **others: Any,
) -> Path:
    """Write the model card of an export: README.md, and the measured results for the Hub's leaderboards.

    The facts of the run that trained the model are read from the export, or from the folder ``run`` if given;
    ``results`` are files written by ``evaluate``. Keyword arguments add or replace facts: license, name, base_model,
    languages, repository, datasets.

    ```python
    from hf_xsent import write_model_card

    write_model_card("exported/mine", results=["results.json"], license="apache-2.0", base_model="org/encoder")
    ```
    """
    if facts is None:
        facts = _facts_of_export(folder, run, results, others)
    folder, card = Path(folder), render_card(facts)
    write_text(folder / "README.md", f"{card}\n" if not str(card).endswith("\n") else str(card))
    entries = [
        EvalResultEntry(
            dataset_id=result.dataset_type,
            task_id=table.task,
            value=result.metric_value,
            notes=f"{table.note} Measured: {', '.join(table.languages)}.",
        )
        for table in facts.tables
        if table.measured
        for result in table.results
    ]
    if entries:
        text = yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True)
        write_text(folder / ".eval_results" / "hf-xsent.yaml", text)
    else:
        (folder / ".eval_results" / "hf-xsent.yaml").unlink(missing_ok=True)
    return folder / "README.md"


def _facts_of_export(
    folder: str | Path, run: str | Path | None, results: Sequence[str | Path], others: Mapping[str, Any]
) -> CardFacts:
    """Collect the facts of the run and of the evaluations; ``others`` are those that the user gives."""
    check_export(folder)
    known = {"license": ""} | (read_run_facts(folder) if run is None else facts_of_run(run))
    known |= encoding_facts(folder)
    names = ("name", "license", "base_model", "languages", "repository", "datasets")
    if wrong := [name for name in others if name not in names]:
        raise OutputError(f"a model card has no field {wrong[0]!r}: use {', '.join(names)}")
    tables = with_one_result([table for path in results for table in read_tables(path, encoding=_measured_as(folder))])
    return CardFacts(**known | {name: value for name, value in others.items() if value} | {"tables": tables})


def encoding_facts(folder: str | Path) -> dict[str, Any]:
    """Return the facts of an export's encoding that may differ from the run: prompt, pooling, length, dimensions."""
    settings = read_modules(str(folder))
    prompt = settings.get("prompts", {}).get(settings.get("default_prompt_name")) or ""
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    facts = {"prompt": prompt, "truncated": "dim" in settings, "normalize": settings.get("normalize", False)}
    facts["dimensions"] = config["hidden_size"]
    facts |= {"max_length": settings["max_length"]} if "max_length" in settings else {}
    facts["pooling"] = "mean of layers" if "mix" in settings else settings["pooling"]
    return facts | ({"dimensions": settings["dim"]} if "dim" in settings else {})


def _measured_as(folder: str | Path) -> dict[str, Any]:
    """Return the settings that results of this export have, in the words of ``evaluate``."""
    settings = read_modules(str(folder))
    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    measured = {"layer": config["num_hidden_layers"], "dim": config["hidden_size"]}
    if "mix" in settings:  # a mix of layers, whose sum and mean have the same cosines
        measured["layer"] = None
        settings.pop("pooling")
    return measured | {name: settings[name] for name in ("pooling", "dim", "max_length") if name in settings}


def portable_facts(run: str | Path) -> dict[str, Any]:
    """Read the facts of a run, with the name instead of each absolute path."""
    facts = facts_of_run(run)
    return facts | {"recipe": _portable(facts["recipe"])}


def facts_of_run(run: str | Path) -> dict[str, Any]:
    """Read the facts of ``CardFacts`` from the folder of a run or checkpoint: recipe, languages, pairs, steps."""
    model, run = Path(run), Path(run)
    if not (run / "recipe.yaml").is_file():
        run = run.resolve().parent
    if not (run / "recipe.yaml").is_file():
        raise ModelError(f"{model} is not the folder of a run: it has no recipe.yaml")
    try:
        return _facts(run, model)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        files = "recipe.yaml, config.json, bitext.json and trainer_state.json"
        raise ModelError(f"{run} has a damaged file among {files} ({type(error).__name__}: {error})") from error


def _facts(run: Path, model: Path) -> dict[str, Any]:
    recipe = dict(parse_yaml((run / "recipe.yaml").read_text(encoding="utf-8")))
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    encoder, settings = config.get("encoder_config", config), config.get(SETTINGS, config)
    counts = json.loads((run / "bitext.json").read_text(encoding="utf-8")) if (run / "bitext.json").is_file() else {}
    pairs = {language: int(count["retained"]) for language, count in counts.items() if language != "total"}
    target = str(recipe.get("target_language", "en"))
    return {
        "name": run.resolve().name,
        "base_model": "" if is_local(str(recipe.get("model", ""))) else str(recipe.get("model", "")),
        "languages": sorted({*pairs, target} if pairs else set()),
        "dimensions": int(encoder["hidden_size"]),
        "pooling": "mean of layers"
        if (settings["model_type"], settings["pooling"]) == ("dual-pivot", "mean")
        else str(settings["pooling"]),
        "max_length": int(settings["max_length"]),
        "normalize": bool(settings["normalize"]),
        "recipe": recipe,
        "pairs": pairs,
        "training": _training_sentences(run, model, recipe),
        "plain": "encoder_config" not in config,
    }


def _training_sentences(run: Path, model: Path, recipe: Mapping[str, Any]) -> list[str]:
    states = sorted(run.glob("checkpoint-*/trainer_state.json"), key=lambda path: int(path.parent.name.split("-")[1]))
    if model != run:
        states = list(model.glob("trainer_state.json"))
    if not states:
        return []
    state = json.loads(states[-1].read_text(encoding="utf-8"))
    sentences = [f"Training took {state['global_step']:,} steps ({state['epoch']:.2f} epochs)."]
    changed = recipe.get("share_of_start") or recipe.get("ema_decay")
    step = state.get("best_global_step")
    has_best = Path(state.get("best_model_checkpoint") or "").name == f"checkpoint-{step}"
    best_at_end = recipe.get("load_best_model_at_end", True) and has_best and not changed
    is_best = best_at_end if model == run else state["global_step"] == step
    by_accuracy = recipe.get("metric_for_best_model", "accuracy") in ("accuracy", "eval_accuracy")
    if state.get("best_metric") is not None and is_best and by_accuracy:
        best = f"{state['best_metric']:.2f}% retrieval accuracy@1, mean of both directions"
        sentences.append(f"The weights are those of step {step:,}, the best on dev pairs: {best}.")
    return sentences


def _recipe_text(recipe: Mapping[str, Any]) -> str:
    return yaml.safe_dump(_portable(recipe), sort_keys=False, allow_unicode=True, width=120).rstrip()


def _portable(recipe: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _without_folders(value) for key, value in recipe.items() if key not in _LOCAL_KEYS}


def _without_folders(value: Any) -> Any:
    """Reduce absolute paths, which may be private, to the file name."""
    if isinstance(value, str):
        name, equals, path = value.rpartition("=")
        return name + equals + Path(path).name if path.startswith("/") else value
    if isinstance(value, Sequence):
        return [_without_folders(item) for item in value]
    return {key: _without_folders(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _shown_table(table: EvaluationTable) -> EvaluationTable:
    header, *rows = [[markdown_text(str(cell)) for cell in row] for row in (table.header, *table.rows)]
    return replace(table, title=markdown_text(table.title), header=header, rows=rows, note=markdown_text(table.note))


def _resource(name: str) -> str:
    return (files("hf_xsent.publishing") / name).read_text(encoding="utf-8")
