"""Mined negatives: the nearest wrong sentences of both languages, against a slow choice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numbered_words import Words
from training_run import Pairs, Run

from hf_xsent import mine_negatives
from hf_xsent.cli import main
from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.readers.fields import NEGATIVES
from hf_xsent.errors import DataError, OutputError, RecipeError
from hf_xsent.mining.hard_negatives import _NEIGHBOURS, MinedNegatives, NegativeCounts
from hf_xsent.mining.settings import MineNegativesSettings

pytestmark = pytest.mark.usefixtures("small_shards")


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Path]:
    """Two languages; a7 has two translations, and one in the other language, and b9 two sources."""
    first = [(f"a{i}", f"b{i}") for i in range(40)] + [("a7", "b8"), ("a10", "b9"), ("a" + "1" * 1200, "b3")]
    second = [(f"c{i}", f"b{i}") for i in range(30, 70)] + [("a7", "b57")]
    for name, pairs in (("de", first), ("fr", second)):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return {"de": tmp_path / "de.tsv", "fr": tmp_path / "fr.tsv"}


def _mine(data: Any, folder: Path, model: Any = None, **settings: Any) -> MinedNegatives:
    mined = mine_negatives(data, folder / "out", model or Words(), work=folder / "work", **settings)
    assert isinstance(mined, MinedNegatives)
    return mined


def _records(folder: Path, language: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "out" / f"{language}.jsonl").read_text().splitlines()]


def _slow(pairs: Pairs, settings: MineNegativesSettings) -> list[tuple[list[str], list[str]]]:
    """All cosines at once, and one candidate at a time."""
    model = Words()
    sides = [list(dict.fromkeys(text for text in side if len(text) < 1000)) for side in zip(*pairs, strict=True)]
    units = [model.encode(side) / np.linalg.norm(model.encode(side), axis=1, keepdims=True) for side in sides]
    cosines = units[0].astype(np.float64) @ units[1].T
    averages = [np.sort(matrix, 1)[:, -4:].mean(1) for matrix in (cosines, cosines.T)]

    def score(i: int, j: int) -> float:
        average = (averages[0][i] + averages[1][j]) / 2
        return float(cosines[i, j] / average if min(cosines[i, j], average) > 0 else cosines[i, j])

    negatives: list[tuple[list[str], list[str]]] = []
    known = {*pairs}
    for source, target in pairs:
        if source not in sides[0]:
            negatives.append(([], []))
            continue
        i, j = sides[0].index(source), sides[1].index(target)
        limit = settings.max_share * score(i, j)
        near = [np.argsort(-cosines[:, j])[:_NEIGHBOURS], np.argsort(-cosines[i])[:_NEIGHBOURS]]
        wrong = [[(score(n, j), sides[0][n]) for n in near[0] if (sides[0][n], target) not in known],
                 [(score(i, n), sides[1][n]) for n in near[1] if (source, sides[1][n]) not in known]]  # fmt: skip
        best = [sorted((pair for pair in pairs_of_side if pair[0] <= limit), reverse=True) for pairs_of_side in wrong]
        negatives.append(tuple([text for _, text in side[: settings.negatives]] for side in best))  # type: ignore[arg-type]
    return negatives


def test_negatives_are_those_of_a_slow_choice(data: dict[str, Path], tmp_path: Path) -> None:
    options: Any = {"negatives": 3, "max_share": 0.25}
    settings = MineNegativesSettings(**options)
    counts = _mine(data, tmp_path, **options)
    for language, path in data.items():
        pairs = [tuple(line.split("\t")) for line in path.read_text().splitlines()]
        records = _records(tmp_path, language)
        assert [(record["source"], record["target"]) for record in records] == pairs
        expected = _slow(pairs, settings)  # type: ignore[arg-type]
        assert [(record["source_negatives"], record["target_negatives"]) for record in records] == expected
        assert counts[language].pairs == len(pairs)
        assert counts[language].target_negatives == sum(len(targets) for _, targets in expected)
        assert counts[language].pairs_without_negatives == sum(not any(sides) for sides in expected)
    assert _records(tmp_path, "de")[-1]["target_negatives"] == []  # its source is too long


def test_pairs_that_all_have_a_long_side_get_no_negatives(tmp_path: Path) -> None:
    sides = [(f"a{i}", f"b{i} " + "b" * 1000) if i % 2 else (f"a{i} " + "a" * 1000, f"b{i}") for i in range(6)]
    (tmp_path / "de.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in sides))
    assert _mine({"de": tmp_path / "de.tsv"}, tmp_path)["de"].pairs_without_negatives == 6


def test_word_links_remain_and_earlier_negatives_are_replaced(tmp_path: Path) -> None:
    records = [{"source": f"a{i}", "target": f"b{i}"} | ({"links": "0-0"} if i % 2 else {}) for i in range(6)]
    lines = (json.dumps(record | {"target_negatives": ["b99"]}) for record in records)
    (tmp_path / "de.jsonl").write_text("\n".join(lines), "utf-8")
    _mine({"de": tmp_path / "de.jsonl"}, tmp_path)
    mined = _records(tmp_path, "de")
    assert all("b99" not in record.pop("target_negatives") and record.pop("source_negatives") for record in mined)
    assert mined == records


def test_pairs_in_memory_are_mined_and_the_counts_are_those_of_the_file(tmp_path: Path) -> None:
    records = [{"source": f"a{i}", "target": f"b{i}", "target_negatives": ["b98", "b99"]} for i in range(2)]
    again: Any = {"source": "a0", "target": "b1"}, {"source": "a1", "target": "b0"}  # all are translations
    counts = _mine({"de": [*records, *again]}, tmp_path)["de"]
    assert counts == NegativeCounts(pairs=4, source_negatives=0, target_negatives=0, pairs_without_negatives=4)
    assert _records(tmp_path, "de")[0]["target_negatives"] == []  # the earlier ones are replaced


def test_negatives_of_other_calls_in_the_folder_are_named(
    data: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _mine({"sw": data["de"]}, tmp_path)
    _mine(data, tmp_path)
    assert "also has sw.jsonl of other calls" in caplog.text


def test_a_lower_share_drops_more(data: dict[str, Path], tmp_path: Path) -> None:
    counts = [_mine(data, tmp_path, max_share=share, negatives=32)["de"].target_negatives for share in (0.95, 0.2)]
    assert counts[0] > counts[1]


def test_an_interrupted_run_encodes_only_what_is_missing(data: dict[str, Path], tmp_path: Path) -> None:
    _mine(data, tmp_path / "whole")
    first = Words(fail_after=60)
    with pytest.raises(KeyboardInterrupt):
        _mine(data, tmp_path / "half", first)
    assert not (tmp_path / "half" / "out" / "de.jsonl").exists()
    second = Words()
    _mine(data, tmp_path / "half", second)
    assert len(second.encoded) < len(set(first.encoded + second.encoded))
    for language in data:
        assert _records(tmp_path / "half", language) == _records(tmp_path / "whole", language)


def test_the_input_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "out" / "de.jsonl"
    file.parent.mkdir()
    file.write_text('{"source": "a1", "target": "b1", "note": "mine"}\n', "utf-8")
    with pytest.raises(OutputError, match=r"de\.jsonl would overwrite an input"):
        _mine({"de": file}, tmp_path)
    assert "mine" in file.read_text("utf-8")
    with pytest.raises(OutputError, match=r"de\.jsonl is a file, not a folder: choose another output"):
        mine_negatives({"de": file}, file, Words())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"negatives": 33}, "negatives 33 is not at least 1 and at most 32"),
        ({"max_share": 1.5}, "max_share 1.5 is not above 0 and at most 1"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        _mine({"de": tmp_path / "de.tsv"}, tmp_path, **settings)


def test_mined_negatives_are_trained_on(
    tmp_path: Path, encoder_folders: dict[str, Path], pairs: Pairs, caplog: pytest.LogCaptureFixture
) -> None:
    """As a user does: mine, then train; an interrupted run ends as the whole one."""
    run = Run(tmp_path, encoder_folders["bert"], pairs)
    files, model = [f"{code}={tmp_path}/{code}.tsv" for code in ("de", "fr")], run.settings["model"]
    flags = ["--model", model, "-o", f"{tmp_path}/negatives", "--max_share", "1", "--negatives", "2", "--device", "cpu"]
    assert main(["mine-negatives", *files, *flags]) == 0
    mined = [f"{code}={tmp_path}/negatives/{code}.jsonl" for code in ("de", "fr")]
    bitext = load_bitext(mined, cleaning=None, cache_dir=tmp_path / "cache")
    assert bitext.count_pairs_with(*NEGATIVES) > 8 and isinstance(bitext[0]["target_negatives"], list)
    objectives = {"translation_ranking": {"hard_negatives": 2, "symmetric": True}}
    run.assert_goes_on_exactly(data=mined, objectives=objectives, pairs_per_chunk=2, languages=["de", "fr", "en"])
    trainer = run.start("--overwrite", data=mined, objectives=objectives)
    plain = run.start("--overwrite", data=mined, objectives={"translation_ranking": {"symmetric": True}})
    batches = [next(iter(trained.get_train_dataloader())) for trained in (trainer, plain)]
    assert [sum("negative" in key for key in batch) for batch in batches] == [6, 0]
    assert trainer.state.log_history[1]["loss"] > plain.state.log_history[1]["loss"]
    with pytest.raises(RecipeError, match="no pair has any: train on the JSONL of hf-xsent mine-negatives"):
        run.start("--overwrite", objectives=objectives)


@pytest.mark.parametrize("negatives", ['"b"', "[1]", '[" "]', '{"a": 1}'])
def test_negatives_that_are_no_sentences_name_their_line(tmp_path: Path, negatives: str) -> None:
    path = tmp_path / "de.jsonl"
    lines = ['{"source": "a", "target": "b"}', '{"source": "a", "target": "c", "target_negatives": ' + negatives + "}"]
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"de.jsonl:2: target_negatives is not a list of sentences"):
        load_bitext({"de": path}, cleaning=None, cache_dir=tmp_path / "cache")
