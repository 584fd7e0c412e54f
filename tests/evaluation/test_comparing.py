from __future__ import annotations

import numpy as np
import pytest

from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.evaluation.opened import short_names
from hf_xsent.evaluation.report import Measurement, Report, compare_with_first, comparison_table
from hf_xsent.evaluation.retention import RetentionTask
from hf_xsent.evaluation.significance import paired_differences
from hf_xsent.evaluation.similarity import Sts17Task
from hf_xsent.evaluation.summary import _bars
from hf_xsent.evaluation.task import Outcomes
from hf_xsent.evaluation.translation_retrieval import TatoebaTask

COUNT = 400
TASK = TatoebaTask(
    [PairSet(code, [f"{code}{i}" for i in range(COUNT)], [f"en{i}" for i in range(COUNT)]) for code in ("deu", "fra")]
)


class Noisy:
    """A model whose vectors of translations are equal up to noise."""

    def __init__(self, noise: float, seed: int = 0) -> None:
        self.noise, self.seed = noise, seed

    def encode(self, sentences: list[str]) -> np.ndarray:
        rows = []
        for one in sentences:
            number = int(one.lstrip("abcdefghijklmnopqrstuvwxyz"))
            noise = np.random.default_rng([self.seed, number, *one.encode()]).standard_normal(8)
            rows.append(np.random.default_rng(number).standard_normal(8) + self.noise * noise)
        return np.array(rows, dtype=np.float32)


def _reports(*models: Noisy) -> dict[str, Report]:
    measurements = {}
    for number, model in enumerate(models):
        scores = TASK.score(model.encode)
        measurements[f"model {number}"] = Measurement.of(TASK, {"model": f"model {number}"}, scores)
    first, *others = measurements.values()
    return {"model 0": first.report} | {
        other.report.settings["model"]: compare_with_first(TASK, "model 0", first, other).report for other in others
    }


def test_differences_are_those_of_the_figures_and_the_table_marks_clear_ones() -> None:
    first, *others = (reports := _reports(Noisy(0.5), Noisy(0.3), Noisy(0.5, seed=1))).values()
    for other in others:
        assert set(other.differences) == {"deu", "fra", "all"} and other.compared_with == "model 0"
        for key, metrics in other.differences.items():
            assert set(metrics) == {"forward", "backward", "mean"}
            for metric, (value, low, high) in metrics.items():
                figures = [(one.groups | one.languages)[key][metric] for one in (other, first)]
                assert value == pytest.approx(figures[0] - figures[1], abs=1e-3)
                assert low < value < high
    text = comparison_table(TASK, reports)
    lines = text.splitlines()
    assert lines[0].split("  ")[0] == "Tatoeba, mean" and "model 0" in lines[0] and "95% interval" in lines[0]
    (mean,) = (line for line in lines if line.startswith("mean of all"))
    assert mean.count("*") == 1
    others = [line for line in lines if line.split("  ")[0].endswith(", mean of all")]
    assert [line.split(",")[0] for line in others] == ["xx→en", "en→xx"]  # all that the protocol explains is shown
    for line, metric in zip(others, ("forward", "backward"), strict=True):
        assert all(f"{report.groups['all'][metric]:.2f}" in line for report in reports.values())
    assert "model 1 scores higher than model 0 (mean over group all); model 1 - model 0: +" in text
    assert "no clear difference (mean over group all); model 2 - model 0: " in text


@pytest.mark.parametrize("measured", ["model 1", "model 2"])  # the other has another width than the start
def test_a_table_has_what_any_later_model_has_beyond_the_first(measured: str) -> None:
    reports = _reports(Noisy(0.5), Noisy(0.3), Noisy(0.5, seed=1))
    reports[measured].groups["all"]["cosine"] = 0.75
    task = RetentionTask([PairSet("en-en", ["a"], ["b"])])
    for report in reports.values():
        for metrics in (*report.groups.values(), *report.languages.values(), *report.differences.values()):
            metrics["score"] = metrics.pop("mean")
    (line,) = (line for line in comparison_table(task, reports).splitlines() if line.startswith("cosine"))
    assert line.split() == ["cosine", "with", "the", "start,", "mean", "of", "all", "0.75"]


def test_a_verdict_names_other_metrics_that_clearly_got_worse() -> None:
    reports = _reports(Noisy(0.5), Noisy(0.3))
    reports["model 1"].differences["all"] |= {"forward": [-5.0, -9.0, -1.0], "backward": [-5.0, -9.0, 1.0]}
    verdict = comparison_table(TASK, reports).splitlines()[-2]
    assert verdict.startswith("model 1 scores higher") and verdict.endswith("; but xx→en -5.00 (-9.00 to -1.00)")


def test_a_verdict_names_the_languages_that_clearly_differ_from_it() -> None:
    reports = _reports(Noisy(0.5), Noisy(0.3))
    differences = reports["model 1"].differences
    differences["deu"]["mean"], differences["fra"]["mean"] = [9.0, 4.0, 12.0], [-5.0, -9.0, 1.0]
    assert "clearly" not in comparison_table(TASK, reports), "a language in many may differ by chance"
    differences["fra"]["mean"] = [-5.0, -9.0, -1.0]
    verdict = comparison_table(TASK, reports).splitlines()[-2]
    assert verdict.startswith("model 1 scores higher") and verdict.endswith("; clearly lower in fra")
    differences["all"]["mean"] = [2.0, -4.0, 6.0]
    verdict = comparison_table(TASK, reports).splitlines()[-2]
    assert verdict.startswith("no clear difference")
    assert verdict.partition(")")[2] and "; clearly higher in deu; clearly lower in fra" in verdict


def test_an_interval_is_as_wide_as_theory_says() -> None:
    """The mean of n independent 0/1 differences has the standard error of its variance / n."""
    rng = np.random.default_rng(0)
    sides = [{"deu": np.repeat(rng.random((2000, 1)) < share, 2, axis=1)} for share in (0.5, 0.6)]
    first, second = (Outcomes(rows, {"all": ["deu"]}) for rows in sides)
    found = paired_differences(TASK.metrics, [first], [second])["all"]["mean"]
    error = 100 * (sides[1]["deu"] * 1.0 - sides[0]["deu"]).std() / np.sqrt(2000)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert found == paired_differences(TASK.metrics, [first], [second])["all"]["mean"]  # the same seed


def test_the_questions_of_several_languages_are_one_sample() -> None:
    """Their translations are no further items, which would make the interval of the mean too narrow."""
    rng, names = np.random.default_rng(0), ["XQuAD-R de", "XQuAD-R en"]
    columns = [rng.random((100, 1)) for _ in range(2)]
    sides = [Outcomes(dict.fromkeys(names, column), {"all": names}, RetentionTask.parallel) for column in columns]
    found = paired_differences(RetentionTask.metrics, sides[:1], sides[1:])
    assert found["all"]["score"] == found["XQuAD-R de"]["score"]


def test_a_language_in_two_scripts_has_two_bars() -> None:
    report = Report("mixed_pool", "", {}, "", {}, {}, {code: {"own": 50.0} for code in ("zho_Hans", "zho_Hant", "deu")})
    chart = _bars("Mixed pool", "own", {"model": report})
    assert all(f">{name}</text>" in chart for name in ("Chinese", "zho_Hant", "German")) and chart.count("<rect") == 3


def test_equal_models_differ_by_nothing() -> None:
    task = Sts17Task([PairSet("en-en", [f"a{i}" for i in range(30)], [f"b{i}" for i in range(30)], list(range(30)))])
    outcomes = task.score(Noisy(1.0).encode).outcomes
    found = paired_differences(task.metrics, [outcomes], [outcomes, outcomes])["all"]["spearman"]
    assert (found.value, found.low, found.high) == (0, 0, 0) and not found.significant


def test_names_are_shortened_while_they_differ() -> None:
    assert short_names(["runs/a", "runs/b"]) == {"runs/a": "a", "runs/b": "b"}
    assert short_names(["a", "runs/a", "."]) == {"a": "a", "runs/a": "runs/a", ".": "."}
    models = ["org/e5", "/home/me/studies/mean/training", "/home/me/studies/cls/training", "/home/me/exported"]
    assert [*short_names(models).values()] == ["e5", "mean/training", "cls/training", "exported"]


@pytest.mark.parametrize(("count", "groups", "known"), [(1, 1, []), (9, 1, []), (10, 1, ["a", "all"]), (5, 2, ["all"])])
def test_few_items_have_no_interval(count: int, groups: int, known: list[str]) -> None:
    names = [*"ab"[:groups]]
    sides = [Outcomes({name: np.full((count, 1), value) for name in names}, {"all": names}) for value in (0.0, 1.0)]
    differences = paired_differences(lambda rows: {"score": rows.mean(-2)[..., 0]}, *([side] for side in sides))
    of_all = {key: of_key["score"] for key, of_key in differences.items()}
    assert [key for key, difference in of_all.items() if difference.significant] == known
    unknown = [str(difference) for key, difference in of_all.items() if key not in known]
    assert unknown == ["+1.00"] * len(unknown)
