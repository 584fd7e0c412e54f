from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hf_xsent import SentenceEmbedder, export_sentence_transformer
from hf_xsent.data.benchmarks.bucc import BuccSet
from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.errors import DataError
from hf_xsent.evaluation.mining_f1 import BuccTask
from hf_xsent.evaluation.retrieval import TatoebaTask
from hf_xsent.evaluation.similarity import Sts17Task, Sts22Task
from hf_xsent.evaluation.task import EvaluationTask

mteb = pytest.importorskip("mteb", reason="mteb is not installed: pip install 'hf-xsent[mteb]'")


@pytest.fixture
def exported(encoder_folders: dict[str, Path], tmp_path: Path) -> Path:
    embedder = SentenceEmbedder.from_pretrained(str(encoder_folders["bert"]), device="cpu")
    return export_sentence_transformer(embedder.model, tmp_path / "exported", embedder.tokenizer, verify=False)


def _both(exported: Path, task: EvaluationTask) -> tuple[dict[str, Any], dict[str, Any]]:
    """Our figures by language, and mteb's by its names for them."""
    from hf_xsent.evaluation.mteb_tasks import mteb_task
    from sentence_transformers import SentenceTransformer

    ours = task.score(SentenceEmbedder.from_pretrained(str(exported), device="cpu").encode).languages
    model = SentenceTransformer(str(exported), device="cpu", local_files_only=True)
    result = mteb.evaluate(model, mteb_task(task), cache=None, show_progress_bar=False)
    return ours, {one["hf_subset"]: one for one in result.task_results[0].scores["test"]}


def test_tatoeba_accuracy_is_theirs(exported: Path, pairs: list[tuple[str, str]]) -> None:
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    sets = [PairSet("deu", *sides), PairSet("fra", sides[0][::-1], sides[1][1:] + sides[1][:1])]
    ours, theirs = _both(exported, TatoebaTask(sets))
    assert set(theirs) == {"deu-eng", "fra-eng"}
    for language in ("deu", "fra"):
        assert ours[language]["forward"] == pytest.approx(100 * theirs[f"{language}-eng"]["accuracy"])
    assert ours["deu"]["forward"] != ours["fra"]["forward"]


def test_sts_figures_are_theirs(exported: Path, pairs: list[tuple[str, str]]) -> None:
    gold = [float((7 * number) % 6) for number in range(len(pairs))]  # with ties
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    task = Sts17Task([PairSet("ar-en", *sides, gold), PairSet("es-en-wmt", *sides, gold)])
    ours, theirs = _both(exported, task)
    assert set(theirs) == {"en-ar"}
    assert ours["ar-en"]["spearman"] == pytest.approx(100 * theirs["en-ar"]["cosine_spearman"], abs=1e-3)
    ours, theirs = _both(exported, Sts22Task([PairSet("de-en", *sides, gold)]))
    assert ours["de-en"]["spearman"] == pytest.approx(100 * theirs["de-en"]["cosine_spearman"], abs=1e-3)
    from hf_xsent.evaluation.mteb_tasks import mteb_task

    with pytest.raises(DataError, match="STS17 does not have es-en-wmt: "):
        mteb_task(Sts17Task([PairSet("es-en-wmt", *sides, gold)]))


def test_bucc_is_another_task_there(exported: Path, pairs: list[tuple[str, str]]) -> None:
    """They ask for the nearest target of each gold source; nothing is mined, and there is no threshold."""
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    bucc = BuccSet("de-en", "dev", *sides, frozenset({(3, 3), (5, 5)}))
    _, theirs = _both(exported, BuccTask([bucc]))
    assert theirs["de-en"]["accuracy"] in (0.0, 0.5, 1.0)


def test_the_untouched_encoder_on_real_data(assets: Path) -> None:
    """The real records reach mteb as they are."""
    from hf_xsent.evaluation.mteb_tasks import mteb_task

    theirs = mteb_task(TatoebaTask.load(assets / "data" / "tatoeba", ["de"]))
    assert len(theirs.dataset["deu-eng"]["test"]) == 1000
    assert set(mteb_task(Sts17Task.load(assets / "data" / "sts17")).dataset) == {
        "ar-ar", "en-ar", "es-es", "es-en", "en-en", "en-tr"
    }  # fmt: skip
