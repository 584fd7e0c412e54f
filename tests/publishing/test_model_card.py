"""Cards are written from the files of runs and evaluations, and the Hub accepts their metadata."""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import yaml
from card_facts import card_facts
from huggingface_hub import ModelCard
from transformers import AutoTokenizer

from hf_xsent import DapForSentenceEmbedding, export_sentence_transformer
from hf_xsent.cli import main
from hf_xsent.errors import DataError, ModelError, OutputError
from hf_xsent.evaluation.registry import TASKS
from hf_xsent.evaluation.report import Report
from hf_xsent.files import write_json
from hf_xsent.publishing.evaluation_tables import read_tables
from hf_xsent.publishing.hub import check_card
from hf_xsent.publishing.model_card import facts_of_run, render_card, write_model_card

ROOT = Path(__file__).parents[2]
CARDS = sorted(path for path in (ROOT / "model_cards").glob("*.md") if path.name != "template.md")
TRAINED = yaml.safe_load((ROOT / "model_cards/trained.yaml").read_text("utf-8"))


@pytest.fixture
def results(tmp_path: Path) -> Path:
    scores = {"pairs": 10, "forward": 90.0, "backward": 80.0, "mean": 85.0}
    run = {
        "task": "tatoeba",
        "protocol": "accuracy@1 by cosine",
        "settings": {"model": "/home/me/runs/mine", "pooling": "mean", "max_length": 16},
        "groups": {"all": scores},
        "languages": {"deu": scores},
    }
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"runs": [run]}), "utf-8")
    return path


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "checkpoint-8").mkdir(parents=True)
    recipe = {
        "model": "FacebookAI/xlm-roberta-base",
        "method": "dap",
        "objectives": {
            "translation_ranking": {"weight": 1.0, "temperature": 0.05},
            "representation_translation": {"weight": 0.8, "head_layers": 2},
        },
        "data": ["de=/home/me/secret/pairs.tsv", "nb=train/nb-en.tsv"],
        "output_dir": "/home/me/runs/mine",
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), "utf-8")
    counts = {"de": {"retained": 1200}, "nb": {"retained": 34}, "total": {"retained": 1234}}
    (folder / "bitext.json").write_text(json.dumps(counts), "utf-8")
    settings = {"model_type": "dap", "pooling": "mean", "max_length": 16, "normalize": True}
    config = {"hidden_size": 32, "hf_xsent": settings}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    state = {"global_step": 8, "epoch": 1.5, "best_metric": 91.25, "best_global_step": 6}
    state["best_model_checkpoint"] = "runs/mine/checkpoint-6"
    (folder / "checkpoint-8" / "trainer_state.json").write_text(json.dumps(state), "utf-8")
    return folder


def test_a_card_states_the_facts_of_the_run_and_the_evaluation(exported: Path, run_folder: Path, results: Path) -> None:
    command = [
        "publish",
        str(exported),
        "org/mine",
        "--dry_run",
        "--run",
        str(run_folder),
        "--results",
        str(results),
        "--license",
        "cc-by-4.0",
    ]
    assert main([*command, "--datasets", "Helsinki-NLP/opus-100"]) == 0
    text = (exported / "README.md").read_text("utf-8")
    check_card(exported / "README.md")
    stated = ModelCard(text).data.to_dict()
    assert stated["language"] == ["de", "en", "nb"] and stated["license"] == "cc-by-4.0"
    assert stated["base_model"] == "FacebookAI/xlm-roberta-base" and stated["datasets"] == ["Helsinki-NLP/opus-100"]
    (result,) = stated["model-index"][0]["results"]
    assert result["dataset"]["type"] == "mteb/tatoeba-bitext-mining"
    assert [(one["type"], one["value"]) for one in result["metrics"]] == [("accuracy", 85.0)]
    for expected in (
        "| deu | 10 | 90.00 | 80.00 | 85.00 |",
        "| de | 1,200 |",
        "8 steps (1.50 epochs)",
        "step 6, the best on dev pairs: 91.25%",
        'SentenceTransformer("org/mine")',
        "(the mean over the tokens; sentences",
        "de=pairs.tsv",
        "li2023dap",
    ):
        assert expected in text, expected
    assert "/home/me" not in text and "the paper's" not in text
    entries = yaml.safe_load((exported / ".eval_results" / "hf-xsent.yaml").read_text("utf-8"))
    assert entries[0]["dataset"] == {"id": "mteb/tatoeba-bitext-mining", "task_id": "tatoeba"}
    assert entries[0]["value"] == 85.0


@pytest.mark.parametrize("settings", [1.0, {"weight": 0.5, "temperature": 0.02}])
def test_a_card_of_ranking_alone_names_translation_ranking(settings: Any) -> None:
    recipe = {"method": "alignment", "objectives": {"translation_ranking": settings}}
    text = str(render_card(card_facts(recipe=recipe)))
    assert "It was trained by translation ranking" in text and "feng2022labse" in text
    mixed = {"method": "alignment", "objectives": {"translation_ranking": settings, "distillation": 1.0}}
    assert "It was trained with the objectives in the recipe" in str(render_card(card_facts(recipe=mixed)))


def test_a_recipe_with_backticks_stays_within_its_block() -> None:
    text = str(render_card(card_facts(recipe={"method": "dap", "run": "x\n```\n# Hacked\n````\n"})))
    fenced = text.partition("The recipe of the run:\n\n")[2]
    fence = fenced[: len(fenced) - len(fenced.lstrip("`"))]
    inside = fenced.removeprefix(fence).partition(f"\n{fence}\n")[0]
    assert len(fence) == 5 and "# Hacked" in inside and "## Results" not in inside


def test_names_in_a_card_stay_text() -> None:
    pairs = {"<img src=x>": 3}
    text = str(render_card(card_facts(name="a\n# b <script>", pairs=pairs, repository="", languages=["<b>"])))
    body = text.split("---\n", 2)[2]
    assert "# a # b &lt;script&gt;" in body and "<script>" not in body and "<img" not in body and "<b>" not in body
    assert 'SentenceTransformer("path/to/this/folder")' in body


@pytest.mark.parametrize("repository", ['a")\nimport os #', "a/b/c", "a b", "<b>", "../x"])
def test_a_repository_that_is_no_hub_id_does_not_reach_the_example(repository: str) -> None:
    with pytest.raises(OutputError, match="is not a Hub id: give it as owner/name"):
        render_card(card_facts(repository=repository))


@pytest.mark.parametrize("name", ["recipe.yaml", "config.json", "bitext.json", "checkpoint-8/trainer_state.json"])
@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, "[1]", "\xff"])
def test_a_damaged_file_of_a_run_is_named(run_folder: Path, name: str, content: str) -> None:
    (run_folder / name).write_text(content, "latin-1")
    with pytest.raises(ModelError, match=rf"{run_folder.name} .*{Path(name).name}"):
        render_card(card_facts(**facts_of_run(run_folder)))


@pytest.mark.parametrize("task", TASKS)
def test_every_task_of_evaluate_has_a_table(task: str, tmp_path: Path) -> None:
    figures = dict.fromkeys(TASKS[task].headings, 50.0) | {TASKS[task].main_metric: 71.234}
    groups = {"4 pairs, test": figures, "all": figures}
    pairs = {"de-en training": figures, "de-en test (training)": figures, "fr-en test": figures}
    report = Report(task, "protocol", {"model": "mine", "pooling": "cls"}, "", {}, groups, pairs)
    write_json(tmp_path / "results.json", {"runs": [asdict(report)]})
    (table,) = read_tables(tmp_path / "results.json")
    assert len(table.header) == 1 + len(figures) and all(len(row) == len(table.header) for row in table.rows)
    assert [row[0] for row in table.rows] == [*pairs, "mean of 4 pairs, test", "mean of all"]
    assert all("71.23" in row for row in table.rows)
    assert ", 2 " in table.title and table.note == "protocol. pooling cls."
    assert [one.metric_value for one in table.results] == ([] if task == "bucc" else [71.23])
    assert "71.23" in str(render_card(card_facts(tables=[table])))


def test_the_hub_gets_the_mean_of_those_tracks_of_sts17_that_mteb_has(tmp_path: Path) -> None:
    groups = {"6 tracks, without es-en-wmt": {"spearman": 76.0}, "all": {"spearman": 67.0}}
    report = Report("sts17", "protocol", {"model": "mine"}, "", {}, groups, {"ar-en": {"spearman": 70.0}})
    write_json(tmp_path / "results.json", {"runs": [asdict(report)]})
    ((result,),) = [table.results for table in read_tables(tmp_path / "results.json")]
    assert (result.dataset_name, result.metric_value) == ("STS 2017 (6 tracks, without es-en-wmt)", 76.0)


def test_an_incomplete_card_is_not_written(
    exported: Path, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (exported / "README.md").read_text("utf-8")
    assert main(["publish", str(exported), "org/mine", "--run", str(run_folder)]) == 2
    assert capsys.readouterr().err == "hf-xsent: the model card lacks the field license: give it as --license\n"
    assert main(["publish", str(run_folder), "org/mine", "--run", str(run_folder)]) == 2
    assert "is not an export: write one with hf-xsent export" in capsys.readouterr().err
    assert (exported / "README.md").read_text("utf-8") == before


def test_a_checkpoint_has_the_facts_of_its_unfinished_run_and_its_own_steps(run_folder: Path) -> None:
    of_run = facts_of_run(run_folder)
    for step in (6, 4):
        checkpoint = run_folder / f"checkpoint-{step}"
        checkpoint.mkdir()
        state = {"global_step": step, "epoch": 1.0, "best_metric": 91.25, "best_global_step": 6}
        (checkpoint / "trainer_state.json").write_text(json.dumps(state), "utf-8")
        (checkpoint / "config.json").write_bytes((run_folder / "config.json").read_bytes())
    (run_folder / "config.json").unlink()
    best, other = (facts_of_run(run_folder / f"checkpoint-{step}") for step in (6, 4))
    assert best["recipe"] == of_run["recipe"] and best["pairs"] == of_run["pairs"] and best["name"] == "mine"
    assert best["training"][0].startswith("Training took 6 steps") and "the best on dev pairs" in best["training"][1]
    assert other["training"] == ["Training took 4 steps (1.00 epochs)."]


@pytest.mark.parametrize(
    "changed",
    [
        {"load_best_model_at_end": False},
        {"share_of_start": 0.5},
        {"ema_decay": 0.99},
        {"metric_for_best_model": "loss"},
    ],
)
def test_weights_that_are_not_those_of_the_best_step_are_not_called_the_best(
    run_folder: Path, changed: dict[str, Any]
) -> None:
    recipe = yaml.safe_load((run_folder / "recipe.yaml").read_text("utf-8"))
    assert "the best on dev pairs" in facts_of_run(run_folder)["training"][1]
    (run_folder / "recipe.yaml").write_text(yaml.safe_dump(recipe | changed), "utf-8")
    assert facts_of_run(run_folder)["training"] == ["Training took 8 steps (1.50 epochs)."]


def test_a_card_without_results_removes_the_earlier_ones_and_states_truncated_dimensions(
    exported: Path, run_folder: Path, results: Path
) -> None:
    write_model_card(exported, run=run_folder, results=[results], license="mit")
    assert (exported / ".eval_results" / "hf-xsent.yaml").is_file()
    stated = json.loads((exported / "config_sentence_transformers.json").read_text("utf-8"))
    (exported / "config_sentence_transformers.json").write_text(json.dumps(stated | {"truncate_dim": 16}), "utf-8")
    write_model_card(exported, run=run_folder, license="mit")
    assert not (exported / ".eval_results" / "hf-xsent.yaml").exists()
    assert "(16 dimensions)" in (exported / "README.md").read_text("utf-8")


def test_the_hub_gets_one_value_of_a_benchmark_that_of_the_export_in_the_most_languages(
    exported: Path, run_folder: Path, results: Path
) -> None:
    own = json.loads(results.read_text("utf-8"))["runs"][0]
    own["settings"] |= {"layer": 3, "dim": 32}
    scores = {"pairs": 10, "forward": 70.0, "backward": 70.0, "mean": 70.0}
    more = own | {"groups": {"all": scores}, "languages": {"deu": scores, "swh": scores}}
    changes: list[dict[str, Any]] = [{"layer": 2}, {"pooling": "cls"}, {"dim": 8}, {"max_length": 8}]
    runs = [*(own | {"settings": own["settings"] | one} for one in changes), own, more]
    results.write_text(json.dumps({"runs": runs}), "utf-8")
    card = write_model_card(exported, run=run_folder, results=[results], license="mit").read_text("utf-8")
    assert card.count("| mean of all |") == 6
    (index,) = ModelCard(card).data.to_dict()["model-index"]
    assert [one["value"] for result in index["results"] for one in result["metrics"]] == [70.0]
    (entry,) = yaml.safe_load((exported / ".eval_results" / "hf-xsent.yaml").read_text("utf-8"))
    assert entry["value"] == 70.0 and "Measured: deu, swh." in entry["notes"]


def test_a_card_states_the_length_and_modules_that_sentence_transformers_saved(
    exported: Path, run_folder: Path
) -> None:
    modules = json.loads((exported / "modules.json").read_text("utf-8"))
    normalize = {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
    (exported / "modules.json").write_text(json.dumps([*modules, normalize]), "utf-8")
    stated = json.loads((exported / "sentence_bert_config.json").read_text("utf-8"))
    (exported / "sentence_bert_config.json").write_text(json.dumps(stated | {"max_seq_length": 8}), "utf-8")
    config = json.loads((run_folder / "config.json").read_text("utf-8"))
    (run_folder / "config.json").write_text(
        json.dumps(config | {"hf_xsent": config["hf_xsent"] | {"normalize": False}}), "utf-8"
    )
    card = write_model_card(exported, run=run_folder, license="mit").read_text("utf-8")
    assert "normalized to length 1" in card and "max_length=8," in card and "truncated to 8 tokens" in card


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "sum"])
@pytest.mark.parametrize(("prompt", "dim"), [("", None), ('say "it": ', None), ("the dog ", 8)])
def test_the_code_of_a_card_gives_the_embeddings_of_sentence_transformers(
    encoder_folders: dict[str, Path], run_folder: Path, tmp_path: Path, pooling: str, prompt: str, dim: int | None
) -> None:
    from sentence_transformers import SentenceTransformer

    prompts = {"prompts": {"query": prompt}, "default_prompt_name": "query"} if prompt else {}
    settings = {"pooling": pooling, "max_length": 16, "normalize": pooling != "sum"}
    encoder = str(encoder_folders["bert"])
    model = DapForSentenceEmbedding.from_backbone(encoder, **settings, **prompts).eval()
    folder = tmp_path / "exported"
    export_sentence_transformer(model, folder, AutoTokenizer.from_pretrained(encoder), dim=dim, verify=False)
    (run_folder / "config.json").write_text(
        json.dumps({"hidden_size": 32, "hf_xsent": {"model_type": "dap", **settings}}), "utf-8"
    )
    card = write_model_card(folder, run=run_folder, license="mit").read_text("utf-8")
    (code,) = re.findall(r"^```python\n(import torch\n.*?)^```", card, re.DOTALL | re.MULTILINE)
    found: dict[str, Any] = {}
    exec(code.replace('"mine"', repr(str(folder))), found)
    expected = SentenceTransformer(str(folder), device="cpu").encode(["A dog runs.", "Ein Hund rennt."])
    assert expected.shape == (2, dim or 32)
    np.testing.assert_allclose(found["embeddings"].numpy(), expected, atol=1e-5)


def test_results_of_several_models_are_refused(results: Path) -> None:
    run = json.loads(results.read_text("utf-8"))["runs"][0]
    runs = [run | {"settings": run["settings"] | {"model_fingerprint": name}} for name in ("a", "b")]
    results.write_text(json.dumps({"runs": runs}), "utf-8")
    with pytest.raises(DataError, match="has results of several models"):
        read_tables(results)


def test_a_starting_folder_of_this_machine_is_no_base_model(run_folder: Path) -> None:
    recipe = yaml.safe_load((run_folder / "recipe.yaml").read_text("utf-8")) | {"model": str(run_folder)}
    (run_folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), "utf-8")
    facts = card_facts(**facts_of_run(run_folder))
    with pytest.raises(OutputError, match="lacks the field base_model: give it as --base_model"):
        render_card(facts)


def test_files_of_the_wrong_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not the folder of a run: it has no recipe.yaml"):
        facts_of_run(tmp_path)
    with pytest.raises(DataError, match="cannot read the results"):
        read_tables(tmp_path / "none.json")
    for content in ("{", "{}", '{"runs": [{"task": "chess"}]}', '{"runs": [{"task": "tatoeba"}]}'):
        (tmp_path / "results.json").write_text(content, "utf-8")
        with pytest.raises(DataError, match="is not a results file: write one with hf-xsent evaluate"):
            read_tables(tmp_path / "results.json")
    with pytest.raises(ModelError, match="the method 'alchemy' has no description"):
        render_card(card_facts(recipe={"method": "alchemy"}))


def _fill() -> Any:
    spec = importlib.util.spec_from_file_location("fill", ROOT / "model_cards" / "fill.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_cards_are_filled_from_recipes_and_results() -> None:
    filled = _fill().cards()
    assert sorted(filled) == [path.name for path in CARDS] and len(CARDS) == 6
    for path in CARDS:
        assert path.read_text("utf-8") == filled[path.name], f"{path.name} is stale: run python model_cards/fill.py"


@pytest.mark.parametrize("path", [one for one in CARDS if one.stem not in TRAINED], ids=lambda path: path.stem)
def test_results_of_models_that_were_not_trained_here_are_marked(path: Path) -> None:
    card = ModelCard(path.read_text("utf-8"))
    check_card(path)
    assert "model-index" not in card.data.to_dict()
    tables = [line for line in card.text.split("## Results")[1].splitlines() if line.startswith("| model ")]
    assert card.text.count("**the paper's figures, not measured here**") >= max(1, len(tables))
    assert "No weights were trained for this card." in card.text


@pytest.mark.parametrize("name", TRAINED)
def test_the_card_of_a_model_that_was_trained_here_has_measured_results(name: str) -> None:
    path = ROOT / "model_cards" / f"{name}.md"
    card = ModelCard(path.read_text("utf-8"))
    check_card(path)
    tatoeba = card.data.to_dict()["model-index"][0]["results"][0]
    runs = json.loads((ROOT / "benchmarks/results" / TRAINED[name]["results"]).read_text("utf-8"))["runs"]
    (run,) = [run for run in runs if (run["task"], run["settings"]["model"]) == ("tatoeba", TRAINED[name]["model"])]
    assert tatoeba["metrics"][0]["value"] == round(run["groups"]["all"]["mean"], 2)
    assert "No weights were trained" not in card.text and "the paper's figures" not in card.text


@pytest.mark.skipif(int(huggingface_hub.__version__.split(".")[0]) < 2, reason="it validates only at huggingface.co")
def test_the_hub_takes_the_metadata_of_every_card(at_the_hub, exported: Path, results: Path) -> None:
    """Its own validation is a request to the Hub; huggingface_hub sends it."""
    paths = [str(path) for path in (*CARDS, exported / "README.md")]
    code = f"from huggingface_hub import ModelCard\nfor path in {paths!r}: ModelCard.load(path).validate()"
    done = at_the_hub(code)
    assert done.returncode == 0, done.stderr
    broken = ModelCard((exported / "README.md").read_text("utf-8"))
    broken.data.license = "free-as-in-beer"
    (exported / "README.md").write_text(str(broken), "utf-8")
    assert at_the_hub(code).returncode != 0
    refused = at_the_hub(("publish", str(exported), "org/dap-tiny"))
    assert refused.returncode == 2 and "Invalid metadata in README.md" in refused.stderr


@pytest.mark.parametrize("checkpoint", [None, "runs/mine/checkpoint-4"])
def test_a_best_step_without_a_checkpoint_is_not_named(run_folder: Path, checkpoint: str | None) -> None:
    path = run_folder / "checkpoint-8" / "trainer_state.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"best_model_checkpoint": checkpoint}), "utf-8")
    assert facts_of_run(run_folder)["training"] == ["Training took 8 steps (1.50 epochs)."]
