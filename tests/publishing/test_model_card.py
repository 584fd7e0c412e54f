"""Cards are written from the files of runs and evaluations, and the Hub accepts their metadata."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
import yaml
from card_facts import ENCODING as CARD_ENCODING
from card_facts import rendered
from huggingface_hub import ModelCard
from transformers import AutoTokenizer, BertTokenizer

from hf_xsent import DapForSentenceEmbedding, evaluate, export_sentence_transformer, publish
from hf_xsent.cli import main
from hf_xsent.errors import DataError, ModelError, OutputError
from hf_xsent.evaluation.registry import TASKS, _data_name, load_tasks
from hf_xsent.evaluation.report import Report
from hf_xsent.files import write_json
from hf_xsent.models.dual_pivot import DualPivotForSentenceEmbedding
from hf_xsent.publishing.evaluation_tables import EvaluationTable, read_results, tabulate
from hf_xsent.publishing.export_folder import encoding_facts
from hf_xsent.publishing.facts import ModelFacts, Stage
from hf_xsent.publishing.hub import check_card, plan_upload
from hf_xsent.publishing.model_card import _method, add_facts, render_card
from hf_xsent.runs.identity import identify_model
from hf_xsent.runs.origin import Origin

ROOT = Path(__file__).parents[2]
CARDS = sorted(path for path in (ROOT / "model_cards").glob("*.md") if path.name != "template.md")
ENCODING = {"dimensions": 384, "max_length": 32, "layer": 12, "pooling": "cls"}
TRAINED = yaml.safe_load((ROOT / "model_cards/trained.yaml").read_text("utf-8"))


@pytest.fixture
def results(exported: Path, tmp_path: Path) -> Path:
    scores = {"pairs": 10, "forward": 90.0, "backward": 80.0, "mean": 85.0}
    run = {
        "task": "tatoeba",
        "protocol": "accuracy@1 by cosine",
        "settings": {
            "model": "/home/me/runs/mine",
            "model_fingerprint": identify_model(str(exported)),
            "pooling": "mean",
            "max_length": 16,
        },
        "data_fingerprint": "",
        "versions": {},
        "groups": {"all": scores},
        "languages": {"deu": scores},
        "data": "mteb/tatoeba-bitext-mining",
    }
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"runs": [run]}), "utf-8")
    return path


@pytest.fixture
def trained(exported: Path) -> Path:
    """Return an export that states a training run."""
    recipe = {
        "model": "FacebookAI/xlm-roberta-base",
        "method": "dap",
        "objectives": {
            "translation_ranking": {"weight": 1.0, "temperature": 0.05},
            "representation_translation": {"weight": 0.8, "head_layers": 2},
        },
        "data": ["de=pairs.tsv", "nb=train/nb-en.tsv"],
    }
    stage = Stage(recipe=recipe, pairs={"de": 1200, "nb": 34}, steps=8, epochs=1.5, read_per_step=4)
    languages = ["de", "en", "nb"]
    ModelFacts(stages=[stage], languages=languages, base_model="FacebookAI/xlm-roberta-base").write(exported)
    return exported


def test_a_card_states_the_facts_of_the_run_and_the_evaluation(trained: Path, results: Path) -> None:
    command = [
        "publish",
        str(trained),
        "org/mine",
        "--dry_run",
        "--results",
        str(results),
        "--license",
        "cc-by-4.0",
    ]
    assert main([*command, "--datasets", "Helsinki-NLP/opus-100"]) == 0
    text = (trained / "README.md").read_text("utf-8")
    check_card(text, trained / "README.md")
    stated = ModelCard(text).data.to_dict()
    assert stated["language"] == ["de", "en", "nb"] and stated["license"] == "cc-by-4.0"
    assert stated["base_model"] == "FacebookAI/xlm-roberta-base" and stated["datasets"] == ["Helsinki-NLP/opus-100"]
    (result,) = stated["model-index"][0]["results"]
    assert result["dataset"]["type"] == "mteb/tatoeba-bitext-mining"
    assert [(one["type"], one["value"]) for one in result["metrics"]] == [("accuracy", 85.0)]
    for expected in (
        "| deu | 10 | 90.00 | 80.00 | 85.00 |",
        "| de | 1,200 |",
        "8 steps of 4 pairs (1.50 epochs)",
        'SentenceTransformer("org/mine")',
        "An embedding is the mean over the tokens",
        "de=pairs.tsv",
        "li2023dap",
    ):
        assert expected in text, expected
    assert "/home/me" not in text and "the paper's" not in text


def _tables(path: Path, start: str = "") -> list[EvaluationTable]:
    """Tabulate all results of a file, as those of an export with ``ENCODING``."""
    runs = json.loads(path.read_text("utf-8"))["runs"]
    return tabulate(read_results([path], {run["settings"].get("model_fingerprint") for run in runs}), ENCODING, start)


def test_results_are_published_under_the_name_of_their_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ours"
    folder.mkdir()
    for side in ("deu", "eng"):
        (folder / f"tatoeba.deu-eng.{side}").write_text("".join(f"{side} {number}\n" for number in range(10)), "utf-8")
    (tmp_path / "test.tsv").write_text("".join(f"Hund {n}\tdog {n}\n" for n in range(10)), "utf-8")

    class Model:
        def encode(self, sentences: list[str]) -> np.ndarray:
            return np.ones((len(sentences), 2))

    pairs = [f"de={tmp_path / 'test.tsv'}"]
    reports = evaluate(Model(), {"tatoeba": folder}, pairs=pairs).reports
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"runs": [asdict(report) for report in reports]}), "utf-8")
    results = [table.result for table in _tables(path)]
    assert [(one.dataset_type, one.dataset_name) for one in results if one is not None] == [
        ("ours", "Tatoeba (1 language)"),
        ("test.tsv", "test.tsv (1 language)"),
    ]
    (task,) = load_tasks({}, pairs=pairs)
    assert _data_name(task, ["de=owner/name:de-en", f"sw={tmp_path}/sw.tsv"]) == "owner/name:de-en, sw.tsv"
    assert _data_name(task, ["a/x.sw,b/x.en"]) == "x.sw,x.en"


def test_results_of_a_data_set_in_other_languages_stay_apart_on_the_hub(trained: Path, results: Path) -> None:
    own = json.loads(results.read_text("utf-8"))["runs"][0]
    other = own | {"languages": {"fra": own["languages"]["deu"]}, "data_fingerprint": "other"}
    results.write_text(json.dumps({"runs": [own, other]}), "utf-8")
    (index,) = ModelCard(_card(trained, results=[results])).data.to_dict()["model-index"]
    assert [(one["dataset"]["config"], len(one["metrics"])) for one in index["results"]] == [("deu", 1), ("fra", 1)]


def test_the_examples_of_a_card_are_in_its_languages(exported: Path) -> None:
    facts = replace(ModelFacts.read(exported), languages=["en", "tr", "sw"])
    card = str(render_card(facts, encoding_facts(exported), "org/mine"))
    assert "Prag treni" in card and "Mbwa analala" in card and "Der Zug" not in card and "mine news.tr.txt" in card


def test_inputs_that_only_the_class_of_a_tokenizer_states_are_in_the_code(exported: Path, tmp_path: Path) -> None:
    """BertTokenizer does not save its model_input_names."""
    shutil.copytree(exported, tmp_path / "out")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    BertTokenizer({piece: number for number, piece in enumerate(pieces)}).save_pretrained(tmp_path / "out")
    assert "model_input_names" not in json.loads((tmp_path / "out/tokenizer_config.json").read_text("utf-8"))
    assert encoding_facts(tmp_path / "out")["token_types"] and not encoding_facts(exported)["token_types"]


def test_the_card_of_an_encoder_of_the_hub_names_it(exported: Path, tmp_path: Path) -> None:
    """Also after trimming, whose facts go with the encoder."""
    model = DapForSentenceEmbedding.from_pretrained(exported)
    facts = ModelFacts(languages=["de"], vocabulary="The vocabulary was trimmed.")
    model.encoder.origin = Origin("org/encoder", facts=facts)
    card = (export_sentence_transformer(model, tmp_path / "out", verify=False) / "README.md").read_text("utf-8")
    assert "It started from [org/encoder]" in card and "Languages: de.\nThe vocabulary was trimmed.\n" in card


@pytest.mark.parametrize("settings", [1.0, {"weight": 0.5, "temperature": 0.02}])
def test_a_card_of_ranking_alone_names_translation_ranking(settings: Any) -> None:
    recipe = {"method": "alignment", "objectives": {"translation_ranking": settings}}
    text = rendered(recipe)
    assert "It was trained by translation ranking" in text and "feng2022labse" in text
    assert "contrasted with the others on its side" not in text
    mixed = {"method": "alignment", "objectives": {"translation_ranking": settings, "distillation": 1.0}}
    assert "It was trained with the objectives in the recipe" in rendered(mixed)


def test_a_card_says_which_negatives_the_model_had_and_that_it_needs_no_prefix() -> None:
    recipe = {"method": "alignment", "objectives": {"translation_ranking": {"own_side": True}}}
    text = rendered(recipe)
    assert "contrasted with the others on its side" in text and "They need no prefix" in text
    assert "They need no prefix" not in rendered(recipe, prompted=True)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_of_evaluate_has_a_table(task: str, tmp_path: Path) -> None:
    figures = dict.fromkeys(TASKS[task].headings, 50.0) | {TASKS[task].main_metric: 71.234}
    groups = {"4 pairs, test": figures, "all": figures}
    names = {
        "bucc": ["de-en training", "de-en test (training)", "fr-en test"],
        "retention": ["STS ar", "STS de", "MRR ar"],
    }
    pairs = dict.fromkeys(names.get(task, ["de-en", "fr-en"]), figures)
    report = Report(task, "protocol", {"model": "mine", "pooling": "cls"}, "", {}, groups, pairs)
    write_json(tmp_path / "results.json", {"runs": [asdict(report)]})
    (table,) = _tables(tmp_path / "results.json")
    assert [row[0] for row in table.table.rows] == [*pairs, "mean of 4 pairs, test", "mean of all"]
    of_pairs = task in ("bucc", "sts17", "sts22", "xsim", "word_alignment")
    assert table.title.endswith(f", 2 language{' pair' * of_pairs}s") and table.note == "protocol. pooling cls."
    on_the_hub = task in ("mixed_pool", "retrieval", "tatoeba", "pairs", "sts17", "sts22")
    assert (table.result.metric_value == 71.23) if on_the_hub else (table.result is None)
    assert "71.23" in rendered(tables=[table])


@pytest.mark.parametrize("task", ["pairs", "xsim", "language_probe", "retrieval", "word_alignment"])
def test_tasks_of_any_data_are_published_under_its_name(task: str, tmp_path: Path) -> None:
    figures = dict.fromkeys(TASKS[task].headings, 50.0) | {TASKS[task].main_metric: 71.2}
    reports = [
        Report(task, "", {"model": "mine"}, "", {}, {"all": figures}, {"de": figures}, data) for data in ("a", "b.tsv")
    ]
    write_json(tmp_path / "results.json", {"runs": [asdict(report) for report in reports]})
    titles = [table.title for table in _tables(tmp_path / "results.json")]
    assert [title.split(",")[0] for title in titles] == [f"{TASKS[task].title} of {data}" for data in ("a", "b.tsv")]


def test_the_hub_gets_the_mean_of_those_tracks_of_sts17_that_mteb_has(tmp_path: Path) -> None:
    tracks, every = {"pairs": 1500, "spearman": 76.0}, {"pairs": 1750, "spearman": 67.0}
    groups = {"6 tracks, without es-en-wmt": tracks, "all": every}
    report = Report("sts17", "protocol", {"model": "mine"}, "", {}, groups, {"ar-en": tracks})
    write_json(tmp_path / "results.json", {"runs": [asdict(report)]})
    (result,) = [table.result for table in _tables(tmp_path / "results.json")]
    assert (result.dataset_name, result.metric_value) == ("STS 2017 (6 tracks, without es-en-wmt)", 76.0)


def test_an_incomplete_card_is_not_published(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (exported / "README.md").unlink()
    write_json(exported / "training.json", {})
    assert main(["publish", str(exported), "org/mine"]) == 2
    advice = "README.md states no license and no language and no base_model: publish it with "
    assert f"{advice}--license apache-2.0 and --languages" in capsys.readouterr().err
    with pytest.raises(OutputError, match=f"{advice}license apache-2.0 and languages de sw en and base_model ORG"):
        publish(str(exported), "org/mine")
    assert main(["publish", str(tmp_path), "org/mine"]) == 2
    assert "is not an export: write one with hf-xsent export" in capsys.readouterr().err


def _card(folder: Path, **facts: Any) -> str:
    """Write the card of an export, and return its text."""
    publish(folder, "org/mine", license="mit", dry_run=True, **facts)
    return (folder / "README.md").read_text("utf-8")


def test_a_card_states_truncated_dimensions(trained: Path) -> None:
    path = trained / "config_sentence_transformers.json"
    write_json(path, json.loads(path.read_text("utf-8")) | {"truncate_dim": 16})
    card = _card(trained)
    assert "(16 dimensions)" in card and "then truncated to 16 dimensions" in card
    assert "\n# embeddings have all dimensions: take the first 16 values\ndocker run" in card


def test_a_card_states_prompts_that_were_written_into_the_export(trained: Path) -> None:
    path = trained / "config_sentence_transformers.json"
    prompts = {"prompts": {"query": "question: "}, "default_prompt_name": "query"}
    write_json(path, json.loads(path.read_text("utf-8")) | prompts)
    card = _card(trained)
    assert 'texts = ["question: " + sentence for sentence in sentences]' in card
    assert "both methods add the prompt of that name" in card and "need no prefix" not in card


def test_the_hub_gets_only_results_of_the_export_as_it_is(trained: Path, results: Path) -> None:
    own = json.loads(results.read_text("utf-8"))["runs"][0]
    own["settings"] |= {"layer": 3, "dim": 32}
    changes: list[dict[str, Any]] = [{"layer": 2}, {"pooling": "cls"}, {"dim": 8}, {"max_length": 8}]
    runs = [*(own | {"settings": own["settings"] | change} for change in changes), own]
    results.write_text(json.dumps({"runs": runs}), "utf-8")
    card = _card(trained, results=[results])
    assert card.count("| mean of all |") == 4  # those of other dimensions are of another model
    (index,) = ModelCard(card).data.to_dict()["model-index"]
    assert [metric["value"] for result in index["results"] for metric in result["metrics"]] == [85.0]


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
@pytest.mark.parametrize(("prompt", "dim"), [("", None), ('say "it": ', None), ("the dog ", 8)])
def test_the_code_of_a_card_gives_the_embeddings_of_sentence_transformers(
    encoder_folders: dict[str, Path], tmp_path: Path, pooling: str, prompt: str, dim: int | None
) -> None:
    from sentence_transformers import SentenceTransformer

    prompts = {"prompts": {"query": prompt}, "default_prompt_name": "query"} if prompt else {}
    settings = {"pooling": pooling, "max_length": 16, "normalize": pooling != "max"}
    encoder = str(encoder_folders["bert"])
    model = DapForSentenceEmbedding.from_backbone(encoder, **settings, **prompts).eval()
    folder = tmp_path / "exported"
    export_sentence_transformer(model, folder, AutoTokenizer.from_pretrained(encoder), dim=dim, verify=False)
    card = _card(folder, base_model="org/encoder", languages=["de"])
    use, search, code = re.findall(r"^```python\n(.*?)^```", card, re.DOTALL | re.MULTILINE)[:3]
    assert "org/mine" in use and "semantic_search" in search and code.startswith("import torch\n")
    names: dict[str, Any] = {}
    exec(code.replace('"mine"', repr(str(folder))), names)
    sentences = ["A dog runs.", "Ein Hund rennt."]
    expected = SentenceTransformer(str(folder), device="cpu").encode(sentences)
    assert expected.shape == (2, dim or 32)
    np.testing.assert_allclose(names["encode"](sentences), expected, atol=1e-5)


@pytest.mark.parametrize("prompts", [{}, {"query": "question: ", "passage": "text: "}, {"search": "find "}])
def test_the_search_of_a_card_uses_the_prompts_of_the_model(
    encoder_folders: dict[str, Path], tmp_path: Path, prompts: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    settings = {"prompts": prompts, "default_prompt_name": [*prompts][0]} if prompts else {}
    model = DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), pooling="mean", **settings)
    folder = export_sentence_transformer(model, tmp_path / "exported", verify=False)
    card = _card(folder, base_model="org/encoder", languages=["de"])
    assert ("both methods add the prompt of that name" in card) == bool(prompts)
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```", card, re.DOTALL | re.MULTILINE)[:2]:
        capsys.readouterr()
        exec(code.replace("org/mine", str(folder)), names)
    texts = [prompts.get("passage", "") + text for text in names["documents"]]
    query = prompts.get("query", "") + "When does the train leave?"
    plain = SentenceTransformer(str(folder), device="cpu")
    plain.default_prompt_name = None
    scores = plain.similarity(plain.encode(query), plain.encode(texts))[0]
    found = [names["documents"][row] for row in scores.argsort(descending=True)[:3]]
    assert capsys.readouterr().out.splitlines() == [
        f"{scores[names['documents'].index(text)]:.2f} {text}" for text in found
    ]


def test_a_card_takes_the_results_of_this_model_only(trained: Path, results: Path) -> None:
    run = json.loads(results.read_text("utf-8"))["runs"][0]
    other = run | {"settings": run["settings"] | {"model": "tiny", "model_fingerprint": "another"}}
    results.write_text(json.dumps({"runs": [other]}), "utf-8")
    with pytest.raises(DataError, match=r"results.json has results of tiny, not of this model: evaluate the folder"):
        _card(trained, results=[results])
    worse = {"all": run["groups"]["all"] | {"mean": 12.0}}
    results.write_text(json.dumps({"runs": [other | {"groups": worse}, run]}), "utf-8")
    card = _card(trained, results=[results])
    assert "value: 85.0" in card and "12.0" not in card


def test_results_of_the_exported_folder_are_results_of_the_export(trained: Path, results: Path, tmp_path: Path) -> None:
    again = export_sentence_transformer(trained, tmp_path / "float16", dtype="float16", verify=False)
    assert identify_model(str(again)) != identify_model(str(trained))
    assert "value: 85.0" in _card(again, results=[results])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"pooling": "max"},
        {"normalize": True},
        {"max_length": 8},
        {"prompts": {"query": "Wo ist: "}},
        {"hidden_act": "relu"},
    ],
)
def test_an_opened_model_has_the_results_of_its_folder_if_it_embeds_equally(
    exported: Path, results: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"results": [results], "base_model": "org/base", "languages": ["de"]}
    assert "value: 85.0" in _card(exported, **options)
    model = DapForSentenceEmbedding.from_pretrained(exported, **settings)
    again = export_sentence_transformer(model, tmp_path / "again", verify=False)
    assert ("| mean of all |" in (again / "README.md").read_text("utf-8")) == (not settings)
    if settings:
        with pytest.raises(DataError, match=r"has results of .*, not of this model"):
            _card(again, **options)


@pytest.mark.parametrize("changed", ["", "layer_scores", "linear_map.weight"])
def test_an_opened_dual_pivot_has_the_results_of_its_folder_if_it_has_its_weights(
    encoder_folders: dict[str, Path], tmp_path: Path, changed: str
) -> None:
    model = DualPivotForSentenceEmbedding.from_backbone(str(encoder_folders["xlm-roberta"]))
    torch.nn.init.normal_(model.layer_scores)
    first = export_sentence_transformer(model, tmp_path / "first", verify=False)
    opened = DualPivotForSentenceEmbedding.from_pretrained(first)
    if changed:
        torch.nn.init.normal_(opened.get_parameter(changed))
    facts = ModelFacts.read(export_sentence_transformer(opened, tmp_path / "again", verify=False))
    assert facts.exported_from == ("" if changed else identify_model(str(first)))


def test_results_of_another_tokenizer_are_not_those_of_the_export(
    exported: Path, encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    tokenizer = encoder_folders["xlm-roberta"]
    again = export_sentence_transformer(exported, tmp_path / "again", tokenizer=tokenizer, verify=False)
    assert ModelFacts.read(again).exported_from == ""


def test_what_training_measured_is_not_stated_of_another_length(trained: Path, tmp_path: Path) -> None:
    stage = Stage(measured={"accuracy": [1.0, 2.0]}, steps=1)
    ModelFacts(stages=[stage], exported_from="run").write(trained)
    again = export_sentence_transformer(trained, tmp_path / "again", max_length=8, verify=False)
    facts = ModelFacts.read(again)
    assert facts.exported_from == identify_model(str(trained)) and not facts.stages[0].measured


def test_results_of_the_run_and_of_its_export_are_one_table(trained: Path, results: Path, tmp_path: Path) -> None:
    again = export_sentence_transformer(trained, tmp_path / "float16", dtype="float16", verify=False)
    run = json.loads(results.read_text("utf-8"))["runs"][0]
    changes = {"model": "float16/"}, {"model": "float16", "model_fingerprint": identify_model(str(again))}
    runs = [run, *(run | {"settings": run["settings"] | change} for change in changes)]
    results.write_text(json.dumps({"runs": runs}), "utf-8")
    card = _card(again, results=results, languages="de")
    assert card.count("| mean of all |") == card.count("value: 85.0") == 1 and "language:\n- de\n" in card


def test_a_card_has_only_the_last_results_of_a_file_that_has_changed(
    trained: Path, results: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = json.loads(results.read_text("utf-8"))["runs"][0] | {"data": "gold.tsv"}
    before = run | {"data_fingerprint": "before", "groups": {"all": run["groups"]["all"] | {"mean": 12.0}}}
    results.write_text(json.dumps({"runs": [before, run]}), "utf-8")
    card = _card(trained, results=[results])
    assert "value: 85.0" in card and "12.0" not in card
    assert "gold.tsv has other records than before: the card states its last results" in caplog.text
    compared = {"compared_with": "start", "differences": {"all": {"mean": [1.0, 0.5, 1.5]}, "deu": {"mean": [1, 1, 1]}}}
    results.write_text(json.dumps({"runs": [before | compared, run]}), "utf-8")
    assert "12.0" not in _card(trained, results=[results]), "compared with a start, but on earlier records"


def test_a_card_has_codes_of_languages(trained: Path) -> None:
    with pytest.raises(DataError, match="unknown language code 'German'; the code of German is 'de'"):
        _card(trained, languages=["German"])
    assert "- multilingual" in _card(trained, languages=["multilingual"])


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--license", "Apache-2.0", "the Hub has no licence 'Apache-2.0'; did you mean 'apache-2.0'"),
        ("--license", "free", "the Hub has no licence 'free'; give the id of one that it has, or other"),
        ("--languages", "xx", "unknown language code 'xx'"),
        ("--base_model", "/home/me/encoder", "base_model '/home/me/encoder' is not ORG/NAME: give its id on the Hub"),
        ("--base_model", "xlm-roberta-base", "base_model 'xlm-roberta-base' is not ORG/NAME"),
    ],
)
def test_what_the_hub_refuses_is_refused_before_the_upload(
    exported: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str, message: str
) -> None:
    before = (exported / "README.md").read_text("utf-8")
    assert main(["publish", str(exported), "org/mine", "--dry_run", flag, value]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and (exported / "README.md").read_text("utf-8") == before


def test_the_metadata_have_languages_as_the_hub_lists_them(exported: Path) -> None:
    card = exported / "README.md"
    codes = ["pt_BR", "pt-PT", "zh_Hans", "deu", "und-AB", "qaa"]
    command = ["publish", str(exported), "org/mine", "--dry_run", "--license", "mit"]
    assert main([*command, "--languages", *codes]) == 0
    assert ModelCard(card.read_text("utf-8")).data.language == ["pt", "zh", "de", "qaa"]
    text = re.sub(r"language:\n(- .*\n)+", "language: pt-BR\n", card.read_text("utf-8"))  # by hand
    card.write_text(text, "utf-8")
    with pytest.raises(OutputError, match="the Hub has no language 'pt-BR': write pt"):
        publish(exported, "org/mine", dry_run=True)


def test_an_encoder_that_only_this_machine_has_is_named_and_not_linked(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    command = ["publish", str(exported), "org/mine", "--dry_run", "--license", "mit"]
    assert main([*command, "--base_model", str(tmp_path / "own")]) == 0
    card = ModelCard((exported / "README.md").read_text("utf-8"))
    assert card.data.base_model is None and "It started from the encoder `own`, which is not on the Hub." in card.text
    assert str(tmp_path) not in card.text and plan_upload(exported)
    assert main([*command, "--name", "ours"]) == 0  # keeps it
    assert main([*command, "--base_model", "org/encoder"]) == 0
    assert "It started from [org/encoder]" in (exported / "README.md").read_text("utf-8")


def test_the_table_shows_the_start_and_the_hub_the_name_of_the_pool(tmp_path: Path) -> None:
    figures = {"pairs": 900, "alone": 97.0, "beside": 90.09}
    differences = {name: {"beside": [48.54, 40.0, 50.0]} for name in ("de", "all")}
    settings = {"model": "runs/mine"}
    report = Report("mixed_pool", "protocol", settings, "", {}, {"all": figures}, {"de": figures}, "ntrex")
    report = replace(report, compared_with="e5", differences=differences)
    write_json(tmp_path / "results.json", {"runs": [asdict(report)]})
    (table,) = _tables(tmp_path / "results.json")
    assert table.title == "Mixed pool of ntrex, 1 language" and table.table.header[-2] == "beside own language: e5"
    (of_start,) = _tables(tmp_path / "results.json", start="e5")
    assert of_start.table.header[-2] == "beside own language: before training"
    assert [row[-2:] for row in table.table.rows] == [[pytest.approx(41.55), "+48.54 (+40.00 to +50.00)"]] * 2
    assert table.result is not None
    assert (table.result.dataset_type, table.result.dataset_name) == ("ntrex", "ntrex (1 language)")


def test_the_hub_gets_no_results_of_fewer_than_ten_items(tmp_path: Path) -> None:
    results = []
    for count in (9, 10):
        figures = {"pairs": count, "alone": 97.0, "beside": 90.0}
        report = Report("pairs", "", {"model": "mine"}, "", {}, {"all": figures}, {"de": figures}, "gold.tsv")
        write_json(tmp_path / "results.json", {"runs": [asdict(report)]})
        results += [table.result for table in _tables(tmp_path / "results.json")]
    assert results[0] is None and results[1].metric_value == 90.0


def test_masked_language_modelling_alone_is_not_called_alignment() -> None:
    alone = {"masked_language_modeling": {"weight": 1.0}}
    assert _method({"method": "alignment", "objectives": alone})["title"] == "masked language modelling"
    both = {"translation_ranking": 1, **alone}
    assert _method({"method": "alignment", "objectives": both})["title"] == "sentence alignment"


def test_files_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    assert ModelFacts.read(tmp_path) == ModelFacts()
    with pytest.raises(DataError, match="no such file: .*none.json: write results with hf-xsent evaluate"):
        read_results([tmp_path / "none.json"], {"fingerprint"})
    for content in ("{", '{"steps": 3}'):
        (tmp_path / "training.json").write_text(content, "utf-8")
        with pytest.raises(ModelError, match="has no readable training.json"):
            ModelFacts.read(tmp_path)
    for content in ("{", "{}", '{"runs": [{"task": "tatoeba"}]}'):
        (tmp_path / "results.json").write_text(content, "utf-8")
        with pytest.raises(OutputError, match="holds no results of hf-xsent evaluate"):
            read_results([tmp_path / "results.json"], {"fingerprint"})


def _fill() -> Any:
    spec = importlib.util.spec_from_file_location("fill", ROOT / "model_cards" / "fill.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_cards_are_filled_from_recipes_and_results() -> None:
    filled = _fill().cards()
    assert sorted(filled) == [path.name for path in CARDS] and len(CARDS) == 7
    for path in CARDS:
        assert path.read_text("utf-8") == filled[path.name], f"{path.name} is stale: run python model_cards/fill.py"


def test_a_refused_call_changes_nothing_and_later_calls_add_to_the_facts(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = export_sentence_transformer(encoder_folders["bert"], tmp_path / "exported", verify=False)
    command = ["publish", str(folder), "org/mine", "--dry_run"]
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert main([*command, "--datasets", "org/pairs", "--languages", "de"]) == 2  # states no licence
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    facts = ["--license", "mit", "--base_model", "org/encoder", "--name", "Ours", "--languages", "de"]
    assert main([*command, *facts]) == 0
    assert main([*command, "--datasets", "org/other"]) == 0
    card = ModelCard((folder / "README.md").read_text("utf-8"))
    stated = card.data.to_dict()
    names = ("license", "base_model", "model_name", "language", "datasets")
    assert [stated[name] for name in names] == ["mit", "org/encoder", "Ours", ["de"], ["org/other"]]
    assert card.text.lstrip().startswith("# Ours\n") and 'SentenceTransformer("org/mine")' in card.text


def test_results_of_a_later_call_replace_the_earlier_ones(exported: Path, results: Path, tmp_path: Path) -> None:
    run = json.loads(results.read_text("utf-8"))["runs"][0]
    command = ["publish", str(exported), "org/mine", "--dry_run"]
    assert main([*command, "--name", "Ours", "--results", str(results)]) == 0
    pairs = run | {"task": "pairs", "data": "gold.tsv", "compared_with": "/home/me/e5"}
    figures = {name: {"pairs": 9, "alone": 97.0, "beside": 90.09} for name in ("de", "all")}
    pairs |= {"groups": {"all": figures["all"]}, "languages": {"de": figures["de"]}}
    pairs |= {"differences": {name: {"beside": [48.54, 40.0, 50.0]} for name in figures}}
    (tmp_path / "own.json").write_text(json.dumps({"runs": [pairs]}), "utf-8")
    assert main([*command, "--results", str(results), str(tmp_path / "own.json")]) == 0
    again = {"pairs": 10, "forward": 92.0, "backward": 90.0, "mean": 91.0}
    results.write_text(json.dumps({"runs": [run | {"groups": {"all": again}, "languages": {"deu": again}}]}), "utf-8")
    assert main([*command, "--results", str(results), str(tmp_path / "own.json")]) == 0
    card = ModelCard((exported / "README.md").read_text("utf-8"))
    assert "# Ours\n" in card.text and "# dap-tiny" not in card.text
    assert (
        "beside own language: e5 | difference (95% interval over test items) |\n" in card.text and "90.09" in card.text
    )
    assert "| deu | 10 | 92.00 | 90.00 | 91.00 |" in card.text
    assert card.text.count("| mean of all |") == 2 and "85.00" not in card.text
    stored = (exported / "training.json").read_text("utf-8")
    assert '"compared_with": "e5"' in stored and "/home/me" not in stored + str(card)
    assert (
        main([*command, "--license", "mit"]) == 0
        and (exported / "README.md").read_text("utf-8").count("mean of all") == 2
    )
    assert main([*command, "--results", str(results)]) == 0
    card = ModelCard((exported / "README.md").read_text("utf-8"))
    assert "92.00" in card.text and "90.09" not in card.text


def test_an_edited_card_is_published_as_it_is(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card, facts = exported / "README.md", exported / "training.json"
    command = ["publish", str(exported), "org/mine", "--dry_run"]
    edited = card.read_text("utf-8").replace("## Limits\n", "## Intended use\n\nSearch of news.\n\n## Limits\n")
    card.write_text(edited, "utf-8")
    stored = facts.read_bytes()
    assert main(command) == 0 and card.read_text("utf-8") == edited
    assert main([*command, "--license", "cc-by-4.0"]) == 2
    assert f"{card} was edited, or is not from this command, and is not changed: edit it" in capsys.readouterr().err
    assert card.read_text("utf-8") == edited and facts.read_bytes() == stored
    card.unlink()
    assert main([*command, "--license", "cc-by-4.0"]) == 0
    assert ModelCard(card.read_text("utf-8")).data.license == "cc-by-4.0"


def test_an_export_of_an_export_keeps_what_users_state_and_results_of_the_same_embeddings(
    exported: Path, results: Path, tmp_path: Path
) -> None:
    publish(exported, "org/mine", name="Ours", results=[results], dry_run=True)
    again = export_sentence_transformer(exported, tmp_path / "again", dtype="float16", verify=False)
    card = (again / "README.md").read_text("utf-8")
    assert "# Ours\n" in card and "license: mit" in card and "| deu | 10 | 90.00 | 80.00 | 85.00 |" in card
    shutil.copytree(exported, tmp_path / "other")
    mean = export_sentence_transformer(exported, tmp_path / "mean", average=[str(tmp_path / "other")], verify=False)
    card = (mean / "README.md").read_text("utf-8")
    assert "Not measured." in card and "# mean\n" in card


def test_an_export_of_fewer_dimensions_has_no_results_of_all(exported: Path, pairs: Any, tmp_path: Path) -> None:
    evaluate(str(exported), pairs={"de": pairs}, output=str(tmp_path / "results.json"))
    publish(exported, "org/mine", results=[tmp_path / "results.json"], dry_run=True)
    cards = []
    for name, dim in (("all", None), ("part", 8)):
        folder = export_sentence_transformer(exported, tmp_path / name, dim=dim, verify=False)
        cards.append((folder / "README.md").read_text("utf-8"))
    assert "| mean of all |" in cards[0] and "| mean of all |" not in cards[1] and "Not measured." in cards[1]


def test_results_of_a_plain_encoder_are_those_of_its_export(
    encoder_folders: dict[str, Path], pairs: Any, tmp_path: Path
) -> None:
    encoder = str(encoder_folders["bert"])
    evaluate(encoder, pairs={"de": pairs}, output=str(tmp_path / "results.json"))
    folder = export_sentence_transformer(encoder, tmp_path / "exported", verify=False)
    facts: dict[str, Any] = {"base_model": "org/encoder", "languages": ["de"]}
    assert "| mean of all |" in _card(folder, results=[tmp_path / "results.json"], **facts)


def test_a_name_with_spaces_is_one_word_of_the_command_of_a_card() -> None:
    assert "--model 'my export' --output" in rendered(repository="my export")


def test_the_card_of_a_mix_of_layers_names_a_linear_map_only_if_it_has_one() -> None:
    cards = [rendered(pooling="sum", layer=None, linear_map=mapped) for mapped in (False, True)]
    assert ["followed by a linear map" in card for card in cards] == [False, True]


def test_a_repository_without_an_owner_is_refused(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("mine", "./published", "org/my model", "org/", "a/b/c"):
        assert main(["publish", str(exported), name, "--dry_run"]) == 2
        assert f"'{name}' is not ORG/NAME" in capsys.readouterr().err
    assert main(["publish", str(exported), "--dry_run"]) == 2
    assert "repository is missing: give REPOSITORY" in capsys.readouterr().err
    assert main(["publish", str(exported), "org/mine", "--dry_run", "--datasets", "pairs.tsv"]) == 2
    assert "datasets 'pairs.tsv' is not ORG/NAME" in capsys.readouterr().err


def test_a_stated_fact_is_cleared_by_an_empty_list(exported: Path) -> None:
    facts: dict[str, Any] = {"license": "mit", "base_model": "org/start", "dry_run": True}
    publish(exported, "org/mine", datasets=["org/data"], **facts)
    assert "org/data" in (exported / "README.md").read_text("utf-8")
    published = publish(exported, "org/mine", datasets=[], **facts)
    assert "org/data" not in (exported / "README.md").read_text("utf-8")
    assert f"the card is {exported / 'README.md'}" in str(published)


def test_results_of_other_dimensions_are_not_those_of_the_export(
    exported: Path, tmp_path: Path, pairs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    results, part = tmp_path / "results.json", tmp_path / "part"
    evaluate(str(exported), pairs={"de": pairs}, max_length=6, output=str(results))
    export_sentence_transformer(exported, part, dim=8, verify=False)
    with pytest.raises(DataError, match=r"has results with \d+ dimensions, but this model has 8: evaluate the folder"):
        add_facts(part, [results], {})
    assert len(add_facts(exported, [results], {}).results) == 1
    assert "results were measured with 6 tokens of a text" in caplog.text


@pytest.mark.parametrize("path", [one for one in CARDS if one.stem not in TRAINED], ids=lambda path: path.stem)
def test_results_of_models_that_were_not_trained_here_are_marked(path: Path) -> None:
    card = ModelCard(path.read_text("utf-8"))
    check_card(path.read_text("utf-8"), path)
    assert "model-index" not in card.data.to_dict()
    tables = [line for line in card.text.split("## Results")[1].splitlines() if line.startswith("| model ")]
    assert card.text.count("**the paper's figures, not measured here**") >= max(1, len(tables))
    assert "No weights were trained for this card." in card.text


@pytest.mark.parametrize(("name", "length"), [("xsent-small", 40), ("mixed-small", 192)])
def test_the_card_of_a_model_that_was_trained_here_has_measured_results(name: str, length: int) -> None:
    path = ROOT / "model_cards" / f"{name}.md"
    card = ModelCard(path.read_text("utf-8"))
    check_card(path.read_text("utf-8"), path)
    runs = json.loads((ROOT / "benchmarks/results" / TRAINED[name]["results"]).read_text("utf-8"))["runs"]
    (run,) = [run for run in runs if (run["task"], run["settings"]["model"]) == ("tatoeba", TRAINED[name]["model"])]
    means = run["groups"].get("all") or run["groups"]["36"]
    assert f"| {means['mean']:.2f} |\n" in card.text.partition("Tatoeba, ")[2].partition("| mean of ")[2]
    assert f"truncated to {length} tokens" in card.text
    as_measured = run["settings"]["max_length"] == length  # else they are not for the Hub
    assert ("model-index" in card.data.to_dict()) == as_measured == (name == "mixed-small")
    assert "No weights were trained" not in card.text and "the paper's figures" not in card.text


@pytest.mark.skipif(int(huggingface_hub.__version__.split(".")[0]) < 2, reason="it validates only at huggingface.co")
def test_the_hub_takes_the_metadata_of_every_card(at_the_hub, exported: Path, results: Path) -> None:
    """Its own validation is a request to the Hub; huggingface_hub sends it."""
    paths = [str(path) for path in (*CARDS, exported / "README.md")]
    code = f"from huggingface_hub import ModelCard\nfor path in {paths!r}: ModelCard.load(path).validate()"
    done = at_the_hub(code)
    assert done.returncode == 0, done.stderr
    broken = ModelCard((exported / "README.md").read_text("utf-8"))
    broken.data.license = "wtfpl"  # which the Hub of this test does not have
    (exported / "README.md").write_text(str(broken), "utf-8")
    assert at_the_hub(code).returncode != 0
    refused = at_the_hub(("publish", str(exported), "org/dap-tiny"))
    assert refused.returncode == 2 and "Invalid metadata in README.md" in refused.stderr


def test_a_card_states_the_unpaired_text_of_every_stage() -> None:
    first = Stage({"target_language": "en"}, ["de", "en"], steps=2, read_per_step=8, unpaired={"de": (1600, 11)})
    second = Stage({"target_language": "en"}, ["fr", "en"], "first", steps=3, read_per_step=4, pairs={"fr": 12})
    card = str(render_card(ModelFacts([first, second]), CARD_ENCODING, "org/mine"))
    assert "Training took 3 steps of 4 pairs (0.00 epochs).\nIt continued the training of first: pairs and" in card
    assert "\nAnother of its trainings read 1,600 sentences in de and 11 in en, which are unpaired.\n" in card
    assert "| fr | 12 |\n" in card and "Training can make answers" in card
