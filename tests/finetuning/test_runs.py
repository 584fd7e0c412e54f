"""Fine-tuning from files to results, by the command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from forks import launch
from safetensors.torch import load_file, save_file
from training_run import Pairs, unfinish
from transformers import AutoModelForQuestionAnswering, AutoModelForSequenceClassification, AutoTokenizer

from hf_xsent import pretrain
from hf_xsent.cli import main as command
from hf_xsent.cli import program
from hf_xsent.errors import DataError, HfXsentError, ModelError, OutputError, RecipeError, TrainingError
from hf_xsent.finetuning.finetune import finetune
from hf_xsent.finetuning.report import FineTuningReport
from hf_xsent.finetuning.trainer import FineTuner, FineTuningArguments
from hf_xsent.finetuning.xnli import PairClassification
from hf_xsent.models.task_model import task_model
from hf_xsent.runs import run as runs

LABELS = ("entailment", "neutral", "contradiction")


def xnli(flags: list[str]) -> list[FineTuningReport]:
    return finetune.run(["xnli", *flags])


def mlqa(flags: list[str]) -> list[FineTuningReport]:
    return finetune.run(["mlqa", *flags])


def _write_squad(path: Path, sentences: list[str]) -> None:
    paragraphs = []
    for number, sentence in enumerate(sentences):
        word = sentence.split()[-1]
        answers = [{"answer_start": sentence.rindex(word), "text": word}]
        paragraphs.append({"context": sentence, "qas": [{"id": str(number), "question": "Who?", "answers": answers}]})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), encoding="utf-8")


@pytest.fixture
def data(tmp_path: Path, pairs: Pairs) -> Path:
    """Premises in German and English, and questions on them."""
    for language, side in (("de", 0), ("en", 1)):
        sentences = [pair[side] for pair in pairs[:8]]
        for name in ("train", "test"):
            lines = [f"{one}\t{sentences[-1 - row]}\t{LABELS[row % 3]}\n" for row, one in enumerate(sentences)]
            (tmp_path / f"{name}-{language}.tsv").write_text("".join(lines), encoding="utf-8")
        _write_squad(tmp_path / f"train-{language}.json", sentences)
        _write_squad(tmp_path / f"test-context-{language}-question-{language}.json", sentences)
        _write_squad(tmp_path / f"xquad.{language}.json", sentences)
    return tmp_path


def _flags(data: Path, encoder: Path, *more: str, **changes: Any) -> list[str]:
    settings: dict[str, Any] = {
        "model": encoder,
        "output_dir": data / "out",
        "max_length": 48,
        "per_device_train_batch_size": 4,
        "max_steps": 4,
        "save_steps": 2,
        "learning_rate": 1e-3,
        "use_cpu": True,
        "report_to": "none",
    }
    settings |= changes | dict.fromkeys(one.removeprefix("--").partition("=")[0] for one in more)
    return [*(f"--{key}={value}" for key, value in settings.items() if value is not None), *more]


def test_a_loss_that_is_not_finite_ends_the_training_and_such_a_model_has_no_scores(
    data: Path, encoder_folders: dict[str, Path]
) -> None:
    train = f"--train=en={data}/train-en.tsv"
    diverging = _flags(data, encoder_folders["bert"], train, learning_rate=1e30, warmup_steps=0)
    with pytest.raises(TrainingError, match="^step 2: loss is NaN or infinite .*: lower the learning rate"):
        xnli(diverging)
    assert not (data / "out" / "model.safetensors").exists()
    assert xnli(_flags(data, encoder_folders["bert"], train, output_dir=data / "trained", max_steps=1)) == []
    weights = load_file(data / "trained" / "model.safetensors")
    weights["classifier.bias"] += float("nan")
    save_file(weights, data / "trained" / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="outputs are NaN or infinite: the weights are damaged"):
        xnli(_flags(data, data / "trained", f"--xnli={data}", output_dir=data / "measured"))


def test_zero_shot_nli_is_measured_in_every_language(data: Path, tiny_encoders: Path) -> None:
    (report,) = xnli(_flags(data, tiny_encoders, f"--train=eng={data}/train-en.tsv", f"--xnli={data}"))
    assert report.setting == "zero-shot"
    assert set(report.scores) == {"de", "en"}
    saved = json.loads((data / "out/results.json").read_text())
    assert saved["reports"][0]["scores"] == report.scores
    assert saved["reports"][0]["published"]["PPA 250k"]["mean"] == 73.1
    table = (data / "out/results.txt").read_text()
    assert "PPA 2M" in table and "74.20" in table  # German
    model = AutoModelForSequenceClassification.from_pretrained(data / "out")
    assert model.config.id2label == dict(enumerate(LABELS))
    assert AutoTokenizer.from_pretrained(data / "out").model_max_length == 48  # of the fine-tuning, not of the start
    (again,) = xnli(_flags(data, data / "out", f"--xnli={data}", output_dir=data / "again"))
    assert again.scores == report.scores


def test_translate_train_with_code_switching_keeps_both_halves_together(
    data: Path, encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    compute_loss = FineTuner.compute_loss

    def watched(tuner: FineTuner, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        labels = inputs["labels"]
        assert labels[::2].equal(labels[1::2])
        batches.append(len(labels))
        return compute_loss(tuner, model, inputs, *args, **kwargs)

    monkeypatch.setattr(FineTuner, "compute_loss", watched)
    train = ["--train", f"en={data}/train-en.tsv", f"de={data}/train-de.tsv", "--code_switching=true"]
    (report,) = xnli(_flags(data, encoder_folders["bert"], *train, f"--xnli={data}", "--max_train=4"))
    assert report.setting == "translate-train"
    assert batches == [8] * 4  # four records, each as two rows


def test_nli_learns_what_can_be_learnt(data: Path, encoder_folders: dict[str, Path]) -> None:
    flags = [f"--train=en={data}/train-en.tsv", f"--xnli={data}", "--languages=en", "--save_strategy=no"]
    (report,) = xnli(
        _flags(data, encoder_folders["bert"], *flags, max_steps=60, per_device_train_batch_size=8, dropout=0)
    )
    assert report.scores["en"]["accuracy"] == 100.0


def test_question_answering_is_measured_on_mlqa_and_xquad(data: Path, tiny_encoders: Path) -> None:
    flags = [f"--train=en={data}/train-en.json", f"--mlqa={data}", f"--xquad={data}", f"--dev=de={data}/train-de.json"]
    lengths = {"max_question_length": 8, "doc_stride": 4, "eval_strategy": "steps", "eval_steps": 2}
    reports = mlqa(_flags(data, tiny_encoders, *flags, **lengths))
    assert [(one.benchmark, sorted(one.scores)) for one in reports] == [("mlqa", ["de", "en"]), ("xquad", ["de", "en"])]
    assert "PPA 600k" in reports[0].table()
    metrics = [json.loads(line) for line in (data / "out/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics if "eval_f1_de" in line] == [2, 4]
    assert AutoModelForQuestionAnswering.from_pretrained(data / "out")


def test_question_answering_learns_what_can_be_learnt(data: Path, encoder_folders: dict[str, Path]) -> None:
    train = ["--train", f"en={data}/train-en.json", f"de={data}/train-de.json", "--code_switching=true"]
    flags = [*train, f"--xquad={data}", "--save_strategy=no"]
    lengths = {
        "max_question_length": 8,
        "doc_stride": 4,
        "max_steps": 60,
        "per_device_train_batch_size": 8,
        "dropout": 0,
    }
    (report,) = mlqa(_flags(data, encoder_folders["bert"], *flags, **lengths))
    assert report.means()["f1"] > 80


def test_a_resumed_run_ends_as_the_whole_one(data: Path, encoder_folders: dict[str, Path]) -> None:
    flags = _flags(
        data, encoder_folders["bert"], f"--train=en={data}/train-en.tsv", f"--xnli={data}", save_total_limit=2
    )
    (report,) = finetune.run(["xnli", *flags])
    whole = load_file(data / "out/model.safetensors")
    unfinish(data / "out", "checkpoint-4")
    (again,) = finetune.run(["xnli", *flags, "--resume"])
    assert again.scores == report.scores
    for name, weight in load_file(data / "out/model.safetensors").items():
        assert torch.equal(weight, whole[name]), name
    with pytest.raises(OutputError, match="holds a run: continue it with (--)?resume"):
        finetune.run(["xnli", *flags])


@pytest.mark.parametrize("source", ["resumed", "as the model"])
def test_a_finished_run_is_measured_without_training(data: Path, encoder_folders: dict[str, Path], source: str) -> None:
    train = f"--train=en={data}/train-en.tsv"
    (report,) = xnli(_flags(data, encoder_folders["bert"], train, f"--xnli={data}"))
    before = {path: path.stat().st_mtime_ns for path in (data / "out").rglob("*")}
    start, more = (encoder_folders["bert"], [train, "--resume"]) if source == "resumed" else (data / "out", [])
    (fewer,) = xnli(_flags(data, start, *more, f"--xnli={data}", "--languages=de"))
    assert (fewer.scores, fewer.setting) == ({"de": report.scores["de"]}, "zero-shot")
    changed = {path for path, stamp in before.items() if path.stat().st_mtime_ns != stamp}
    assert changed == {data / "out/results.json", data / "out/results.txt"}
    assert xnli(_flags(data, encoder_folders["bert"], train, "--resume")) == []


def test_a_resumed_run_that_changed_is_refused_or_recorded(data: Path, encoder_folders: dict[str, Path]) -> None:
    train: dict[str, Any] = {"train": f"en={data}/train-en.tsv", "save_total_limit": 2}

    def flags(*more: str) -> list[str]:
        return _flags(data, encoder_folders["bert"], *more, **train)

    xnli(flags())
    (data / "out/model.safetensors").unlink()
    for change, shown in (
        ("--learning_rate=1e-6", "learning_rate"),
        ("--dropout=0", "dropout none, now 0"),
        ("--per_device_train_batch_size=2", "batch of a step, over all processes 4, now 2"),
        (f"--train=de={data}/train-de.tsv", "train data 1 en"),
    ):
        with pytest.raises(OutputError, match=f"changed since step 4: .*{shown}.*_with_changes"):
            xnli(flags("--resume", change))
    (data / "train-en.tsv").write_text((data / "train-en.tsv").read_text("utf-8") * 2, encoding="utf-8")
    with pytest.raises(OutputError, match="train data 1 en"):
        xnli(flags("--resume"))
    xnli(flags("--resume_with_changes", "--max_steps=5"))
    state = json.loads((data / "out/run_state.json").read_text())
    assert state["finished_at_step"] == 5
    assert state["changes"][0]["changed"]["max_steps"] == [4, 5]


@pytest.mark.parametrize(
    ("task", "more", "kind", "told"),
    [
        (xnli, ["--train=train.tsv"], DataError, "'train.tsv' names no language: write en=train.tsv"),
        (
            xnli,
            ["--train=English=train.tsv"],
            DataError,
            "the code of English is 'en'",
        ),
        (xnli, ["--train=en={d}/bad.tsv"], DataError, "bad.tsv:2: unknown label 'maybe'"),
        (xnli, ["--train=en={d}/train-en.tsv", "--code_switching=true"], RecipeError, "code-switching needs"),
        (
            xnli,
            ["--train", "en={d}/train-en.tsv", "de={d}/short.tsv", "--code_switching=true"],
            DataError,
            "give files that are translations of each other",
        ),
        (xnli, [], RecipeError, "nothing to do: give (--)?train"),
        (xnli, ["--xnli={d}"], HfXsentError, "is not fine-tuned for this task: give (--)?train"),
        (xnli, ["--train=en={d}/train-en.tsv", "--max_length=5000"], RecipeError, "max_length 5000 does not fit"),
        (xnli, ["--train=en={d}/train-en.tsv", "--max_length=4"], RecipeError, "max_length 4 .* takes 5 to 256"),
        (
            xnli,
            ["--train=en={d}/train-en.tsv", "--load_best_model_at_end", "--save_strategy=epoch"],
            RecipeError,
            "load_best_model_at_end needs dev data to measure: give (--)?dev",
        ),
        (mlqa, ["--train=en={d}/bad.json"], DataError, "question '0': the answer 'garten' is not at character"),
        (mlqa, ["--train=en={d}/train-en.json", "--mlqa={d}", "--languages=fr"], DataError, "no test set 'fr'"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_trained(
    data: Path, encoder_folders: dict[str, Path], task: Any, more: list[str], kind: type[Exception], told: str
) -> None:
    (data / "bad.tsv").write_text("a\tb\tneutral\na\tb\tmaybe\n", encoding="utf-8")
    (data / "short.tsv").write_text("a\tb\tentailment\n", encoding="utf-8")
    text = (data / "train-de.json").read_text().replace('"text": "Garten."', '"text": "garten"')
    (data / "bad.json").write_text(text, encoding="utf-8")
    with pytest.raises(kind, match=told) as error:
        task(_flags(data, encoder_folders["bert"], *(one.format(d=data) for one in more)))
    assert "\n" not in str(error.value)
    assert not (data / "out").exists()


def _relabelled(data: Path, order: tuple[str, ...]) -> Path:
    """The model in ``out`` with the rows of its classifier and the names of its outputs in another order."""
    model, folder = AutoModelForSequenceClassification.from_pretrained(data / "out"), data / "relabelled"
    rows = [LABELS.index(label) for label in order]
    for weight in model.classifier.parameters():
        weight.data = weight.data[rows]
    model.config.id2label = {number: label.upper() for number, label in enumerate(order)}
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(data / "out").save_pretrained(folder)
    return folder


def test_a_model_with_its_labels_in_another_order_is_measured_by_their_names(
    data: Path, encoder_folders: dict[str, Path]
) -> None:
    train = [f"--train=en={data}/train-en.tsv", f"--xnli={data}", "--save_strategy=no"]
    (report,) = xnli(_flags(data, encoder_folders["bert"], *train, max_steps=20, dropout=0))
    folder = _relabelled(data, ("contradiction", "entailment", "neutral"))
    (again,) = xnli(_flags(data, folder, f"--xnli={data}", output_dir=data / "again"))
    assert again.scores == report.scores
    assert (again.setting, again.published()) == ("unknown training", {})  # no recipe says what it was trained on


def test_a_model_with_other_labels_is_refused(data: Path, encoder_folders: dict[str, Path]) -> None:
    folder = data / "other"
    AutoModelForSequenceClassification.from_pretrained(encoder_folders["bert"], num_labels=3).save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder_folders["bert"]).save_pretrained(folder)
    with pytest.raises(ModelError, match="other' has the labels label_0, label_1, label_2, not entailment, neutral"):
        xnli(_flags(data, folder, f"--xnli={data}"))


def test_a_model_measured_again_keeps_the_setting_it_was_trained_in(
    data: Path, encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = ["--train", f"en={data}/train-en.tsv", f"de={data}/train-de.tsv"]
    assert xnli(_flags(data, encoder_folders["bert"], *train, max_steps=1)) == []
    measure = f"--xnli={data}"
    (report,) = xnli(_flags(data, data / "out", measure, output_dir=data / "again"))
    assert report.setting == "translate-train"
    further = [f"--train=eng={data}/train-en.tsv", measure]
    (report,) = xnli(_flags(data, data / "out", *further, output_dir=data / "further", max_steps=1))
    assert report.setting == "translate-train"
    monkeypatch.chdir(data)
    xnli(_flags(data, Path("out"), further[0], output_dir=Path("second"), max_steps=1))
    monkeypatch.chdir(data.parent)
    (report,) = xnli(_flags(data, Path(data.name, "second"), measure, output_dir=data / "of_second"))
    assert report.setting == "translate-train"
    assert xnli(_flags(data, data / "out", measure))
    shutil.copytree(data / "out", data / "copy")
    with pytest.raises(OutputError, match="holds another run, whose results would be replaced"):
        xnli(_flags(data, data / "copy", measure))


@pytest.mark.parametrize(("task", "data_set", "score"), [(xnli, "tsv", "accuracy"), (mlqa, "json", "f1")])
def test_dev_data_is_measured_each_epoch_and_chooses_the_best_model(
    data: Path, encoder_folders: dict[str, Path], task: Any, data_set: str, score: str
) -> None:
    flags = [f"--train=en={data}/train-en.{data_set}", f"--dev=de={data}/train-de.{data_set}"]
    settings: dict[str, Any] = {"max_question_length": 8, "doc_stride": 4} if task is mlqa else {}
    settings |= {"save_strategy": "epoch", "save_total_limit": 2}
    task(_flags(data, encoder_folders["bert"], *flags, "--load_best_model_at_end", **settings))
    metrics = [json.loads(line) for line in (data / "out/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics if f"eval_{score}" in line] == [2, 4]
    state = json.loads((data / "out/checkpoint-4/trainer_state.json").read_text())
    assert state["best_metric"] == max(line[f"eval_{score}"] for line in metrics if f"eval_{score}" in line)
    assert state["best_model_checkpoint"] is not None


def test_max_test_limits_test_sets_and_not_dev_data(
    data: Path, encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, sizes = PairClassification.measure, []

    def counting(task: PairClassification, model: Any, sets: Any) -> Any:
        sizes.append({name: len(pairs) for name, pairs in sets.items()})
        return measure(task, model, sets)

    monkeypatch.setattr(PairClassification, "measure", counting)
    flags = [f"--train=en={data}/train-en.tsv", f"--dev=de={data}/train-de.tsv", f"--xnli={data}", "--max_test=2"]
    xnli(_flags(data, encoder_folders["bert"], *flags, max_steps=1))
    assert sizes == [{"de": 8}, {"de": 2, "en": 2}]


def test_of_a_data_set_on_the_hub_the_validation_split_is_for_dev(
    data: Path, encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[str, str]] = []

    def rows(source: str, split: str) -> list[dict[str, Any]]:
        opened.append((source, split))
        if "xnli" in source:
            return [{"premise": "We eat.", "hypothesis": "We eat bread.", "label": 1}]
        answers = {"answer_start": [3], "text": ["eat"]}
        return [{"id": "1", "question": "What?", "context": "We eat.", "answers": answers}]

    for module in ("inference", "questions"):
        monkeypatch.setattr(f"hf_xsent.data.benchmarks.{module}.hub_rows", rows)
    lengths = {"max_question_length": 8, "doc_stride": 4}
    for task, source, more in ((xnli, "org/xnli:en", {}), (mlqa, "org/squad", lengths)):
        flags = [f"--train=en={source}", f"--dev=en={source}", "--overwrite"]
        task(_flags(data, encoder_folders["bert"], *flags, max_steps=1, **more))
        assert opened[-2:] == [(source, "train"), (source, "validation")]


def test_a_run_that_replaces_one_of_the_other_command_leaves_none_of_its_reports(
    data: Path, encoder_folders: dict[str, Path], pairs: Pairs
) -> None:
    encoder, out = encoder_folders["bert"], data / "out"
    flags = [f"--train=en={data}/train-en.tsv", "--overwrite"]
    xnli(_flags(data, encoder, *flags, f"--xnli={data}", max_steps=1))
    settings: dict[str, Any] = {"max_steps": 1, "dev_pairs": 0, "cache_dir": data / "cache", "clean": False}
    pretrain(model=encoder, data={"de": pairs}, output_dir=out, overwrite=True, use_cpu=True, **settings)
    assert (out / "README.md").is_file() and not {*map(str, out.glob("results.*"))}
    xnli(_flags(data, encoder, *flags, max_steps=1))
    assert not {"README.md", "bitext.json", "training.json"} & {path.name for path in out.iterdir()}


@pytest.mark.parametrize("bf16", [False, True])
def test_sets_are_measured_in_the_precision_of_training(
    bf16: bool, data: Path, encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.dtype] = []
    monkeypatch.setattr(PairClassification, "measure", lambda *_: seen.append((torch.ones(1, 1) @ torch.ones(1)).dtype))
    task = PairClassification(AutoTokenizer.from_pretrained(encoder_folders["bert"]), 32)
    model = task_model(str(encoder_folders["bert"]), AutoModelForSequenceClassification)
    arguments = FineTuningArguments(task="xnli", output_dir=str(data), report_to="none", use_cpu=True, bf16=bf16)
    FineTuner(model, arguments, task).measure({})
    assert seen == [torch.bfloat16 if bf16 else torch.float32]


def _finetune_late(*arguments: str) -> None:
    """Let the second process reach the check of the output folder later than the first."""
    finished_at = runs.Run.finished_at

    def late(*args: Any) -> Any:
        time.sleep(2 * int(os.environ["RANK"]))
        return finished_at(*args)

    runs.Run.finished_at = late  # type: ignore[method-assign]
    program(["finetune", "xnli", *arguments])


@pytest.mark.slow
def test_of_two_processes_a_late_one_takes_part_and_one_prints(data: Path, encoder_folders: dict[str, Path]) -> None:
    flags = _flags(data, encoder_folders["bert"], f"--train=en={data}/train-en.tsv", f"--xnli={data}", max_steps=1)
    said = launch(2, _finetune_late, *flags, "--ddp_backend=gloo", log=data / "log.txt")
    assert said.count("xnli, zero-shot") == 1


def test_the_command_prints_the_table_and_names_unknown_tasks(
    data: Path, encoder_folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = _flags(data, encoder_folders["bert"], f"--train=en={data}/train-en.tsv", f"--xnli={data}", max_steps=1)
    assert command(["finetune", "xnli", *flags]) == 0
    assert "xnli, zero-shot" in capsys.readouterr().out
    assert command(["finetune", "squad", *flags]) == 2
    assert "task 'squad' is unknown: use xnli, mlqa" in capsys.readouterr().err


def test_export_of_a_fine_tuned_model_warns_that_its_layer_is_dropped(
    data: Path, encoder_folders: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    flags = _flags(data, encoder_folders["bert"], f"--train=en={data}/train-en.tsv", max_steps=1)
    with caplog.at_level("INFO", logger="hf_xsent"):
        assert command(["finetune", "xnli", *flags]) == 0
    folder = re.search("the model of step 1 is in (.*)", caplog.text)[1]
    assert command(["export", folder, f"--output={data}/exported", "--verify=false"]) == 0
    assert "only its encoder is exported, without the task's layer" in caplog.text
    caplog.clear()
    assert command(["export", str(encoder_folders["bert"]), f"--output={data}/plain", "--verify=false"]) == 0
    assert "task's layer" not in caplog.text


def test_a_recipe_beside_flags(data: Path, encoder_folders: dict[str, Path]) -> None:
    recipe = data / "recipe.yaml"
    recipe.write_text(f"train: {{en: {data}/train-en.tsv}}\nxnli: {data}\nmax_steps: 1\nseed: 3\n", encoding="utf-8")
    (report,) = finetune.run(["xnli", str(recipe), *_flags(data, encoder_folders["bert"], max_steps=None)])
    assert set(report.scores) == {"de", "en"}
    assert json.loads((data / "out/results.json").read_text())["settings"]["seed"] == 3


@pytest.mark.parametrize(
    ("task", "flags", "reason"),
    [
        ("xnli", ["--generalized"], "generalized has no effect on the task xnli"),
        ("xnli", ["--xquad=none"], "xquad has no effect on the task xnli"),
        ("mlqa", ["--xnli=none"], "xnli has no effect on the task mlqa"),
        ("xnli", ["--lr_scheduler_type=reduce_lr_on_plateau"], "needs dev measurements"),
        (
            "xnli",
            ["--dev=de={data}/test-de.tsv", "--load_best_model_at_end", "--eval_strategy=steps", "--eval_steps=2",
             "--metric_for_best_model=foo"],
            "metric_for_best_model 'foo' is not measured: use accuracy, accuracy_de",
        ),
        ("xnli", ["--dev=de={data}/test-de.tsv", "--metric_for_best_model=f1"], "'f1' is not measured"),
        ("xnli", ["--dev=de={data}/test-de.tsv", "--metric_for_best_model=loss"], "'loss' is not measured: use acc"),
    ],
)  # fmt: skip
def test_settings_without_effect_are_refused(
    task: str, flags: list[str], reason: str, data: Path, encoder_folders: dict[str, Path]
) -> None:
    more = [flag.format(data=data) for flag in flags]
    train = f"--train=en={data}/train-en.{'tsv' if task == 'xnli' else 'json'}"
    with pytest.raises(RecipeError, match=reason):
        finetune.run([task, *_flags(data, encoder_folders["bert"], train, *more)])
    with pytest.raises(RecipeError, match="dev has no effect without training data"):
        finetune.run([task, *_flags(data, encoder_folders["bert"], f"--dev=de={data}/test-de.tsv")])
