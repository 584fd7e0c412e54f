from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_xsent import align_words
from hf_xsent.cli import main
from hf_xsent.data.bitext import load_bitext
from hf_xsent.errors import DataError, OutputError
from hf_xsent.words import align
from hf_xsent.words.embedding import EmbeddingAligner

Pairs = list[tuple[str, str]]


@pytest.fixture
def bitext(tmp_path: Path, pairs: Pairs) -> Path:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(align, "PAIRS_PER_PART", 5)


def _align(bitext: Path, model: Path, name: str = "out.jsonl", **settings: Any) -> Path:
    output = bitext.with_name(name)
    align_words(bitext, output, model=model, language="de", **settings)
    return output


def test_links_are_written_as_jsonl_that_trains(bitext: Path, encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    output = _align(bitext, encoder_folders["bert"])
    records = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert [(record["source"], record["target"]) for record in records] == pairs
    loaded = load_bitext({"de": output}, cleaning=None, cache_dir=bitext.parent / "cache")
    assert [pair.get("links", "") for pair in loaded] == [record["links"] for record in records]
    assert loaded.count_pairs_with("links") == len(pairs)


def test_damaged_links_are_named(bitext: Path, encoder_folders: dict[str, Path]) -> None:
    _align(bitext, encoder_folders["bert"])
    file = next(bitext.parent.rglob("*.links"))
    file.write_text(file.read_text("utf-8").partition("\n")[0] + "\n", "utf-8")
    with pytest.raises(OutputError, match=r"\.links is missing or damaged \(1 lines, not 5\): delete it"):
        _align(bitext, encoder_folders["bert"])


def test_mined_negatives_remain(tmp_path: Path, encoder_folders: dict[str, Path]) -> None:
    record = {"source": "ein Hund", "target": "a dog", "source_negatives": ["eine Katze"]}
    bitext = tmp_path / "mined.jsonl"
    bitext.write_text(json.dumps(record | {"links": "1-1"}) + "\n", encoding="utf-8")
    aligned = json.loads(_align(bitext, encoder_folders["bert"]).read_text(encoding="utf-8"))
    assert aligned["links"] != "1-1" and aligned == record | {"links": aligned["links"]}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.jsonl.gz", "compressed file: .* without .gz"),
        ("folder", "cannot be written: name a file"),
        *((f"out{suffix}", "name the output .jsonl or .links") for suffix in (".tsv", ".csv", ".parquet")),
    ],
)
def test_an_output_that_cannot_be_is_refused_before_a_model_is_loaded(bitext: Path, name: str, message: str) -> None:
    before = bitext.read_bytes()
    bitext.with_name("folder").mkdir()
    with pytest.raises(OutputError, match=message):
        _align(bitext, Path("no such model"), name)
    assert bitext.read_bytes() == before


def test_a_bad_line_raises_before_a_model_is_loaded(bitext: Path) -> None:
    bitext.write_text(bitext.read_text(encoding="utf-8") + "no tab\n", encoding="utf-8")
    with pytest.raises(DataError, match="pairs.tsv:17"):
        _align(bitext, Path("no such model"))


def test_a_name_that_reads_as_json_lines_is_written_so(bitext: Path, encoder_folders: dict[str, Path]) -> None:
    output = _align(bitext, encoder_folders["bert"], "out.json")
    assert all(json.loads(line)["links"] for line in output.read_text(encoding="utf-8").splitlines())


def test_pharaoh_lines_are_the_same_links(bitext: Path, encoder_folders: dict[str, Path]) -> None:
    jsonl = _align(bitext, encoder_folders["bert"])
    lines = _align(bitext, encoder_folders["bert"], "out.links").read_text(encoding="utf-8").splitlines()
    assert lines == [json.loads(line)["links"] for line in jsonl.read_text(encoding="utf-8").splitlines()]


def test_a_stopped_run_continues(
    bitext: Path, encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _align(bitext, encoder_folders["bert"], "whole.links").read_text(encoding="utf-8")
    align, calls = EmbeddingAligner.align, []

    def stop_at_the_third(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return align(*arguments)

    monkeypatch.setattr(EmbeddingAligner, "align", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        _align(bitext, encoder_folders["bert"], "again.links")
    assert not bitext.with_name("again.links").exists()
    assert _align(bitext, encoder_folders["bert"], "again.links").read_text(encoding="utf-8") == whole
    assert len(calls) == 3 + 2  # of four parts two were there
    _align(bitext, encoder_folders["bert"], "again.links")
    assert len(calls) == 5


def test_a_full_disk_is_one_sentence_and_costs_no_finished_part(
    bitext: Path, encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, full_disk: None
) -> None:
    monkeypatch.setattr(align, "PAIRS_PER_PART", 2000)
    monkeypatch.setattr(EmbeddingAligner, "align", lambda _, sources, targets: [[(0, 0)]] * len(sources))
    bitext.write_text(bitext.read_text(encoding="utf-8") * 50, encoding="utf-8")
    with pytest.raises(OSError, match="File too large: .*out.jsonl"):
        _align(bitext, encoder_folders["bert"])
    assert not bitext.with_name("out.jsonl").exists()
    assert _align(bitext, encoder_folders["bert"], "out.links").stat().st_size == 4 * 800


def test_another_file_or_setting_is_aligned_again(bitext: Path, encoder_folders: dict[str, Path]) -> None:
    work = bitext.parent / "work"
    _align(bitext, encoder_folders["bert"], work=work)
    bitext.write_text(bitext.read_text(encoding="utf-8").replace("Hund", "Vogel"), encoding="utf-8")
    output = _align(bitext, encoder_folders["bert"], work=work)
    assert "Vogel" in output.read_text(encoding="utf-8")
    _align(bitext, encoder_folders["xlm-roberta"], work=work)
    assert len(list((work / "links").iterdir())) == 3
    for settings in ({"threshold": 0.3}, {"layer": 2}):  # the defaults
        _align(bitext, encoder_folders["bert"], work=work, **settings)
    assert len(list((work / "links").iterdir())) == 3
    for settings in ({"threshold": 0.4}, {"layer": 1}, {"precision": "bfloat16"}):
        _align(bitext, encoder_folders["bert"], work=work, **settings)
    assert len(list((work / "links").iterdir())) == 6


def test_processes_share_the_parts_and_the_first_writes(
    bitext: Path, encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = _align(bitext, encoder_folders["bert"], "alone.links").read_text(encoding="utf-8")
    monkeypatch.setenv("RANK", "1")
    output = _align(bitext, encoder_folders["bert"], "together.links")
    assert not output.exists()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(EmbeddingAligner, "align", lambda *_: pytest.fail("the other process has aligned all"))
    assert _align(bitext, encoder_folders["bert"], "together.links").read_text(encoding="utf-8") == alone


def test_the_command_line_aligns(
    bitext: Path, encoder_folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    output = bitext.with_name("out.jsonl")
    assert main(["align-words", str(bitext), "--model", str(encoder_folders["bert"]), "-o", str(output)]) == 0
    assert "16 pairs with links are in" in capsys.readouterr().out


def test_without_a_model_nothing_is_written(bitext: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = bitext.with_name("out.jsonl")
    assert main(["align-words", str(bitext), "-o", str(output)]) == 2
    assert "the embedding aligner needs a model" in capsys.readouterr().err
    assert [path.name for path in bitext.parent.iterdir()] == ["pairs.tsv"]
