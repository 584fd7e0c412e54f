from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from math import isnan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from datasets import Dataset
from page_reader import Page
from safetensors.torch import load_file, save_file
from sentence_transformers.models import StaticEmbedding
from transformers import AutoModel

from hf_xsent import SentenceEmbedder, SentenceEncoderForPreTraining, evaluate, export_sentence_transformer
from hf_xsent.data.benchmarks.bucc import BuccSet
from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.errors import DataError, HfXsentError, ModelError, OutputError, RecipeError
from hf_xsent.evaluation.evaluate import _write_results, measure_tasks
from hf_xsent.evaluation.evaluation import Evaluation
from hf_xsent.evaluation.mining_f1 import BuccTask
from hf_xsent.evaluation.opened import describe, open_views
from hf_xsent.evaluation.registry import TASKS, load_tasks
from hf_xsent.evaluation.report import Measurement, Report, published_lines, published_scores, read_reports, task_table
from hf_xsent.evaluation.similarity import Sts17Task
from hf_xsent.evaluation.task import EvaluationTask, Outcomes, Scores
from hf_xsent.evaluation.translation_retrieval import TatoebaTask
from hf_xsent.evaluation.vectors import SentenceVectors
from hf_xsent.models.pretraining import AlignmentForSentenceEmbedding
from hf_xsent.models.sentence_encoder import SentenceEncoder, View
from sentence_transformers import SentenceTransformer

Start = Callable[..., list[Report]]


@pytest.fixture
def embedder(tiny_encoders: Path) -> SentenceEmbedder:
    return SentenceEmbedder.from_pretrained(str(tiny_encoders), device="cpu")


@pytest.fixture
def tasks(pairs: list[tuple[str, str]]) -> list[EvaluationTask]:
    """Three tasks over the same sentences, some of them repeated."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    gold = frozenset(zip(range(len(pairs)), range(len(pairs)), strict=True))
    return [
        TatoebaTask([PairSet("deu", [*sources, sources[0]], [*targets, targets[0]])]),
        BuccTask([BuccSet("de-en", "dev", sources, targets, gold)]),
        Sts17Task([PairSet("en-en", targets, targets[::-1], [float(number % 6) for number in range(len(targets))])]),
    ]


class _Encoded:
    """Counts what goes through an encoder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sentences = self.passes = 0
        embed = SentenceEncoder.embed_views

        def counting(model: SentenceEncoder, ids: Any, masks: Any, *rest: Any) -> Any:
            self.passes += 1
            self.sentences += sum(len(one) for one in ids)
            return embed(model, ids, masks, *rest)

        monkeypatch.setattr(SentenceEncoder, "embed_views", counting)


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> _Encoded:
    return _Encoded(monkeypatch)


def _measure(
    embedder: SentenceEmbedder,
    tasks: list[EvaluationTask],
    views: Sequence[View] = (),
    dims: Sequence[int] = (32,),
) -> dict[str, list[Report]]:
    views = [*views] or [embedder.view]
    described = {"model": "m", "model_fingerprint": ""}
    inputs = (text for task in tasks for text in task.inputs())
    measured = measure_tasks(open_views(embedder, described, "m", views, dims, inputs), tasks)
    return {task.name: [measurement.report for measurement in some] for task, some in measured}


def _views(layers: Sequence[int] = range(4), poolings: Sequence[str] = ("mean", "cls")) -> list[View]:
    return [View(layer, pooling) for layer in layers for pooling in poolings]


def test_a_sweep_encodes_each_distinct_sentence_once(
    embedder: SentenceEmbedder, tasks: list[EvaluationTask], encoded: _Encoded
):
    distinct = len({one for task in tasks for one in task.inputs()})
    measured = _measure(embedder, tasks, _views(), [32, 4])
    assert encoded.sentences == distinct
    assert encoded.passes == 1  # so few sentences fit in one batch
    assert {name: len(reports) for name, reports in measured.items()} == {"tatoeba": 16, "bucc": 16, "sts17": 16}


def test_two_tasks_of_one_name_are_refused(tasks: list[EvaluationTask], tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="the task tatoeba is given twice"):
        evaluate("model", [*tasks, tasks[0]])
    with pytest.raises(RecipeError, match="the task pairs is given twice"):
        (tmp_path / "de.tsv").write_text("Ja.\tYes.\n", encoding="utf-8")
        load_tasks([f"pairs={tmp_path / 'de.tsv'}"], pairs=[("Nein.", "No.")])


@pytest.mark.parametrize("languages", ["de,sw", ["de", "sw"], {"tatoeba": "de,sw"}, {"tatoeba": ["de", "sw"]}])
def test_languages_are_read_as_evaluate_reads_them(tmp_path: Path, languages: Any) -> None:
    for code in ("deu", "swh", "fra"):
        for side in (code, "eng"):
            (tmp_path / f"tatoeba.{code}-eng.{side}").write_text(f"{side}.\n", encoding="utf-8")
    (task,) = load_tasks({"tatoeba": tmp_path}, languages)
    assert len(task.sets) == 2
    with pytest.raises(DataError, match="unknown language code '36.5'"):
        load_tasks({"tatoeba": tmp_path}, 36.5)
    with pytest.raises(DataError, match="no language of Tatoeba was chosen"):
        load_tasks({"tatoeba": tmp_path}, {"tatoeba": []})


def test_options_of_own_pairs_may_stand_beside_them() -> None:
    pairs = [("Ja.", "Yes."), ("Nein.", "No.")]
    for options in ({"max_pairs": 1}, {"data": pairs, "max_pairs": 1}):
        (task,) = load_tasks({"pairs": options}, pairs=None if "data" in options else pairs)
        assert task.sets[0].sources == ["Ja."]


@pytest.mark.parametrize("shape", [(1, 4), (4,), (3, 4, 1), ()])
def test_a_model_that_returns_other_than_one_vector_per_text_is_refused(shape: tuple[int, ...]) -> None:
    model = SimpleNamespace(encode=lambda texts: np.ones(shape, dtype=np.float32))
    with pytest.raises(ModelError, match=r"encode returned an array of the shape .* for \d+ texts: return one vector"):
        evaluate(model, pairs=[("Ja.", "Yes."), ("Nein.", "No.")])


def test_each_view_gives_what_it_gives_alone(tiny_encoders: Path, tasks: list[EvaluationTask]):
    """Layers, poolings and cuts of one encoding, beside an embedder of each."""
    whole = SentenceEmbedder.from_pretrained(str(tiny_encoders), device="cpu")
    measured = _measure(whole, tasks, _views(layers=(1, 3)), [32, 5])
    for task in tasks:
        for report in measured[task.name]:
            stated = report.settings
            alone = SentenceEmbedder.from_pretrained(
                str(tiny_encoders), stated["pooling"], layer=stated["layer"], dim=stated["dim"], device="cpu"
            )
            for name, figures in task.score(alone.encode).languages.items():
                assert report.languages[name] == pytest.approx(figures, abs=1e-3)


@pytest.fixture
def start(tiny_encoders: Path, tasks: list[EvaluationTask]) -> Start:
    """Evaluate the model on the first N tasks."""

    def start(output: Path, count: int = 3, **settings: Any) -> list[Report]:
        return list(evaluate(str(tiny_encoders), tasks[:count], output=output, device="cpu", **settings).reports)

    return start


def test_equal_runs_give_equal_files(start: Start, tiny_encoders: Path, tmp_path: Path):
    for name in ("one", "other"):
        start(tmp_path / name, layers=["0-1"], pooling=["mean,cls"])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    runs = json.loads((tmp_path / "one").read_text())["runs"]
    assert [*runs[0]] == [field.name for field in fields(Report)]
    embedder = SentenceEmbedder.from_pretrained(str(tiny_encoders), device="cpu")
    view = {"pooling": "mean", "layer": 0, "dim": 32}
    assert runs[0]["settings"] == describe(embedder, tiny_encoders) | view
    assert runs[0]["versions"]["torch"] and runs[0]["versions"]["hf-xsent"]


def test_a_killed_evaluation_resumes(
    start: Start, tasks: list[EvaluationTask], encoded: _Encoded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole, output = tmp_path / "whole.json", tmp_path / "cut.json"
    start(whole)
    with monkeypatch.context() as patched:
        patched.setattr(BuccTask, "score", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            start(output)
    assert [report.task for report in read_reports(output)] == ["tatoeba"]
    encoded.sentences = 0
    start(output)
    assert encoded.sentences == len({one for task in tasks[1:] for one in task.inputs()})
    assert output.read_bytes() == whole.read_bytes()
    encoded.sentences = 0
    start(output)
    assert encoded.sentences == 0 and output.read_bytes() == whole.read_bytes()


def test_a_later_call_adds_to_the_file(start: Start, tmp_path: Path):
    output = tmp_path / "results.json"
    first = start(output, 1)
    start(output, 3, dims=[4])
    start(output, 1, dims=[4, 8])
    kept = [(report.task, report.settings["dim"]) for report in read_reports(output)]
    assert kept == [("tatoeba", 32), ("bucc", 4), ("sts17", 4), ("tatoeba", 4), ("tatoeba", 8)]
    assert read_reports(output)[0] == first[0]


def test_a_later_call_without_the_start_keeps_the_comparison(start: Start, tmp_path: Path):
    output = tmp_path / "results.json"
    (report, *_) = start(output, 1)
    compared = replace(report, differences={"all": {"mean": (1.0, 0.5, 1.5)}}, compared_with="start")
    _write_results(str(output), [compared])
    start(output, 1)
    assert json.loads(output.read_text())["runs"][0]["compared_with"] == "start"
    other = report.settings | {"model_fingerprint": "other"}
    for changed in (replace(report, settings=other), replace(report, versions={"torch": "0"})):
        _write_results(str(output), [compared])
        _write_results(str(output), [changed])
        assert json.loads(output.read_text())["runs"][0]["compared_with"] == ""


def test_calls_with_one_file_at_a_time_lose_no_result(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, measure = tmp_path / "results.json", BuccTask.score

    def meanwhile(task: BuccTask, encode: Any) -> Any:
        start(output, 1, dims=[4])
        return measure(task, encode)

    monkeypatch.setattr(BuccTask, "score", meanwhile)
    start(output)
    results = {(report.task, report.settings["dim"]) for report in read_reports(output)}
    assert results == {("tatoeba", 32), ("bucc", 32), ("sts17", 32), ("tatoeba", 4)}
    reports = [replace(read_reports(output)[0], data_fingerprint=str(number)) for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda report: _write_results(str(output), [report]), reports))
    assert len(read_reports(output)) == 44


def test_scores_of_other_versions_are_measured_again_and_replaced(
    start: Start, encoded: _Encoded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    output = tmp_path / "results.json"
    with monkeypatch.context() as patched:
        patched.setattr("hf_xsent.evaluation.report.version", lambda package: "0.1")
        start(output)
    encoded.sentences = 0
    start(output)
    assert encoded.sentences > 0
    assert {report.versions["torch"] for report in read_reports(output)} == {torch.__version__}


def test_results_of_a_model_that_was_trained_again_are_replaced(
    tiny_encoders: Path, tasks: list[EvaluationTask], tmp_path: Path
) -> None:
    model, output = tmp_path / "model", tmp_path / "results.json"
    shutil.copytree(tiny_encoders, model)
    evaluate([str(model), str(tiny_encoders)], tasks[:1], output=output, device="cpu")
    weights = load_file(model / "model.safetensors")
    save_file({name: weight * 1.1 for name, weight in weights.items()}, model / "model.safetensors", {"format": "pt"})
    (report,) = evaluate(str(model), tasks[:1], output=output, device="cpu").reports
    kept = read_reports(output)
    assert [one.settings["model"] for one in kept] == [str(tiny_encoders), str(model)] and kept[-1] == report


def test_a_file_of_something_else_is_left_alone(start: Start, encoded: _Encoded, tmp_path: Path):
    for text in ('{"mine": 1}', "no json", '{"runs": [1]}'):
        (tmp_path / "file.json").write_text(text)
        with pytest.raises(OutputError, match="holds no results of hf-xsent evaluate"):
            start(tmp_path / "file.json")
        assert (tmp_path / "file.json").read_text() == text
    with pytest.raises(OutputError, match="cannot be written"):
        start(tmp_path)
    assert encoded.passes == 0


@pytest.mark.parametrize(
    ("views", "dims", "message"),
    [
        ([View(4, "mean")], [32], "layer 4 does not exist: this encoder has layers 0 (embeddings) to 3"),
        ([View(1, "men")], [32], "unknown pooling 'men': use one of cls, mean, max, sum; did you mean 'mean'"),
        ((), [33], "dim 33 does not exist"),
        ((), [0], "dim 0 does not exist"),
    ],
)
def test_views_that_do_not_exist_raise_before_encoding(
    embedder: SentenceEmbedder, tasks: list[EvaluationTask], encoded: _Encoded, views: Any, dims: Any, message: str
):
    with pytest.raises(ModelError) as error:
        _measure(embedder, tasks, views, dims)
    assert message in str(error.value)
    assert encoded.passes == 0


def test_vectors_that_are_not_finite_give_no_scores(embedder: SentenceEmbedder, tasks: list[EvaluationTask]):
    with torch.no_grad():
        embedder.model.encoder.get_input_embeddings().weight[:] = torch.nan
    with pytest.raises(DataError, match=r"the sentence '.+' has a vector that is not finite in float32: its weights"):
        _measure(embedder, tasks)
    with pytest.raises(DataError, match=r"the sentence '.+' has a vector that is not finite in float32: its weights"):
        evaluate(embedder, tasks)


def test_a_full_disk_raises_before_encoding(
    embedder: SentenceEmbedder, tasks: list[EvaluationTask], encoded: _Encoded, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(HfXsentError, match="has 0 bytes free but the vectors need .*: choose fewer layers"):
        _measure(embedder, tasks)
    assert encoded.passes == 0


def test_nothing_stays_behind(
    embedder: SentenceEmbedder, tasks: list[EvaluationTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    """Not even of a run that is killed: its files have no name."""
    _measure(embedder, tasks)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("tasks", "options", "message"),
    [
        (
            {"tatoeba": "folder"},
            {"languages": {"tatoba": ["de"]}},
            "given for 'tatoba', .* tasks tatoeba; did you mean",
        ),
        (
            [TatoebaTask([PairSet("deu", ["a"], ["b"])])],
            {"languages": ["de"]},
            "give them to load_tasks instead",
        ),
        ("data/tatoeba", {}, "data/tatoeba is not a folder that contains .*: write TASK=FOLDER"),
        (__file__, {}, f"{__file__} is not a folder that contains .*, or give pairs as pairs"),
        (["tatoeba=a", "tatoeba=b"], {}, "the task tatoeba is given twice, a and b: evaluate them in separate calls"),
        ({"xquad_r": "folder"}, {}, "unknown task 'xquad_r': .*; the data xquad_r is for answer_retrieval"),
        ({"tatoba": "folder"}, {}, "unknown task 'tatoba': tasks are .*; did you mean"),
        (["sts17=a", "bucc=b"], {"languages": ["de"]}, "names no task: write sts17=de"),
        (["sts17=a"], {"languages": ["sts=de"]}, "given for 'sts', which is not among the tasks sts17"),
        ({"sts17": {"data": ["a", "b"]}}, {}, "tasks.sts17.data takes one folder or Hub id, not a, b"),
        ({"sts17": object()}, {}, "tasks.sts17: data takes a list of text or a mapping, not <object"),
        (pandas.DataFrame({"de": ["a"]}), {"pairs": [("a", "b")]}, "the task pairs is given twice"),
        ({"sts17": "a"}, {"suite": "a"}, "unknown key 'suite'; tasks takes the folder of a suite, too"),
        ({"sts17": "a"}, {"model": {}}, "model is missing: give MODEL"),
        ({"pairs": {"max_pairs": 10}}, {}, "tasks.pairs.data is missing"),
        ({"pairs": {}}, {}, "tasks.pairs.data is missing"),
        ({"retrieval": {"data": {}}}, {}, "tasks.retrieval.data is missing"),
        (None, {"pairs": []}, "^pairs has no pairs: give at least one"),
        (TatoebaTask, {}, "tasks are names with their data, or loaded tasks, not "),
        ([TatoebaTask([PairSet("deu", ["a"], ["b"])]), "xsim=a"], {}, "names with their data, or loaded tasks: load"),
    ],
)
def test_tasks_and_languages_that_do_not_fit_are_refused(tasks: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HfXsentError, match=message):
        evaluate(**{"model": "model", "tasks": tasks} | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": ["3-1"]}, "(--)?layers takes numbers and ranges"),
        ({"layers": [-1]}, "(--)?layers takes numbers and ranges"),
        ({"pooling": "mean,cls"}, "(--)?pooling takes one value if models are compared"),
        ({"dims": [0]}, "dims 0 is not at least 1"),
        *(({"model": ["a", spelling]}, "given twice") for spelling in ("a", "./a", "a/", os.path.abspath("a"))),
        ({"model": "a", "dims": [4, 8], "page": "page.html"}, "dims takes one value .* with page"),
    ],
)
def test_views_of_several_models_are_checked_first(
    tasks: list[EvaluationTask], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        evaluate(**{"model": ["a", "b"], "tasks": tasks, **options})


def test_a_stored_result_has_the_present_name_of_its_data(tiny_encoders: Path, tmp_path: Path, pairs: Any) -> None:
    for name in ("first.tsv", "second.tsv"):
        (tmp_path / name).write_text("".join(f"{a}\t{b}\n" for a, b in pairs), "utf-8")
        data = {"de": tmp_path / name}
        (report,) = evaluate(tiny_encoders, pairs=data, output=str(tmp_path / "results.json")).reports
        assert report.data == name and [one.data for one in read_reports(tmp_path / "results.json")] == [name]


def test_any_object_with_encode_is_evaluated(embedder: SentenceEmbedder, tasks: list[EvaluationTask]) -> None:
    evaluation = evaluate(embedder, tasks)
    assert [report.task for report in evaluation.reports] == ["tatoeba", "bucc", "sts17"]
    assert str(evaluation).count("model SentenceEmbedder") == 3
    for name, value in {"dims": [4], "precision": "bfloat16", "device": "cpu", "output": "results.json"}.items():
        with pytest.raises(ModelError, match=f"^{name} needs models that are named by a folder or Hub id"):
            evaluate(embedder, tasks, **{name: value})
    for other in (object(), [embedder, None]):
        with pytest.raises(ModelError, match="(object|NoneType) has no encode"):
            evaluate(other, tasks)


def test_several_objects_and_folders_are_compared_with_the_first(
    tiny_encoders: Path, pairs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_encoders, "other")
    start = SentenceEmbedder.from_pretrained(tiny_encoders, pooling="mean")
    other = SentenceEmbedder.from_pretrained(tiny_encoders, pooling="cls")
    data = Dataset.from_dict({"source": [a for a, _ in pairs], "target": [b for _, b in pairs]})
    evaluation = evaluate([start, other, str(tiny_encoders)], pairs={"de": data})
    names = ["SentenceEmbedder 1", "SentenceEmbedder 2", str(tiny_encoders)]
    assert list(evaluation.by_model) == names
    alone = [evaluate(model, pairs={"de": data}).reports[0].groups for model in (start, other)]
    assert [report.groups for report in evaluation.reports] == [*alone, alone[0]]
    scores = evaluation.to_pandas().set_index(["model", "of", "metric"])
    first, second = (scores.loc[(name, "de", "beside")] for name in names[:2])
    assert second.difference == pytest.approx(second.score - first.score, abs=1e-3)
    assert second.low <= second.difference <= second.high and isnan(first.difference)
    assert "SentenceEmbedder 2 - SentenceEmbedder 1" in repr(evaluation)
    named = evaluate({"start": start, "mine": str(tiny_encoders)}, pairs={"de": data})
    assert [report.groups for report in named.reports] == [alone[0], alone[0]] and "mine - start" in str(named)
    monkeypatch.setenv("HOME", str(tmp_path))
    cut = evaluate({"start": str(tiny_encoders), 20: "~/other"}, pairs={"de": data}, pooling="mean", max_length=24)
    assert list(cut.by_model) == ["start", "20"] == [*cut.to_pandas().model.unique()] and "20 - start" in str(cut)


def test_opened_models_read_as_much_as_stated_while_they_are_measured(
    tiny_encoders: Path, pairs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    opened, ours = SentenceTransformer(str(tiny_encoders)), SentenceEmbedder.from_pretrained(tiny_encoders)
    before = opened.max_seq_length, ours.max_length
    folder = evaluate(str(tiny_encoders), pairs={"de": pairs}, max_length=4).reports[0]
    evaluation = evaluate({"theirs": opened, "ours": ours, "named": tiny_encoders}, pairs={"de": pairs}, max_length=4)
    for report in evaluation.reports:
        assert report.settings["max_length"] == 4
        assert report.groups["all"]["beside"] == pytest.approx(folder.groups["all"]["beside"])
    assert (opened.max_seq_length, ours.max_length) == before
    with pytest.raises(ModelError, match="^max_length 99999 does not fit"):
        evaluate({"theirs": opened, "ours": ours}, pairs={"de": pairs}, max_length=99999)
    assert (opened.max_seq_length, ours.max_length) == before
    AlignmentForSentenceEmbedding.from_backbone(str(tiny_encoders), max_length=8).save_pretrained("saved")
    model = AutoModel.from_pretrained("saved")
    automodel = evaluate({"ours": ours, "model": model}, pairs={"de": pairs}, max_length=4).reports[1]
    assert automodel.settings["max_length"] == 4
    assert automodel.groups["all"]["beside"] == pytest.approx(folder.groups["all"]["beside"])
    assert "different lengths in tokens" in str(evaluate({"ours": ours, "model": model}, pairs={"de": pairs}))
    for model in (opened, SentenceTransformer(modules=[StaticEmbedding(opened.tokenizer, embedding_dim=8)])):
        with pytest.raises(ModelError, match="^max_length 999 does not fit|has no limit of tokens, which max_length"):
            evaluate(model, pairs={"de": pairs}, max_length=999)
    with pytest.raises(ModelError, match="^precision and output need models that are named"):
        evaluate(ours, pairs={"de": pairs}, precision="bfloat16", output="results.json")


def test_a_note_says_that_a_single_model_prefers_the_language_of_the_query(tasks: list[EvaluationTask]) -> None:
    report = Report.of(tasks[0], {"model": "m"}, Scores({}, {"all": {"mean": 95.0, "beside": 89.9}}))

    def noted(*reports: Report) -> list[str]:
        return Evaluation(tasks, [Measurement(one, Outcomes({}, {})) for one in reports]).notes

    (note,) = noted(report)
    assert note.startswith("tatoeba: 95.00 alone, but 89.90 beside the query's own language, which this model prefers")
    closer = Report.of(tasks[0], {"model": "m"}, Scores({}, {"all": {"mean": 95.0, "beside": 90.1}}))
    assert noted(closer) == [] == noted(replace(report, settings={"model": "n"}), report)


# Suites


@pytest.fixture
def suite(tmp_path: Path, pairs: list[tuple[str, str]]) -> Path:
    """The data of Tatoeba, a mixed pool, and STS within a language."""
    texts = ["\n".join(pair[side] for pair in pairs) + "\n" for side in (0, 1)]
    folder = tmp_path / "suite"
    for name in ("tatoeba", "ntrex", "sts17"):
        (folder / name).mkdir(parents=True)
    for code, other, text in (("de", "deu", texts[0]), ("en", "eng", texts[1])):
        (folder / "ntrex" / f"{code}.txt").write_text(text, encoding="utf-8")
        (folder / "tatoeba" / f"tatoeba.deu-eng.{other}").write_text(text, encoding="utf-8")
    for track in ("1.ar-ar", "3.es-es", "5.en-en"):
        lines = "".join(f"{first}\t{second}\n" for first, second in pairs)
        (folder / "sts17" / f"STS.input.track{track}.txt").write_text(lines, encoding="utf-8")
        scores = "".join(f"{number % 5}\n" for number in range(len(pairs)))
        (folder / "sts17" / f"STS.gs.track{track}.txt").write_text(scores, encoding="utf-8")
    return folder


def test_a_suite_measures_all_data_of_a_folder_encodes_once_and_shows_a_table_and_a_page(
    encoder_folders: dict[str, Path], suite: Path, encoded: _Encoded, tmp_path: Path
) -> None:
    models = [str(encoder_folders[name]) for name in ("bert", "modernbert")]
    files = {"output": tmp_path / "results.json", "page": tmp_path / "results.html"}
    evaluation = evaluate(models, str(suite), device="cpu", **files)
    texts = {text for task in evaluation.tasks for _, text in task.inputs()}
    assert encoded.sentences == 2 * len(texts)
    names = ["mixed_pool", "language_probe", "xsim", "tatoeba", "sts17", "retention"]
    assert [task.name for task in evaluation.tasks] == names
    table = str(evaluation)
    assert table.count("\n") < 40 and max(map(len, table.splitlines())) < 120
    for label in ("beside the query's own language", "Tatoeba: mean", "within a language", "cosine with the start"):
        assert label in table
    for task in evaluation.tasks:  # each figure of both models has an interval, and is marked by it
        second = evaluation.by_model["modernbert"][task.name]
        for label, figure in task.figures.items():
            group, metric = ("all", figure) if isinstance(figure, str) else figure
            if metric in second.groups.get(group, {}) and metric not in ("cosine", "neighbours"):
                value, low, high = second.differences[group][metric]
                (line,) = (line for line in table.splitlines() if line.startswith(label))
                assert line.rstrip().endswith(f"{value:+.2f}{' *' if low > 0 or high < 0 else ''}"), line
    first, second = (of["retention"] for of in evaluation.by_model.values())
    assert "cosine" not in first.groups["all"] and -1 <= second.groups["all"]["cosine"] < 0.999
    runs = json.loads(files["output"].read_text("utf-8"))["runs"]
    assert len(runs) == 12 and [each["task"] for each in runs if "start" in each["settings"]] == ["retention"]
    page = Page(files["page"].read_text("utf-8"))
    charts = {svg.get("aria-label") for svg in page.svgs}
    assert page.links == [] and {"Mixed pool: own language", "Tatoeba: mean"} <= charts
    encoded.sentences = 0
    assert str(evaluate(models, str(suite), device="cpu", **files)) == table and encoded.sentences == 0
    with pytest.raises(OutputError, match="results.json would overwrite .* another output"):
        evaluate(models, str(suite), output=files["output"], page=files["output"])
    with pytest.raises(OutputError, match="results.json exists and is no page: choose another name"):
        evaluate(models, str(suite), page=files["output"])


def test_a_suite_with_several_views_shows_each(encoder_folders: dict[str, Path], suite: Path) -> None:
    model = str(encoder_folders["bert"])
    shown = str(evaluate(model, str(suite), layers=["0-1"], device="cpu", languages={"retention": ["ar"]}))
    assert shown.count("\n0      ") == shown.count("\n1      ") == 6
    assert [one.sets[0].language for one in load_tasks({"retention": str(suite)}, {"retention": "en"})] == ["en-en"]
    with pytest.raises(DataError, match="has no 'xx', only ar, es, en"):
        evaluate(model, {"retention": str(suite)}, languages={"retention": ["ar", "xx"]})


def test_notes_and_failing_texts_are_those_of_a_single_view(encoder_folders: dict[str, Path], pairs: Any) -> None:
    model = str(encoder_folders["bert"])
    one, several = (evaluate(model, pairs={"de": pairs}, layers=layers) for layers in ([0], [0, 1]))
    assert any("for which not the right one was found first" in note for note in one.notes)
    assert several.notes == []
    assert evaluate(model, pairs={"de": pairs}, layers=[]).reports == evaluate(model, pairs={"de": pairs}).reports


def test_own_pairs_join_loaded_tasks(embedder: SentenceEmbedder, tasks: list[EvaluationTask], tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text("ein Hund\ta dog\neine Katze\ta cat\n")
    evaluation = evaluate(embedder, tasks, pairs={"de": str(tmp_path / "own.tsv")})
    assert [report.task for report in evaluation.reports] == ["tatoeba", "bucc", "sts17", "pairs"]
    assert [report.task for report in evaluate(embedder, tasks[0]).reports] == ["tatoeba"]


def test_prompts_of_the_model_precede_questions_and_passages(encoder_folders: dict[str, Path]) -> None:
    embedder = SentenceEmbedder.from_pretrained(str(encoder_folders["bert"]), device="cpu")
    embedder.model.config.prompts = {"query": "ask: ", "passage": "read: "}
    embedder.prompt = "The cat: "
    inputs = [(role, "The dog") for role in ("", "query", "document")]
    lookup = SentenceVectors(embedder, [embedder.view], inputs).of(embedder.view, 32)
    found = np.concatenate([lookup.as_role(role, ["The dog"]) for role in ("", "query", "document")])
    expected = embedder.encode(["The cat: The dog", "ask: The dog", "read: The dog"], prompt="")
    np.testing.assert_allclose(found, expected, atol=1e-5)


# Tables


@pytest.fixture
def reports(tasks: list[EvaluationTask]) -> Iterator[list[Report]]:
    scores = tasks[0].score(lambda sentences: np.array([[len(one), 1.0] for one in sentences]))
    yield [Report.of(tasks[0], {"model": "my/model", "pooling": "cls", "layer": layer}, scores) for layer in (0, 12)]


def test_the_table_says_what_was_measured_and_how(tasks: list[EvaluationTask], reports: list[Report]):
    lines = reports[1].text(tasks[0]).splitlines()
    assert lines[0].split() == ["Tatoeba", "pairs", "xx→en", "en→xx", "mean"]
    assert lines[2].split()[:2] == ["deu", "17"]
    assert lines[3].startswith("mean of all")
    assert lines[-2:] == ["model my/model, pooling cls, layer 12", tasks[0].protocol]


def test_a_sweep_is_a_line_for_each_view(tasks: list[EvaluationTask], reports: list[Report]):
    lines = task_table(tasks[0], reports).splitlines()
    assert lines[1].split() == ["layer", "all"]
    assert [line.split()[0] for line in lines[3:5]] == ["0", "12"]
    assert lines[-2] == "model my/model, pooling cls"


def test_published_figures_stand_beside_the_groups_they_are_of():
    for one in published_scores():
        assert set(one) - {"task", "group", "model", "paper"} <= set(TASKS[one["task"]].headings)
    lines = published_lines(TatoebaTask([PairSet("deu", ["a"], ["b"])]), ["36", "all"])
    assert "published, 36: mBERT + DAP xx→en 90.9, en→xx 91.2, mean 91.05 (DAP (arXiv:2305.09148))" in lines
    assert not any("published, 4:" in line for line in lines)


def test_results_beside_a_start_are_of_this_start(
    encoder_folders: dict[str, Path], suite: Path, tmp_path: Path
) -> None:
    bert, modernbert, third = (str(encoder_folders[name]) for name in ("bert", "modernbert", "xlm-roberta"))

    def cosines(*models: str, **options: Any) -> list[float | None]:
        reports = evaluate(
            list(models), {"retention": str(suite)}, output=tmp_path / "results.json", device="cpu", **options
        ).reports
        return [report.groups["all"].get("cosine") for report in reports]

    (_, first), (_, second) = cosines(bert, third), cosines(modernbert, third)
    assert first is not None and first != second
    assert cosines(bert, third) == [None, first] and cosines(third) == [None]
    assert None not in cosines(bert, third, dims=[16])[1:]
    table = str(evaluate([bert, third], {"retention": str(suite)}, output=tmp_path / "results.json", device="cpu"))
    assert re.search(rf"^cosine with the start, mean of all +{first:.2f} *$", table, re.MULTILINE)
    own = str(tmp_path / "max")  # whose own pooling only changes how the start is read
    export_sentence_transformer(SentenceEncoderForPreTraining.from_pretrained(third, pooling="max"), own, verify=False)
    assert cosines(bert, own)[1] != cosines(bert, own, pooling=["max"])[1]
