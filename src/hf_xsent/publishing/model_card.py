"""Write model cards from the facts that the folder of a model stores: its training, its results, what users state."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData

from hf_xsent.data.bitext import NOT_STATED
from hf_xsent.data.languages import find_language, language_of_tag
from hf_xsent.errors import OutputError
from hf_xsent.evaluation.opened import short_names
from hf_xsent.evaluation.report import Report
from hf_xsent.files import digest, is_local, write_json, write_text
from hf_xsent.models.sentence_transformer_files import read_json
from hf_xsent.publishing.evaluation_tables import EvaluationTable, read_results, tabulate
from hf_xsent.publishing.export_folder import encoding_facts
from hf_xsent.publishing.runtimes import resource, runtimes_of, runtimes_table
from hf_xsent.runs.identity import identify_model
from hf_xsent.runs.run import RUN_FACTS

logger = logging.getLogger(__name__)

NOT_ON_THE_HUB = "which is not on the Hub"  # said in the template of an encoder that only this machine has
_POOLING_WORDS = {
    "cls": "the first token's hidden state",
    "mean": "the mean over the tokens",
    "max": "the maximum over the tokens",
    "sum": "a weighted sum of layers, summed over the tokens",
    "mean of layers": "a weighted sum of layers, averaged over the tokens",
}
_SIGNATURE = "\n<!-- Written by hf-xsent from training.json ({}); publish never changes a card that was edited. -->\n"
_TAGS = ["feature-extraction", "sentence-similarity", "cross-lingual", "bitext-mining", "hf-xsent"]


def render_card(facts: Mapping[str, Any], tables: Sequence[EvaluationTable] = ()) -> ModelCard:
    """Render the card of a model from its name, its repository, the facts that it stores, and those of its encoding."""
    folder, recipe = facts["repository"].rsplit("/", 1)[-1], facts.get("recipe") or {}
    data = ModelCardData(
        language=[*dict.fromkeys(filter(None, map(hub_language, facts.get("languages", ()))))] or None,
        license=facts.get("license"),
        library_name="sentence-transformers" if facts["plain"] else "transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", *_TAGS] if facts["plain"] else _TAGS,
        base_model=facts.get("base_model"),
        datasets=facts.get("datasets"),
        model_name=facts["name"],
        eval_results=[table.result for table in tables if table.result is not None] or None,
    )
    examples: dict[str, list[str]] = yaml.safe_load(resource("example_sentences.yaml"))
    first, *others = [code for code in map(hub_language, facts.get("languages", ())) if code in examples] or [
        "de",
        "fr",
    ]
    shown = {
        "sentences": json.dumps(
            ["The train to Prague leaves at eight o'clock.", examples[first][0]], ensure_ascii=False
        ),
        "first_language": first,
        "model_in_shell": shlex.quote(facts["repository"]),
        "documents": [examples[first][0], *(examples[code][1] for code in others[:2])],
        "tables": tables,
        "method": _method(recipe),
        "pooling_in_words": _POOLING_WORDS[facts["pooling"]],
        "folder": folder,
        "snippets": [
            (runtime.title, file, runtime.language, runtime.code(facts, file, folder, facts["repository"]))
            for runtime in runtimes_of(facts)[1:]
            for file in runtime.files
            if file in ("model.safetensors", *facts["files"])
        ],
        "runtimes_table": runtimes_table(facts["opened"]).markdown() if facts["opened"] else "",
        "recipe": recipe and yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=120).rstrip(),
    }
    return ModelCard.from_template(data, template_str=resource("model_card_template.md"), **{**facts, **shown})


def _method(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return title, description and citation of the recipe's method."""
    objectives = recipe.get("objectives") or {}
    methods: dict[str, dict[str, str]] = yaml.safe_load(resource("methods.yaml"))
    alone = next(iter(objectives)) if len(objectives) == 1 else ""
    method = methods[alone if alone in methods else str(recipe.get("method", "alignment"))]
    ranking = objectives.get("translation_ranking")
    if isinstance(ranking, Mapping) and ranking.get("own_side"):
        method["what"] += " A sentence is also contrasted with the others on its side."
    return method


def hub_language(code: str) -> str:
    """Return the code of a language as the Hub lists it, without region and script; empty if it is undetermined.

    >>> hub_language("deu"), hub_language("zh_Hans"), hub_language("und"), hub_language("multilingual")
    ('de', 'zh', '', 'multilingual')
    """
    if re.fullmatch("multilingual|[a-z]{3}", code) and language_of_tag(code) is None:
        return code  # of three letters: one of the about 7,600 in ISO 639-3 that our table lacks
    return find_language(code).code.replace("und", "")


def compose_card(folder: str | Path, facts: Mapping[str, Any], repository: str) -> str:
    """Return the text of the card of a saved model, from its facts and the files that state how it encodes.

    ``repository`` is its id on the Hub or, before it is published, the name of its folder.
    """
    encoding, name = encoding_facts(folder), repository.rsplit("/", 1)[-1]
    tables = tabulate(_reports(facts), encoding, str(facts.get("recipe", {}).get("model", "")))
    stored = {"name": name, "repository": repository} | {key: fact for key, fact in facts.items() if fact}
    return _signed(f"{render_card(stored | encoding, tables)}\n")


def write_card(folder: str | Path, facts: Mapping[str, Any], card: str) -> None:
    """Write the facts of a saved model, and the card that states them, into its folder."""
    write_json(Path(folder) / RUN_FACTS, facts)
    write_text(Path(folder) / "README.md", card)


def is_generated(card: str) -> bool:
    """Return whether the text of a card is as ``write_card`` wrote it: not edited since, and not from elsewhere.

    >>> is_generated("# mine"), is_generated(_signed("# mine")), is_generated(_signed("# mine").replace("mine", "ours"))
    (False, True, False)
    """
    return card == _signed(card.rpartition(_SIGNATURE.partition("{")[0])[0])


def _reports(facts: Mapping[str, Any]) -> list[Report]:
    return [Report(**result) for result in facts.get("results", ())]


def _signed(text: str) -> str:
    return text + _SIGNATURE.format(digest(text))


def add_facts(folder: str | Path, results: Iterable[str | Path] | None, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an export with results of evaluations and what the user states, which replace the earlier."""
    facts = facts_of_run(folder)
    if results is not None:
        fingerprints = {identify_model(str(folder)), str(facts.get("exported_from"))}
        encoding = encoding_facts(folder)
        last = _last_of_each_data(read_results(results, fingerprints, encoding["dimensions"]))
        for length in {report.settings.get("max_length", encoding["max_length"]) for report in last}:
            if length != encoding["max_length"]:
                logger.warning(
                    "results were measured with %d tokens of a text, but %s reads %d: evaluate with max_length %d",
                    *(length, folder, encoding["max_length"], encoding["max_length"]),
                )
        facts["results"] = [without_folders(asdict(report)) for report in last]
    return facts | stated_facts(stated)


def _last_of_each_data(reports: Iterable[Report]) -> list[Report]:
    """Return the last report of equal task, settings and data; own data are known by their name and languages.

    One that was compared with another model stays if the later one, of the same records, was not.
    """
    last: dict[str, Report] = {}
    for report in reports:
        records = f"{report.data}: {', '.join(report.languages)}" if report.data else report.data_fingerprint
        key = replace(report, data_fingerprint=records).key
        if key in last and last[key].key != report.key:
            logger.warning("%s has other records than before: the card states its last results", report.data)
        stays = key in last and last[key].key == report.key and last[key].differences and not report.differences
        last[key] = last[key] if stays else report
    return [*last.values()]


def stated_facts(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that a user states; of the folder of an encoder that is not on the Hub, its name."""
    plain = {name: value for name, value in stated.items() if value is not None and name != "base_model"}
    facts = without_folders(plain)
    if start := stated.get("base_model"):
        local = is_local(start)
        facts |= {"base_model": "" if local else start, "local_start": Path(start).resolve().name if local else ""}
    return dict(facts)


def without_folders(value: Any) -> Any:
    """Reduce absolute paths, which may be private, to their last name.

    >>> without_folders({"data": ["de=/home/me/a.de, /home/me/a.en"], "model": "/models/e5", "dev": "dev/de.tsv"})
    {'data': ['de=a.de, a.en'], 'model': 'e5', 'dev': 'dev/de.tsv'}
    """
    if isinstance(value, str):
        return re.sub(r"(?:(?<=[=,])|(?<=[=,] )|(?<!.))/(?:[^,]*/)?(?=[^,/])", "", value)
    if isinstance(value, Mapping):
        return {key: without_folders(item) for key, item in value.items()}
    return [without_folders(item) for item in value] if isinstance(value, list | tuple) else value


def listed(value: Any) -> list[Any]:
    """Return the values of a field or an argument, which may be a single one."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def card_metadata(text: str, path: Path) -> dict[str, Any]:
    """Return the metadata of the text of a card, which is or will be at this path."""
    try:
        return dict(ModelCard(text).data.to_dict())
    except (ValueError, yaml.YAMLError) as error:
        raise OutputError(f"{path} has unreadable metadata: {' '.join(str(error).split())}") from error


def facts_of_run(folder: str | Path) -> dict[str, Any]:
    """Return the facts that a run, a checkpoint or an export stores; empty if there are none.

    They are recipe, languages, pairs and steps of the training, and the results and statements that publish added.
    """
    return dict(read_json(str(folder), RUN_FACTS)) if Path(folder).is_dir() else {}


def facts_of_all(trainings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the languages of several trainings, and their pairs by language, and by origin and licence."""
    pairs, ledger, languages = Counter[str](), Counter[str](), set[str]()
    for facts in trainings:
        pairs.update(facts["pairs"])
        ledger.update(facts.get("ledger") or ({NOT_STATED: sum(facts["pairs"].values())} if facts["pairs"] else {}))
        languages.update(facts["languages"])
    stated = {} if {*ledger} == {NOT_STATED} else dict(ledger)
    return {"languages": sorted(languages), "pairs": dict(pairs), "ledger": stated}


def facts_of_mean(folders: Sequence[str]) -> dict[str, Any]:
    """Return the facts of models whose weights are averaged: the pairs of all, and the recipe of the first with one."""
    if len(folders) == 1:
        return facts_of_run(folders[0])
    trained = {folder: facts for folder in folders if "recipe" in (facts := facts_of_run(folder))}
    if not trained:
        return {}
    first, names = next(iter(trained)), short_names([os.path.normpath(folder) for folder in folders])
    mean = (
        f"The weights are the mean of those of {', '.join(names.values())}. Recipe and steps are those of "
        f"{names[os.path.normpath(first)]}; a pair is "
        "counted for each of the models that was trained on it."
    )
    return trained[first] | facts_of_all(trained.values()) | {"training": [*trained[first]["training"], mean]}
