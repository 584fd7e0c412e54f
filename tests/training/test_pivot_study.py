"""Many extractions over the same features: each is trained and measured once; what the analyses compare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hf_xsent.cli.main import main
from hf_xsent.data.sides import Sides
from hf_xsent.models.encodes import SupportsEncode
from hf_xsent.models.loading import load_tokenizer
from hf_xsent.training.pivot_study import (
    PivotStudy,
    ablations,
    layer_baselines,
    lines_of_layers,
    numbers_of_pairs,
    single_layers,
)

Pairs = list[tuple[str, str]]


def _study(folder: Path, encoder: Path, pairs: Pairs, calls: list[int]) -> PivotStudy:
    def measure(model: SupportsEncode) -> dict[str, float]:
        calls.append(1)
        return {"first": float(model.encode(["We eat bread."])[0, 0])}

    sides = {"de": pairs[:10], "fr": pairs[10:]}
    texts = {language: tuple(map(list, zip(*some, strict=True))) for language, some in sides.items()}
    return PivotStudy(
        str(encoder), load_tokenizer(str(encoder)), folder, Sides(texts), {"measure": measure}, max_steps=2,
        use_cpu=True, keep_freed_memory=False, per_device_train_batch_size=4,
    )  # fmt: skip


def test_what_is_done_is_not_done_again(encoder_folders: dict[str, Path], pairs: Pairs, tmp_path: Path) -> None:
    calls: list[int] = []
    variants = [*layer_baselines(3, 3), *ablations()[-3:], *numbers_of_pairs(["de", "fr"])]
    found = _study(tmp_path, encoder_folders["bert"], pairs, calls).run(variants)
    assert len(found) == len(variants) == len(calls) == 10
    assert len({round(one["first"], 6) for one in found.values()}) >= 8
    again = _study(tmp_path, encoder_folders["bert"], pairs, calls).run(variants)
    assert again == found and len(calls) == 10
    other = _study(tmp_path, encoder_folders["bert"], pairs[::-1], calls).run(variants)
    assert len(calls) == 17, "only what was trained on other pairs is made again"
    assert other != found


def test_the_analyses_are_the_paper_s() -> None:
    assert [one.name for one in ablations()][:4] == [
        "L_adversarial, mix",
        "L_adversarial, map",
        "L_adversarial, mix + map",
        "L_cycle, mix",
    ]
    assert len(ablations()) == 12
    assert [one.settings["layers"] for one in single_layers(24)][:7] == [[0], [4], [8], [12], [16], [20], [24]]
    assert [len(one.languages or ()) for one in numbers_of_pairs([*"abcdefghi"])] == [1, 2, 4, 8] * 2
    results = {one.name: {"x": 1.0} for one in (*layer_baselines(4)[:-1], *single_layers(4))}
    assert lines_of_layers(results, "x") == {
        way: {0: 1.0, 4: 1.0} for way in ("as it is", "supervised", "unsupervised")
    }


@pytest.fixture
def tatoeba(tmp_path: Path, pairs: Pairs) -> Path:
    folder = tmp_path / "tatoeba"
    folder.mkdir()
    from hf_xsent.data.benchmarks import tatoeba_groups

    for code in tatoeba_groups()["4"]:
        for number, side in ((0, code), (1, "eng")):
            text = "".join(pair[number] + "\n" for pair in pairs)
            (folder / f"tatoeba.{code}-eng.{side}").write_text(text, encoding="utf-8")
    return folder


def test_layers_are_drawn_from_the_command_line(
    encoder_folders: dict[str, Path], pairs: Pairs, tatoeba: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "de.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs), encoding="utf-8")
    flags = ["--model", str(encoder_folders["bert"]), "--tatoeba", str(tatoeba), "--group", "4", "--every", "3"]
    flags += ["--output_dir", str(tmp_path / "out"), "--max_length", "32", "--max_steps", "2"]
    plot = ["--data", f"de={tmp_path / 'de.tsv'}", "--plot", str(tmp_path / "layers.svg")]
    assert main(["dual-pivot", "layers", *flags, *plot]) == 0
    assert "unsupervised, layer 3" in capsys.readouterr().out
    assert (tmp_path / "layers.svg").read_text().count("<polyline") == 3
    assert len(json.loads((tmp_path / "out" / "layers.json").read_text())["results"]) == 6
    assert main(["dual-pivot", "baselines", *flags]) == 0
    assert main(["dual-pivot", "pairs", *flags]) == 2
    assert "give --data" in capsys.readouterr().err
