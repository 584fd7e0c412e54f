"""Write model cards from the facts that the folder of a model stores: its training, its results, what users state."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData

from hf_xsent.data.languages import find_language, language_of_tag
from hf_xsent.errors import OutputError
from hf_xsent.evaluation.opened import short_names
from hf_xsent.evaluation.report import Report
from hf_xsent.files import digest, is_local, write_text
from hf_xsent.pages.tables import markdown_text
from hf_xsent.publishing.evaluation_tables import EvaluationTable, read_results, tabulate
from hf_xsent.publishing.export_folder import encoding_facts
from hf_xsent.publishing.facts import ModelFacts, without_folders
from hf_xsent.publishing.runtimes import resource, runtimes_of, runtimes_table
from hf_xsent.runs.identity import identify_model

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


def render_card(
    facts: ModelFacts,
    encoding: Mapping[str, Any],
    repository: str,
    tables: Sequence[EvaluationTable] = (),
    **more: Any,
) -> ModelCard:
    """Render the card of a model from what is known of it and how it encodes (``encoding_facts``).

    ``more`` are a ``note``, a ``recipe_title``, and ``sentences_of_training`` in place of those of the facts.
    """
    folder, recipe, plain = repository.rsplit("/", 1)[-1], dict(facts.recipe), encoding["plain"]
    languages = [*dict.fromkeys(filter(None, map(hub_language, facts.languages)))]
    name = facts.name or folder
    data = ModelCardData(
        language=languages or None,
        license=facts.license or None,
        library_name="sentence-transformers" if plain else "transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", *_TAGS] if plain else _TAGS,
        base_model=facts.base_model or None,
        datasets=[*facts.datasets] or None,
        model_name=name,
        eval_results=[table.result for table in tables if table.result is not None] or None,
    )
    examples: dict[str, list[str]] = yaml.safe_load(resource("example_sentences.yaml"))
    first, *others = [code for code in languages if code in examples] or ["de", "fr"]
    english = ["The train to Prague leaves at eight o'clock."]
    of_language = [examples.get(find_language(code).code, english)[0] for code in encoding["embedded_languages"][:1]]
    shown = {
        "sentences": json.dumps(of_language or [*english, examples[first][0]], ensure_ascii=False),
        "first_language": first,
        "model_in_shell": shlex.quote(repository),
        "documents": [examples[first][0], *(examples[code][1] for code in others[:2])],
        "tables": tables,
        "method": _method(recipe),
        "pooling_in_words": _POOLING_WORDS[encoding["pooling"]],
        "folder": folder,
        "name": name,
        "repository": repository,
        "snippets": [
            (runtime.title, file, runtime.language, runtime.code(encoding, file, folder, repository))
            for runtime in runtimes_of(encoding)[1:]
            for file in runtime.files
            if file in ("model.safetensors", *encoding["files"])
        ],
        "runtimes_table": runtimes_table(encoding["opened"]).markdown() if encoding["opened"] else "",
        "recipe": recipe and yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=120).rstrip(),
        "sentences_of_training": facts.sentences(),
        "facts": facts,
        "markdown_text": markdown_text,
    }
    return ModelCard.from_template(
        data, template_str=resource("model_card_template.md"), **{**encoding, **shown, **more}
    )


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


def compose_card(folder: str | Path, facts: ModelFacts, repository: str) -> str:
    """Return the text of the card of a saved model, from its facts and the files that state how it encodes.

    ``repository`` is its id on the Hub or, before it is published, the name of its folder.
    """
    encoding, reports = encoding_facts(folder), [Report(**result) for result in facts.results]
    tables = tabulate(reports, encoding, str(facts.recipe.get("model", "")))
    return _signed(f"{render_card(facts, encoding, repository, tables)}\n")


def write_card(folder: str | Path, facts: ModelFacts, card: str) -> None:
    """Write the facts of a saved model, and the card that states them, into its folder."""
    facts.write(folder)
    write_text(Path(folder) / "README.md", card)


def is_generated(card: str) -> bool:
    """Return whether the text of a card is as ``write_card`` wrote it: not edited since, and not from elsewhere.

    >>> is_generated("# mine"), is_generated(_signed("# mine")), is_generated(_signed("# mine").replace("mine", "ours"))
    (False, True, False)
    """
    return card == _signed(card.rpartition(_SIGNATURE.partition("{")[0])[0])


def _signed(text: str) -> str:
    return text + _SIGNATURE.format(digest(text))


def add_facts(folder: str | Path, results: Iterable[str | Path] | None, stated: Mapping[str, Any]) -> ModelFacts:
    """Return the facts of an export with results of evaluations and what the user states, which replace the earlier."""
    facts = ModelFacts.read(folder)
    if results is not None:
        fingerprints = {identify_model(str(folder)), facts.exported_from}
        encoding = encoding_facts(folder)
        last = _last_of_each_data(read_results(results, fingerprints, encoding["dimensions"]))
        for length in {report.settings.get("max_length", encoding["max_length"]) for report in last}:
            if length != encoding["max_length"]:
                logger.warning(
                    "results were measured with %d tokens of a text, but %s reads %d: evaluate with max_length %d",
                    *(length, folder, encoding["max_length"], encoding["max_length"]),
                )
        facts = replace(facts, results=[without_folders(asdict(report)) for report in last])
    return replace(facts, **stated_facts(stated))


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
    facts = {name: without_folders(value) for name, value in stated.items() if value is not None}
    if start := stated.get("base_model"):
        local = is_local(start)
        facts |= {"base_model": "" if local else start, "local_start": Path(start).resolve().name if local else ""}
    return facts


def listed(value: Any) -> list[Any]:
    """Return the values of a field or an argument, which may be a single one."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def card_metadata(text: str, path: Path) -> dict[str, Any]:
    """Return the metadata of the text of a card, which is or will be at this path."""
    try:
        return dict(ModelCard(text).data.to_dict())
    except (ValueError, yaml.YAMLError) as error:
        raise OutputError(f"{path} has unreadable metadata: {' '.join(str(error).split())}") from error


def facts_of_mean(folders: Sequence[str]) -> ModelFacts:
    """Return the facts of models whose weights are averaged: the stages of all, at last those of the first trained."""
    every = {folder: ModelFacts.read(folder) for folder in folders}
    if len(folders) == 1:
        return every[folders[0]]
    names = short_names([os.path.normpath(folder) for folder in folders])
    trained = [folder for folder in folders if every[folder].stages] or [*folders]
    first, *others = trained
    return replace(
        every[first],
        stages=[stage for folder in (*others, first) for stage in every[folder].stages],
        languages=sorted({code for folder in trained for code in every[folder].languages}),
        averaged=[names[os.path.normpath(folder)] for folder in sorted(folders, key=lambda folder: folder != first)],
    )
