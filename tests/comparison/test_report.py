"""The report: figures of runs gathered, and shown as Markdown and as one page that needs nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from page_reader import Page
from scipy import stats

from hf_xsent.comparison.compare import StudyResults
from hf_xsent.comparison.report import report_document
from hf_xsent.comparison.results import collect, differences_to_best, half_interval, mean_and_sd
from hf_xsent.comparison.run import Run
from hf_xsent.comparison.settings import Budget
from hf_xsent.comparison.study import Study
from hf_xsent.data.benchmarks.bucc import BuccSet
from hf_xsent.evaluation.mining_f1 import BuccTask
from hf_xsent.evaluation.pairs import PairsTask
from hf_xsent.evaluation.report import Measurement, Report
from hf_xsent.evaluation.task import Outcomes

SCORES = {  # by method, pooling and seed
    ("none", "mean", None): 87.06,
    ("none", "cls", None): 76.61,
    ("TR", "mean", 0): 90.0,
    ("TR", "cls", 0): 88.0,
    ("TR", "mean", 1): 91.0,
    ("TR", "cls", 1): 89.0,
    ("DAP <b>&", "mean", 0): 90.6,
    ("DAP <b>&", "cls", 0): 88.5,
    ("DAP <b>&", "mean", 1): None,  # failed
    ("DAP <b>&", "cls", 1): None,
}


UNTRAINED = {"model": "encoder", "max_steps": 0}
ONE_STEP = {"model": "e", "max_steps": 1}
TATOEBA = {"tatoeba": {"data": "tatoeba"}}


def markdown(results: dict[str, Any]) -> str:
    return report_document(results).markdown()


def page_of(results: dict[str, Any]) -> str:
    return report_document(results).html()


def _write_scores(
    run: Run, groups: dict[str, Any], languages: dict[str, Any], outcomes: Outcomes | None = None
) -> None:
    (task,) = run.tasks
    report = Report(task, "accuracy@1", {}, run.identities[task], {}, groups, languages)
    run.scores.folder.mkdir(parents=True)
    Measurement(report, outcomes or Outcomes({}, {})).write(run.scores.path(run.scores_file(task)))


@pytest.fixture
def results(tmp_path: Path) -> dict[str, Any]:
    """Of runs as their processes would have left them."""
    tasks = {"tatoeba": {"data": "tatoeba", "languages": ["36"]}}
    study = Study("Methods & <more>", Budget(steps=20), (), tasks)
    runs = []
    for number, ((method, pooling, seed), score) in enumerate(SCORES.items()):
        recipe = {
            "model": "encoder",
            "max_steps": 0 if seed is None else 20,
            "objectives": {"translation_ranking": 1},
            "cache_dir": "/x",
        }
        identities = {"tatoeba": "same"}
        run = Run(tmp_path / "runs" / str(number), method, pooling, seed, recipe, tasks, identities)
        runs.append(run)
        if score is None:
            run.record_failure(-9, "killed by SIGKILL, perhaps out of memory")
            continue
        whole = {"mean": score, "forward": score + 1, "backward": score - 1}
        groups = {"4": {"mean": score - 5}, "36": whole, "all": whole}
        _write_scores(run, groups, {"deu": {"mean": score + 2}, "kaz": {"mean": score - 4}})
        if seed is not None:
            logs = [
                {"step": step, "loss": 1.0, "loss_translation_ranking": 3 / step, "cpu_seconds": 60.0 * step + seed,
                 "seconds": 50.0 * step, "peak_mib": 900 + number}
                for step in (10, 20)
            ] + [{"step": 20, "eval_accuracy": score}]  # fmt: skip
            run.training.mkdir(parents=True)
            (run.training / "metrics.jsonl").write_text("".join(json.dumps(log) + "\n" for log in logs))
    return json.loads(json.dumps(collect(study, runs)))


def test_means_and_deviations_are_of_finished_seeds(results: dict[str, Any]):
    rows = {(row["method"], row["pooling"]): row for row in results["summary"]}
    mean, sd = rows["TR", "mean"]["groups"]["tatoeba"]["36"]["mean"]
    assert (mean, sd) == (90.5, round(statistics.stdev([90, 91]), 4))
    assert rows["TR", "mean"]["seeds"] == [0, 1] and rows["TR", "mean"]["missing"] == 0
    assert rows["DAP <b>&", "cls"]["groups"]["tatoeba"]["36"]["mean"] == [88.5, None]
    assert rows["DAP <b>&", "cls"]["missing"] == 1
    assert rows["TR", "cls"]["cost"]["cpu_seconds"][0] == 1200.5  # of the last log of each
    assert rows["none", "cls"]["cost"] == {}
    assert rows["TR", "mean"]["languages"]["tatoeba"]["kaz"]["mean"][0] == 86.5
    assert mean_and_sd([3]) == [3, None]


def test_a_task_of_one_pair_has_its_columns(tmp_path: Path):
    """BUCC has no means of papers for a single pair."""
    names = [str(number) for number in range(6)]
    task = BuccTask([BuccSet("de-en", "test", names, names, frozenset({(0, 0), (3, 3)}))])
    scores = task.score(lambda sentences: np.array([[1, int(one)] for one in sentences], dtype=np.float32))
    run = Run(
        tmp_path,
        "none",
        "mean",
        None,
        UNTRAINED,
        {"bucc": {"data": "bucc"}},
        {"bucc": "same"},
    )
    _write_scores(run, scores.groups, scores.languages)
    results = collect(Study("One pair", Budget(steps=20), (), run.tasks), [run])
    assert results["tasks"]["bucc"]["columns"][0] == ["all", "f1"]
    assert "F1 of all" in markdown(json.loads(json.dumps(results)))


def test_all_names_of_the_group_that_is_compared_have_its_differences(results: dict[str, Any], tmp_path: Path):
    scores = StudyResults(results, tmp_path).to_pandas().set_index(["method", "pooling", "of", "metric"])
    (other, *_) = results["differences"]["tatoeba"]["others"]
    for group in ("36", "all"):
        row = scores.loc[(other["method"], other["pooling"], group, "mean")]
        assert row.difference == other["difference"]
    assert scores.loc[(other["method"], other["pooling"], "4", "mean")].isna().difference


def test_published_rows_are_those_that_share_a_figure(results: dict[str, Any]):
    text = markdown(results)
    assert "| XLM-R + DAP | DAP (arXiv:2305.09148) |  | 92.0 | 91.3 | 92.7 |  |" in text
    assert "| LaBSE | WACSE (arXiv:2404.02490) |  | 95.4 |  |  | 92.5 |" in text  # we have no mean of 5 or 8


def test_a_published_row_without_a_figure_that_was_measured_is_omitted(tmp_path: Path):
    run = Run(tmp_path, "none", "mean", None, UNTRAINED, TATOEBA, {"tatoeba": "same"})
    _write_scores(run, {"36": {"mean": 90.0}}, {})
    text = markdown(collect(Study("Means alone", Budget(steps=20), (), run.tasks), [run]))
    assert "mBERT + DAP" in text and "LaBSE, mBERT vocabulary" not in text  # published from English alone


def test_a_score_that_the_first_method_lacks_has_a_column(tmp_path: Path):
    runs = []
    for method, cosine in (("narrow", {}), ("wide", {"cosine": 0.75})):
        runs.append(Run(tmp_path / method, method, "mean", None, UNTRAINED, {"retention": {}}, {"retention": "same"}))
        _write_scores(runs[-1], {"all": {"score": 50.0, **cosine}}, {})
    text = markdown(collect(Study("Widths", Budget(steps=20), (), {"retention": {}}), runs))
    assert "| method | pooling | seeds | score of all | cosine with the start of all |" in text


def test_a_score_that_only_one_group_has_is_a_column_of_that_group(tmp_path: Path):
    run = Run(tmp_path, "one", "mean", None, UNTRAINED, {"retention": {}}, {"retention": "same"})
    groups = {"all": {"score": 50.0}, "STS": {"score": 40.0}, "XQuAD-R": {"score": 60.0, "neighbours": 99.66}}
    _write_scores(run, groups, {})
    text = markdown(collect(Study("Neighbours", Budget(steps=20), (), run.tasks), [run]))
    columns = ["score of all", "score of STS", "score of XQuAD-R", "same neighbours of XQuAD-R"]
    assert f"| method | pooling | seeds | {' | '.join(columns)} |" in text
    assert "| 50.00 | 40.00 | 60.00 | 99.66 |" in text


def test_the_report_says_how_many_texts_were_cut(results: dict[str, Any]):
    assert "were cut" not in markdown(results)
    for run in results["runs"]:
        if scores := run["scores"]:
            scores["tatoeba"] |= {"cut": {"texts": [12, 2000]}, "settings": {"max_length": 32}}
    assert markdown(results).count("tatoeba: 12 of 2,000 texts are longer than 32 tokens and were cut.") == 1


def test_the_markdown_has_every_table(results: dict[str, Any]):
    text = markdown(results)
    assert "| method | pooling | seeds | mean of 36 | xx→en of 36 | en→xx of 36 | mean of 4 |" in text
    assert "| TR | mean | 2 | 90.50 ± 0.71 | 91.50 ± 0.71 | 89.50 ± 0.71 | 85.50 ± 0.71 |" in text
    assert "| DAP &lt;b&gt;&amp; | cls | 1 of 2 | 88.50 |" in text and "<b>" not in text
    assert "| TR | cls | 20 | 20.0 ± 0.0 | 16.7 ± 0.0 | 904 ± 1 |" in text
    assert "| DAP &lt;b&gt;&amp; | cls | 1 | failed | -9 | killed by SIGKILL, perhaps out of memory |" in text


def test_the_page_is_well_formed_and_needs_no_network(results: dict[str, Any]):
    text = page_of(results)
    page = Page(text)
    assert page.links == [] and "@import" not in text and "url(" not in text
    assert "default-src 'none'" in text
    assert page.tags.count("table") == 6 and page.tags.count("script") == 1
    for shown in ("Methods & <more>", "DAP <b>&", "90.50 ± 0.71", "German", "Kazakh", "killed by SIGKILL"):
        assert shown in page.text
    assert "By language, cls pooling" in page.text and "86.50 ± 0.71" in page.text  # TR, mean, Kazakh
    assert {svg.get("aria-label") for svg in page.svgs} == {"tatoeba: score against cost"}
    assert "/x" not in text  # places of this machine


def test_the_chart_has_a_point_for_each_method_and_pooling(results: dict[str, Any]):
    points = re.findall(r"<circle[^>]*><title>([^<]*)</title>", page_of(results))
    assert "TR (mean): 20, 90.50" in points and len(points) == 6


def test_no_winner_is_named_while_the_noise_is_not_known(results: dict[str, Any]):
    """DAP is highest with one seed and without outcomes of test items."""
    found = results["differences"]["tatoeba"]
    assert found["best"] == {"method": "DAP <b>&", "pooling": "mean"}
    assert {one["interval"] for one in found["others"]} == {None}
    for text in (unescape(markdown(results)), Page(page_of(results)).text):
        assert "Highest: DAP <b>& (mean), but not every difference has an interval" in text and "Best:" not in text


def _study_with_outcomes(folder: Path, shares: dict[str, list[float]]) -> dict[str, Any]:
    """Three methods, each with seeds whose hits have these shares."""
    tasks = {"tatoeba": {"data": "tatoeba"}}
    runs = []
    for method, seeds in shares.items():
        for seed, share in enumerate(seeds):
            run = Run(
                folder / f"{method}{seed}",
                method,
                "mean",
                seed,
                ONE_STEP,
                tasks,
                {"tatoeba": "x"},
            )
            hits = np.random.default_rng(ord(method)).permutation(4000).reshape(2000, 2) < 4000 * share
            score = {"mean": 100 * hits.mean()}
            _write_scores(run, {"36": score}, {"deu": score}, Outcomes({"deu": hits}, {"36": ["deu"]}))
            runs.append(run)
    return json.loads(json.dumps(collect(Study("S", Budget(steps=1), (), tasks), runs)))


def test_a_winner_is_named_only_beyond_the_noise_of_items_and_seeds(tmp_path: Path):
    clear = _study_with_outcomes(tmp_path / "clear", {"a": [0.80, 0.801], "b": [0.85, 0.851], "c": [0.7, 0.7]})
    text = markdown(clear)
    assert "Best: b (mean)." in text and "No clear" not in text
    assert re.search(r"\| a \| mean \| -\d\.\d+ \| -\d\.\d+ to -\d\.\d+ \| worse \|", text)
    items = _study_with_outcomes(tmp_path / "items", {"a": [0.80], "b": [0.8008], "c": [0.7]})
    assert "No clear winner: noise could explain the lead of b (mean) over a (mean)." in markdown(items)
    seeds = _study_with_outcomes(tmp_path / "seeds", {"a": [0.70, 0.88], "b": [0.85, 0.86]})
    assert "the lead of b (mean) over a (mean)" in Page(page_of(seeds)).text
    assert "| a | mean |" in markdown(seeds) and "within the noise" in markdown(seeds)


def test_the_report_does_without_scores_outcomes_and_logs_of_some_seeds(tmp_path: Path):
    runs = [
        Run(
            tmp_path / f"{method}{seed}",
            method,
            "mean",
            seed,
            ONE_STEP,
            TATOEBA,
            {"tatoeba": "x"},
        )
        for method, seed in (("a", 0), ("a", 1), ("a", 2), ("b", 0))
    ]
    for run in runs[1:]:
        _write_scores(run, {"36": {"mean": 50.0}}, {"deu": {"mean": 50.0}})
    (tmp_path / "a2/training").mkdir()
    (tmp_path / "a2/training/metrics.jsonl").write_text('{"step": 1, "cpu_seconds": 60.0}\n')
    results = collect(Study("S", Budget(steps=1), (), TATOEBA), runs)
    assert [run["state"] for run in results["runs"]] == ["unfinished", *["finished"] * 3]
    assert results["summary"][0]["cost"] == {"cpu_seconds": [60.0, None]}  # of the seed whose log is there
    assert results["differences"]["tatoeba"]["others"][0]["interval"] is None  # the noise of items is not known


def test_a_study_without_any_result_has_a_page_too(tmp_path: Path):
    study = Study("Nothing yet", Budget(pairs=1500), (), TATOEBA)
    run = Run(tmp_path / "1", "TR", "cls", 0, {"model": "encoder", "max_steps": 9}, TATOEBA, {"tatoeba": "?"})
    results = collect(study, [run])
    page = Page(page_of(results))
    assert "unfinished" in page.text and "each trained one has this budget: 1,500 pairs" in page.text
    assert "unfinished" in markdown(results)


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LOOK = """<script>
const table = document.querySelector("table"), heads = table.querySelectorAll("th button");
const column = number => [...table.tBodies[0].rows].map(row => row.cells[number].textContent);
const seen = {};
heads[3].click(); seen.falling = column(3);
heads[3].click(); seen.rising = column(3);
heads[0].click(); seen.names = column(0);
seen.sorted = [...table.querySelectorAll("th[aria-sort]")].map(head => head.textContent);
document.body.style.width = "390px";
seen.widest = document.querySelector("main").scrollWidth;
seen.ground = getComputedStyle(document.body).backgroundColor;
const out = document.createElement("pre");
out.id = "seen";
out.textContent = JSON.stringify(seen);
document.body.append(out);
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it_light_and_dark_sorts_it_and_fits_it_on_a_phone(
    results: dict[str, Any], tmp_path: Path, dark: bool
):
    file = tmp_path / "page.html"
    file.write_text(page_of(results).replace("</body>", f"{LOOK}</body>"), encoding="utf-8")
    command = [str(CHROMIUM), "--headless=new", "--disable-gpu", f"--user-data-dir={tmp_path / 'chromium'}"]
    command += ["--no-sandbox"] * (os.geteuid() == 0) + ["--force-dark-mode"] * dark
    command += ["--window-size=500,900", "--enable-logging=stderr", "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    seen = json.loads(re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL).group(1).replace("&lt;", "<"))
    shown = [cell for cell in seen["falling"] if cell]
    numbers = [float(cell.split(" ")[0]) for cell in shown]
    assert len(numbers) > 8 and numbers == sorted(numbers, reverse=True)
    assert seen["falling"] == [*shown, *[""] * (len(seen["falling"]) - len(shown))]  # rows without a figure stay below
    assert [cell for cell in seen["rising"] if cell][0] == shown[-1]
    assert seen["names"][0].startswith("DAP") and seen["sorted"] == ["method"]
    assert seen["widest"] <= 390
    assert (sum(map(int, re.findall(r"\d+", seen["ground"])[:3])) < 150) is dark


def test_the_interval_over_seeds_is_welchs() -> None:
    """Against scipy, from raw figures."""
    one, other = [90.1, 90.9, 91.0], [88.0, 89.5]
    spreads = [(statistics.stdev(some), len(some)) for some in (one, other)]
    expected = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert 2 * half_interval(spreads) == pytest.approx(expected.high - expected.low)
    assert half_interval([(0.0, 1), (0.0, 2)]) == 0  # an untrained encoder, and equal figures


def test_a_difference_whose_interval_ends_at_zero_is_not_below_it() -> None:
    """Scores are rounded, but not the differences: 1 and 2 of 120 translations, found by B and by A."""

    def outcomes(hits: list[int]) -> Outcomes:
        rows = np.zeros((60, 8))
        rows[hits, 6] = 1
        return Outcomes({"de": rows}, {"all": ["de"]})

    found = {"A": outcomes([3, 40]), "B": outcomes([3])}
    measured = {name: SimpleNamespace(outcomes=items) for name, items in found.items()}
    runs: Any = [
        SimpleNamespace(finished=True, method=name, pooling="mean", measurement=lambda _, m=one: m)
        for name, one in measured.items()
    ]
    scores = {name: round(float(PairsTask.metrics(found[name].rows["de"])["beside"]), 4) for name in found}
    summary = [
        {"method": name, "pooling": "mean", "seeds": [], "groups": {"pairs": {"all": {"beside": mean_and_sd([score])}}}}
        for name, score in scores.items()
    ]
    (other,) = differences_to_best("pairs", ("all", "beside"), summary, runs)["others"]
    assert (other["difference"], other["interval"]) == (-0.8333, [-2.5, 0.0])
