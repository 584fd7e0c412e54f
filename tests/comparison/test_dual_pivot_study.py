"""A study of dual pivot: untrained layers beside trained extractions, all on features that are encoded once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from study_file import StudyFile
from transformers import AutoConfig, AutoModel

from hf_xsent.comparison.process import measure, open_embedder, train, with_features
from hf_xsent.comparison.results import collect
from hf_xsent.comparison.study import check_methods, read_study
from hf_xsent.errors import HfXsentError
from hf_xsent.settings.yaml12 import read_mapping
from hf_xsent.training.dual_pivot.features import CachedEncoder

STUDIES = sorted((Path(__file__).parents[2] / "benchmarks" / "studies").glob("*.yaml"))
UNSUPERVISED = {"objectives": {"adversarial": 1, "cycle": {"weight": 10, "negatives": 2, "margin": 0.2}}}


@pytest.fixture
def pivots(study: StudyFile) -> StudyFile:
    one_layer = {"layer_mix": False, "objectives": {"triplet_ranking": 1}}
    settings = {"method": "dual-pivot", "features": str(study.path.parent / "features")}
    study.content |= {
        "settings": study.content["settings"] | settings | {"recipe": None},
        "poolings": ["sum"],
        "methods": {
            "as it is": {"train": False},
            **{f"as it is, layer {layer}": {"train": False, "layers": [layer]} for layer in (0, 2)},
            **{f"supervised, layer {layer}": {**one_layer, "layers": [layer]} for layer in (0, 2)},
            "unsupervised": UNSUPERVISED,
        },
    }
    return study


def test_runs_share_the_features_of_the_encoder(pivots: StudyFile, caplog: pytest.LogCaptureFixture) -> None:
    pivots.write()
    runs = pivots.runs()
    with caplog.at_level("INFO", logger="hf_xsent"):
        for run in runs:
            run.write_job()
            if not run.has_model:
                train(run)
            measure(run)
    encoded = [message for message in caplog.messages if "into the feature cache" in message]
    cached = [
        path for path in (pivots.path.parent / "features").iterdir() if not path.name.endswith((".json", ".lock"))
    ]
    assert len(encoded) == len(cached)
    assert all(run.finished for run in runs)
    assert isinstance(with_features(runs[0], open_embedder(runs[0])), CachedEncoder)
    results = json.loads(json.dumps(collect(pivots.read(), runs)))
    assert len({str(row["groups"]) for row in results["summary"]}) > 1


def test_only_whether_test_texts_are_read_from_features_decides_results(pivots: StudyFile) -> None:
    def folders(features: str | None) -> set[str]:
        settings = {**pivots.content["settings"], "features": features}
        pivots.write(settings={key: value for key, value in settings.items() if value is not None})
        return {run.folder.name for run in pivots.runs()}

    stated, unset, none = folders("elsewhere"), folders(None), folders("none")
    assert stated == folders(pivots.content["settings"]["features"])
    assert not (stated & unset or stated & none or unset & none)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"train": False, "layers": [9]}, r"methods.one: layers \[9\] do not exist"),
        ({"train": False, "layers": "all"}, "methods.one: layers takes a list of whole numbers, not 'all'"),
        ({"train": False, "poolings": ["cls"]}, "methods.one: pooling 'cls' is unknown: use sum"),
    ],
)
def test_a_mistake_in_an_untrained_row_raises_an_error(pivots: StudyFile, method: dict[str, Any], message: str) -> None:
    with pytest.raises(HfXsentError, match=message):
        pivots.write(methods={"one": method})
        pivots.runs()


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_studies_of_the_benchmarks_can_be_read(path: Path) -> None:
    content = read_mapping(path)
    flags = {f"tasks.{task}.data": ["pairs.tsv"] for task in content["tasks"]}
    stated = {"model": "encoder", "data": {"de": "pairs.tsv"}}
    assert len(read_study([content, stated], flags, str(path)).methods) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["proof", "token_against_sentence"])
def test_every_recipe_of_the_proof_passes_the_checks_of_training(
    name: str, study: StudyFile, encoder_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = study.path.parent
    monkeypatch.chdir(folder)
    for linked in ("linked", "linked_eflomal", "linked_shuffled"):
        Path(linked).mkdir()
        for language in ("de", "fr"):
            lines = Path(f"{language}-en.tsv").read_text("utf-8").splitlines()
            pairs = [dict(zip(("source", "target"), line.split("\t"), strict=False), links="0-0") for line in lines]
            text = "".join(json.dumps(pair) + "\n" for pair in pairs)
            Path(linked, f"{language}-en.jsonl").write_text(text, encoding="utf-8")
    (path,) = [one for one in STUDIES if one.stem == name]
    encoder = tmp_path / "encoder"  # as deep as the studies expect: one method names layer 8
    shutil.copytree(encoder_folders["bert"], encoder)
    AutoModel.from_config(AutoConfig.from_pretrained(encoder, num_hidden_layers=8)).save_pretrained(encoder)
    flags = {"data": [f"{folder}/linked/{{language}}-en.jsonl"], "model": [str(encoder)]}
    flags |= {"settings.use_cpu": ["true"], "settings.max_length": ["24"]}
    flags |= {f"tasks.{task}.data": ["none"] for task in ("tatoeba", "word_alignment")}
    read = read_study([read_mapping(path)], flags, str(path))
    trained = {
        variant.method.name: variant.plan
        for variant in check_methods(read, tmp_path)
        if variant.method.seeds != (None,)
    }
    assert len(trained) > 2
    for plan in trained.values():
        ranking = plan.recipe.config.objectives.get("translation_ranking")
        assert ranking is None or ranking.temperature == (0.05 if name == "proof" else 0.02)
        contrast = plan.recipe.config.objectives.get("momentum_contrast")
        assert contrast is None or contrast.queue_size == 2048
