"""The recipes that travel with the project: the commands in their heads are read as they stand."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from transformers import XLMRobertaConfig

from hf_xsent.errors import RecipeError
from hf_xsent.finetuning.finetune import finetune
from hf_xsent.settings.recipes import RECIPES as FOLDER
from hf_xsent.training.pretrain import pretrain

ROOT = Path(__file__).parents[2]
RECIPES = sorted(FOLDER.glob("*.yaml"))


def _commands(recipe: Path) -> list[tuple[list[str], list[str]]]:
    """What a recipe's head says to run with a recipe: the words before the recipe, and those from it on."""
    head = "\n".join(re.findall(r"^# ?(.*)", recipe.read_text("utf-8"), flags=re.MULTILINE)).replace("\\\n", " ")
    lines = re.findall(rf"^ +((?:hf-xsent|torchrun) .*? )({recipe.stem} .*)", head, flags=re.MULTILINE)
    return [(shlex.split(before), shlex.split(after)) for before, after in lines]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_says_how_it_is_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    commands = _commands(path)
    assert commands
    for before, arguments in commands:
        if "finetune" in before:
            finetune.parse([before[-1], *arguments, "--use_cpu"])
            continue
        assert before[-1] in ("pretrain", "trainer_scripts/run_pretrain.py")
        recipe = pretrain.parse([*arguments, "--use_cpu"])
        recipe.config.replaced(encoder_config=XLMRobertaConfig()).check_objectives()
        assert "method" in yaml.safe_load(path.read_text("utf-8"))


def test_a_recipe_of_the_package_is_found_by_its_name_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = ["--model", "none", "--data", "de=pairs.tsv", "--output", "run"]
    by_name = pretrain.parse(["mixed-small", *own]).to_dict()
    assert by_name["objectives"]["interpolation"]["weight"] == 50
    assert by_name == pretrain.parse([str(FOLDER / "mixed-small.yaml"), *own]).to_dict()


def test_a_misspelt_recipe_names_the_similar_ones() -> None:
    with pytest.raises(RecipeError, match=r"unexpected argument 'mixed-smal'; did you mean 'mixed-small'"):
        pretrain.parse(["mixed-smal"])
    with pytest.raises(RecipeError, match="did you mean 'mixed-small'"):
        pretrain("mixed-smal", model="none")
    with pytest.raises(RecipeError, match=r"no recipe recipes/mixed-smal.yaml: .* did you mean 'mixed-small'"):
        pretrain.parse(["recipes/mixed-smal.yaml"])


def test_conversational_pairs_are_selected_and_filled_up_with_sentences_before_phrases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk, she = "Sie kennt mich.\tYou know me.\n", "Sie ging.\tShe left.\n"
    phrase, sentence, other = "Nordwinter\tNorthern Winter\n", "Es regnet.\tIt rains.\n", "Ja!\t“Yes!”\n"
    menu, your = "Wählen Sie eine Datei.\tYou select a file.\n", "Ihr Ordner\tYour folder\n"
    long = f"Ich {'s' * 200}.\tI agree.\n"
    for language, lines in {
        "de": [phrase, menu, sentence, talk, long, other, she],
        "eu": [your, talk, she, sentence],
        "fr": [menu, long],
    }.items():
        (tmp_path / f"{language}-en.tsv").write_text("".join(lines), "utf-8")
    output = tmp_path / "selected"
    command = f"script {tmp_path}/{{language}}-en.tsv --output {output} --at_least 4"
    monkeypatch.setattr("sys.argv", command.split())
    runpy.run_path(str(ROOT / "trainer_scripts/conversational_pairs.py"), run_name="__main__")
    assert {path.name: path.read_text("utf-8") for path in output.iterdir()} == {
        "de.tsv": talk + she + sentence + other,
        "eu.tsv": talk + she + sentence + your,
    }
    assert "de: 2 conversational pairs, 2 others" in capsys.readouterr().out


def test_questions_are_paired_with_answers_and_with_translated_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "de": ("Wann ging er?", "Er kam um neun. Er ging um zehn. Dann schlief er.", "zehn"),
        "en": ("When did he leave?", "He came at nine. He left at ten. Then he slept.", "ten"),
    }
    for code, (question, context, answer) in texts.items():
        answers = [{"answer_start": context.index(answer), "text": answer}]
        paragraph = {"context": context, "qas": [{"id": "1", "question": question, "answers": answers}]}
        (tmp_path / f"xquad.{code}.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}), "utf-8")
    output = tmp_path / "qa.jsonl"
    monkeypatch.setattr(sys, "argv", ["script", str(tmp_path / "xquad.*.json"), "--output", str(output)])
    runpy.run_path(str(ROOT / "trainer_scripts/question_answer_pairs.py"), run_name="__main__")
    pairs = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    german, english = ["Dann schlief er.", "Er kam um neun."], ["Then he slept.", "He came at nine."]
    assert {(pair["source"], pair["target"], *pair["target_negatives"]) for pair in pairs} == {
        ("Wann ging er?", "Er ging um zehn.", *german),
        ("Wann ging er?", "He left at ten.", *english),
        ("When did he leave?", "Er ging um zehn.", *german),
        ("When did he leave?", "He left at ten.", *english),
        ("Wann ging er?", "When did he leave?"),
    }


def test_similar_pairs_go_to_the_same_file(
    tmp_path: Path,
    encoder_folders: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = [(f"Satz {number}", f"sentence {number % 5}") for number in range(10)]
    many = [(f"phrase {number}", f"sentence {number % 25}") for number in range(200)]
    for language, pairs in {"de": few + few, "fr": many}.items():
        lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
        (tmp_path / f"{language}.tsv").write_text(lines + f"{'w' * 201}\tlong\n", "utf-8")
    command = f"script {tmp_path}/{{language}}.tsv --model {encoder_folders['bert']} --output {tmp_path}/similar"
    monkeypatch.setattr("sys.argv", [*command.split(), "--pairs", "110", "--clusters", "3"])
    runpy.run_path(str(ROOT / "trainer_scripts/similar_pairs.py"), run_name="__main__")
    written = {path.name: path.read_text("utf-8").splitlines() for path in (tmp_path / "similar").iterdir()}
    assert sorted(written) == ["und-AA.tsv", "und-AB.tsv", "und-AC.tsv"]
    rows = [tuple(line.split("\t")) for lines in written.values() for line in lines]
    assert len(rows) == len(set(rows)) == 110
    assert {*few} < {*rows} < {*few, *many}  # all pairs of the smaller language, 100 of the larger
    targets = [{line.split("\t")[1] for line in lines} for lines in written.values()]
    assert sum(map(len, targets)) == len(set.union(*targets))  # equal targets are in one file
    assert "110 pairs in 3 clusters" in capsys.readouterr().out


@pytest.mark.parametrize("script", ["conversational_pairs", "similar_pairs --model none"])
def test_files_of_an_earlier_selection_are_not_mixed_with_new_ones(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "und-AA.tsv").write_text("earlier\tearlier\n", "utf-8")
    name, *model = script.split()
    monkeypatch.setattr("sys.argv", ["script", "{language}.tsv", *model, "--output", str(tmp_path)])
    with pytest.raises(SystemExit):
        runpy.run_path(str(ROOT / f"trainer_scripts/{name}.py"), run_name="__main__")
    assert f"{tmp_path} is a file or not empty" in capsys.readouterr().err


def test_more_clusters_than_targets_end_in_one_sentence(
    tmp_path: Path,
    encoder_folders: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "de.tsv").write_text("Ein Hund.\tA dog.\nDer Hund.\tA dog.\n", "utf-8")
    command = f"script {tmp_path}/{{language}}.tsv --model {encoder_folders['bert']} --output {tmp_path}/similar"
    monkeypatch.setattr("sys.argv", [*command.split(), "--clusters", "2"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(ROOT / "trainer_scripts/similar_pairs.py"), run_name="__main__")
    assert "1 different targets are too few for 2 clusters" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", [*command.split(), "--max_characters", "4"])
    with pytest.raises(SystemExit):
        runpy.run_path(str(ROOT / "trainer_scripts/similar_pairs.py"), run_name="__main__")
    assert "no pair has two sides of at most 4 characters: raise --max_characters" in capsys.readouterr().err
    assert not any((tmp_path / "similar").iterdir())


def test_an_empty_cluster_has_no_file(
    tmp_path: Path, encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"Hund\t{target}\n" for target in "ℵℶℷ"]  # unknown to the tokenizer: equal embeddings
    (tmp_path / "de.tsv").write_text("".join(lines), "utf-8")
    command = f"script {tmp_path}/{{language}}.tsv --model {encoder_folders['bert']} --output {tmp_path}/similar"
    monkeypatch.setattr("sys.argv", [*command.split(), "--clusters", "2"])
    runpy.run_path(str(ROOT / "trainer_scripts/similar_pairs.py"), run_name="__main__")
    (written,) = (tmp_path / "similar").iterdir()
    assert written.name == "und-AA.tsv" and sorted(written.read_text("utf-8").splitlines(keepends=True)) == lines


@pytest.mark.parametrize(
    ("missing", "reason"), [("a folder", "Not a directory: .*similar"), ("faiss", r"pip install \"hf-xsent\[mining\]")]
)
def test_nothing_is_encoded_if_clusters_cannot_be_computed_or_written(
    missing: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "de.tsv").write_text("Ein Hund.\tA dog.\n", "utf-8")
    folder = tmp_path / "de.tsv" if missing == "a folder" else tmp_path
    if missing == "faiss":
        monkeypatch.setitem(sys.modules, "faiss", None)
    command = f"script {tmp_path}/{{language}}.tsv --model none --output {folder}/similar --clusters 1"
    monkeypatch.setattr("sys.argv", command.split())
    with pytest.raises(SystemExit, match=reason):
        runpy.run_path(str(ROOT / "trainer_scripts/similar_pairs.py"), run_name="__main__")
