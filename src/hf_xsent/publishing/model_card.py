"""Write model cards from the facts of a run, which its folder holds, and from the results of evaluations (JSON)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData

from hf_xsent.data.bitext import NOT_STATED
from hf_xsent.data.languages import find_language, language_of_tag
from hf_xsent.errors import OutputError
from hf_xsent.files import is_local
from hf_xsent.publishing.evaluation_tables import EvaluationTable, read_tables
from hf_xsent.publishing.export_folder import RUN_FACTS, check_export, encoding_facts
from hf_xsent.publishing.runtimes import resource, runtimes_of, runtimes_table
from hf_xsent.runs.identity import identify_model

_POOLING_WORDS = {
    "cls": "the first token's hidden state",
    "mean": "the mean over the tokens",
    "max": "the maximum over the tokens",
    "sum": "a weighted sum of layers, summed over the tokens",
    "mean of layers": "a weighted sum of layers, averaged over the tokens",
}
_MIXES = ("sum", "mean of layers")
_NOT_MEASURED = "Not measured."  # the results of a card without any
NOT_ON_THE_HUB = "which is not on the Hub"  # said of an encoder that only this machine has
_TAGS = ["feature-extraction", "sentence-similarity", "cross-lingual", "bitext-mining", "hf-xsent"]


@dataclass
class CardFacts:
    """The content of a card."""

    name: str
    dimensions: int
    pooling: str
    max_length: int
    base_model: str = ""  # its id on the Hub
    local_start: str = ""  # the name of the encoder's folder, if it is not on the Hub
    license: str = ""
    languages: list[str] = field(default_factory=list)  # ISO 639 codes
    normalize: bool = False
    prompt: str = ""  # prepended to each sentence
    prompted: bool = False  # whether the folder states prompts
    linear_map: bool = False  # whether a linear layer follows pooling
    truncated: bool = False  # whether the model has more dimensions than its embeddings
    recipe: dict[str, Any] = field(default_factory=dict)
    recipe_title: str = "The recipe of the run"
    repository: str = ""
    datasets: list[str] = field(default_factory=list)
    training: list[str] = field(default_factory=list)  # sentences about steps and checkpoint
    pairs: dict[str, int] = field(default_factory=dict)
    ledger: dict[str, int] = field(default_factory=dict)  # pairs by origin and licence
    tables: list[EvaluationTable] = field(default_factory=list)
    plain: bool = True  # whether the folder has a plain encoder
    pad_id: int = 0
    pad_token: str = ""
    token_types: bool = False  # whether the tokenizer returns token_type_ids
    files: list[str] = field(default_factory=list)  # those of other runtimes, such as onnx/model.onnx
    exported_from: str = ""  # fingerprint of the folder that was exported
    opened: list[dict[str, Any]] = field(default_factory=list)  # how runtimes opened them

    @property
    def method(self) -> dict[str, str]:
        """Title, description and citation of the recipe's method."""
        name = str(self.recipe.get("method", "alignment"))
        if [*(self.recipe.get("objectives") or ())] == ["translation_ranking"]:
            name = "translation_ranking"
        methods: dict[str, dict[str, str]] = yaml.safe_load(resource("methods.yaml"))
        ranking = (self.recipe.get("objectives") or {}).get("translation_ranking")
        if isinstance(ranking, Mapping) and ranking.get("own_side"):
            methods[name]["what"] += " A sentence is also contrasted with the others on its side."
        return methods[name]


def render_card(facts: CardFacts) -> ModelCard:
    """Render the card; results of a paper, which were not measured, are not in its metadata."""
    data = ModelCardData(
        language=[*dict.fromkeys(filter(None, map(hub_language, facts.languages)))] or None,
        license=facts.license or None,
        library_name="sentence-transformers" if facts.plain else "transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", *_TAGS] if facts.plain else _TAGS,
        base_model=facts.base_model or None,
        datasets=facts.datasets or None,
        model_name=facts.name,
        eval_results=[table.result for table in facts.tables if table.result is not None] or None,
    )
    starts = [f"[{name}](https://huggingface.co/{name})" for name in listed(facts.base_model or None)]
    if not starts and facts.local_start:
        starts = [f"the encoder `{facts.local_start}`, {NOT_ON_THE_HUB}"]
    shown = vars(facts) | {
        "start": " and ".join(starts),
        "repository": facts.repository or facts.name,
        "not_measured": _NOT_MEASURED,
        "trained": all(table.measured for table in facts.tables),
        "method": facts.method,
        "pooling_in_words": _POOLING_WORDS[facts.pooling],
        "snippets": [] if facts.pooling in _MIXES or not facts.plain else _snippets(facts),
        "runtimes_table": runtimes_table(facts.opened).markdown() if facts.opened else "",
        "recipe": yaml.safe_dump(facts.recipe, sort_keys=False, allow_unicode=True, width=120).rstrip()
        if facts.recipe
        else "",
    }
    return ModelCard.from_template(data, template_str=resource("model_card_template.md"), **shown)


def hub_language(code: str) -> str:
    """Return the code of a language as the Hub lists it, without region and script; empty if it is undetermined.

    >>> hub_language("deu"), hub_language("zh_Hans"), hub_language("und"), hub_language("multilingual")
    ('de', 'zh', '', 'multilingual')
    """
    if re.fullmatch("multilingual|[a-z]{3}", code) and language_of_tag(code) is None:
        return code  # of three letters: one of the about 7,600 in ISO 639-3 that our table lacks
    return find_language(code).code.replace("und", "")


def _snippets(facts: CardFacts) -> list[tuple[str, str, str, str]]:
    """Return title, file, language and code of each runtime that opens a file of the export."""
    repository = facts.repository or facts.name
    folder = repository.rsplit("/", 1)[-1]
    return [
        (runtime.title, file, runtime.language, runtime.code(vars(facts), file, folder, repository))
        for runtime in runtimes_of(vars(facts))[1:]
        for file in runtime.files
        if file in ("model.safetensors", *facts.files)
    ]


def compose_card(
    folder: str | Path, run: str | Path | None, results: Sequence[str | Path], added: Mapping[str, Any]
) -> str:
    """Return the text of the card of an export, from what is known of its run and the facts that are added."""
    check_export(folder)
    own = facts_of_run(folder)
    facts = facts_of_run(run) if run else own
    if run and not facts:
        raise OutputError(f"{run} states nothing of a training run: give the folder of a run, or drop --run")
    encoding = encoding_facts(folder)
    fingerprints = {identify_model(str(folder)), str(own.get("exported_from"))}
    start = str(facts.get("recipe", {}).get("model", ""))
    tables = read_tables(*results, fingerprints=fingerprints, encoding=_measured_as(folder, encoding), start=start)
    path = Path(folder) / "README.md"
    card = path.read_text(encoding="utf-8") if path.is_file() else ""
    earlier, stated = _of_earlier_card(card, path), {name: fact for name, fact in facts.items() if fact}
    measured = card.partition("\n## Results\n")[2].lstrip()
    if measured and not measured.startswith(_NOT_MEASURED) and not results:
        raise OutputError(f"{path} has results, which a new card would lose: give them again with --results")
    facts = (
        {"name": Path(folder).name} | (earlier | stated if run else stated | earlier) | encoding | {"tables": tables}
    )
    given = {key: value for key, value in added.items() if value}
    if is_local(given.get("base_model", "")):
        given |= {"base_model": "", "local_start": Path(given["base_model"]).resolve().name}
    return f"{render_card(CardFacts(**facts | given))}\n"


def _of_earlier_card(text: str, path: Path) -> dict[str, Any]:
    """Return the facts of an earlier card that a call may also add."""
    data = card_metadata(text, path) if text else {}
    facts = {name: data.get(name) for name in ("license", "base_model", "datasets")}
    facts["languages"] = [*map(str, listed(data.get("language")))]
    if local := re.search(rf"the encoder `(.+)`, {NOT_ON_THE_HUB}", text):
        facts["local_start"] = local[1]
    return {name: value for name, value in facts.items() if value}


def listed(value: Any) -> list[Any]:
    """Return the values of a field or an argument, which may be a single one."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def card_metadata(text: str, path: Path) -> dict[str, Any]:
    """Return the metadata of the text of a card, which is or will be at this path."""
    try:
        return dict(ModelCard(text).data.to_dict())
    except (ValueError, yaml.YAMLError) as error:
        raise OutputError(f"{path} has unreadable metadata: {' '.join(str(error).split())}") from error


def _measured_as(folder: str | Path, encoding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that results of this export have, in the words of ``evaluate``."""
    measured = {"dim": encoding["dimensions"], "max_length": encoding["max_length"]}
    if encoding["pooling"] in _MIXES:  # whose sum and mean have the same cosines
        return measured | {"layer": None}
    layers = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"]
    return measured | {"layer": layers, "pooling": encoding["pooling"]}


def facts_of_run(folder: str | Path) -> dict[str, Any]:
    """Return the facts of the run that trained a model: recipe, languages, pairs, steps; empty if there are none.

    ``folder`` is a run, a checkpoint or an export: each holds these facts.
    """
    path = Path(folder) / RUN_FACTS
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def facts_of_all(trainings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the languages of several trainings, and their pairs by language, and by origin and licence."""
    pairs, ledger, languages = Counter[str](), Counter[str](), set[str]()
    for facts in trainings:
        pairs.update(facts["pairs"])
        ledger.update(facts.get("ledger") or {NOT_STATED: sum(facts["pairs"].values())})
        languages.update(facts["languages"])
    stated = {} if {*ledger} == {NOT_STATED} else dict(ledger)
    return {"languages": sorted(languages), "pairs": dict(pairs), "ledger": stated}


def facts_of_mean(folders: Sequence[str]) -> dict[str, Any]:
    """Return the facts of models whose weights are averaged: the pairs of all, and the recipe of the first with one."""
    trained = {folder: facts for folder in folders if (facts := facts_of_run(folder))}
    if len(folders) == 1 or not trained:
        return next(iter(trained.values()), {})
    first, names = next(iter(trained)), ", ".join(Path(folder).name for folder in folders)
    mean = (
        f"The weights are the mean of those of {names}. Recipe and steps are those of {Path(first).name}; a pair is "
        "counted for each of the models that was trained on it."
    )
    return trained[first] | facts_of_all(trained.values()) | {"training": [*trained[first]["training"], mean]}
