"""Word alignment as a task of a study: the layer is chosen on one set, and figures are those of the aligner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from study_file import Pairs, StudyFile

from hf_xsent import SentenceEmbedder, evaluate
from hf_xsent.comparison.compare import StudyResults
from hf_xsent.comparison.process import measure
from hf_xsent.comparison.report import task_table
from hf_xsent.comparison.results import collect
from hf_xsent.data.benchmarks.gold_links import GoldPair, load_gold_links
from hf_xsent.errors import HfXsentError, RecipeError
from hf_xsent.evaluation.registry import load_task
from hf_xsent.evaluation.word_alignment import WordAlignmentTask
from hf_xsent.words.aligners import AlignerSettings, open_aligner


@pytest.fixture
def gold(tmp_path: Path, pairs: Pairs) -> Path:
    """Two sets of eight pairs with a diagonal of sure links and one possible link each."""
    folder = tmp_path / "gold"
    folder.mkdir()
    for name, some in (("deen", pairs[:8]), ("xxen", pairs[8:])):
        lines, links = [], []
        for source, target in some:
            lines.append(f"{source} ||| {target}\n")
            shared = min(len(source.split()), len(target.split()))
            links.append(" ".join([f"{place}-{place}" for place in range(1, shared + 1)] + [f"1p{shared}"]) + "\n")
        (folder / f"{name}.src-tgt").write_text("".join(lines), encoding="utf-8")
        (folder / f"{name}.gold").write_text("".join(links), encoding="utf-8")
    return folder


def _read(gold: Path, **options: Any) -> WordAlignmentTask:
    task = load_task("word_alignment", {"data": str(gold), "choose": "deen"} | options, gold)
    assert isinstance(task, WordAlignmentTask)
    return task


def _error_rate(aligned: Iterable[Any], gold: Sequence[GoldPair]) -> float:
    found = {(line, link) for line, links in enumerate(aligned) for link in links}
    sure, possible = (
        {(n, link) for n, pair in enumerate(gold) for link in getattr(pair, kind)} for kind in ("sure", "possible")
    )
    return 100 * (1 - (len(found & sure) + len(found & possible)) / (len(found) + len(sure)))


def test_figures_are_those_of_the_aligner_with_the_layer_that_one_set_chooses(tiny_encoders: Path, gold: Path) -> None:
    embedder = SentenceEmbedder.from_pretrained(str(tiny_encoders), device="cpu")
    depth = len(embedder.model.backbone.layers)
    expected: dict[str, dict[int, float]] = {}
    for name in ("deen", "xxen"):
        pairs = load_gold_links(gold / name)
        sides = [pair.source for pair in pairs], [pair.target for pair in pairs]
        expected[name] = {
            layer: _error_rate(
                open_aligner(AlignerSettings(model=str(tiny_encoders), layer=layer)).align(*sides), pairs
            )
            for layer in range(1, depth + 1)
        }
    scores = _read(gold).score(embedder)
    best = min(expected["deen"], key=expected["deen"].__getitem__)
    for name, figures in scores.languages.items():
        assert figures["layer"] == best
        assert figures["error_rate"] == pytest.approx(expected[name][best])
        assert figures["last_error_rate"] == pytest.approx(expected[name][depth])
        assert WordAlignmentTask.metrics(scores.outcomes.rows[name])["agreement"] == pytest.approx(
            100 - figures["error_rate"]
        )
    resampled = WordAlignmentTask.metrics(scores.outcomes.rows["deen"][np.zeros((3, 8), dtype=int)])["agreement"]
    assert resampled.shape == (3,)
    assert scores.groups["all"]["error_rate"] == pytest.approx((expected["deen"][best] + expected["xxen"][best]) / 2)


def test_scores_are_measured_again_if_the_choice_of_the_layer_changes(gold: Path) -> None:
    prints = {_read(gold, **options).fingerprint for options in ({}, {"choose": "xxen"})}
    assert len(prints) == 2


def test_a_study_reports_the_error_rate(study: StudyFile, gold: Path) -> None:
    tasks = {"word_alignment": {"data": str(gold), "choose": "deen"}}
    study.write(tasks=tasks, methods={"none": {"train": False}})
    runs = study.runs()
    for run in runs:
        run.write_job()
        measure(run)
    results = collect(study.read(), runs)
    table = task_table(results, "word_alignment")
    assert "| AER of all |" in table.markdown() and "100 - AER of xxen" in table.markdown()
    assert not StudyResults(results, study.out).to_pandas().duplicated(["method", "of", "metric"]).any()


def test_the_layer_is_not_stated_beside_the_one_that_was_chosen(tiny_encoders: Path, gold: Path) -> None:
    tasks = {"word_alignment": {"data": str(gold), "choose": "deen"}}
    evaluation = evaluate(str(tiny_encoders), tasks)
    assert not {"layer", "pooling", "dim"} & {*evaluation.reports[0].settings}
    assert not evaluation.to_pandas().duplicated(["of", "metric"]).any()
    for views in ({"layers": [1]}, {"pooling": ["cls", "mean"]}, {"dims": [4]}):
        with pytest.raises(RecipeError, match=f"word_alignment chooses the layer itself: drop {next(iter(views))}, or"):
            evaluate(str(tiny_encoders), tasks, **views)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"choose": None}, "no set ''.*choose SET, with one of deen, xxen"),
        ({"choose": "enfr"}, "no set 'enfr'.*deen, xxen"),
        ({"languages": ["deem"]}, "has no 'deem', only deen, xxen"),
        ({"data": "nowhere"}, "nowhere has no files"),
    ],
)
def test_a_wrong_set_is_named(gold: Path, options: dict[str, Any], message: str) -> None:
    stated = {key: value for key, value in ({"choose": "deen"} | options).items() if value is not None}
    with pytest.raises(HfXsentError, match=message):
        load_task("word_alignment", {"data": str(gold)} | stated, gold)
