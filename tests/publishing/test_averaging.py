"""An export can be the mean of several models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from hf_xsent import SentenceEmbedder, export_sentence_transformer, pretrain
from hf_xsent.errors import ModelError
from hf_xsent.models.dual_pivot import DualPivotForSentenceEmbedding
from hf_xsent.models.pretraining import AlignmentForSentenceEmbedding
from hf_xsent.publishing.facts import ModelFacts, Stage
from hf_xsent.publishing.model_card import facts_of_mean


def test_the_average_of_models_is_an_export_with_the_mean_of_their_weights(
    tmp_path: Path, encoder_folders: dict[str, Path]
) -> None:
    folder, other = encoder_folders["bert"], tmp_path / "other"
    shutil.copytree(folder, other)
    weights = load_file(folder / "model.safetensors")
    save_file({name: 3 * weight for name, weight in weights.items()}, other / "model.safetensors", {"format": "pt"})
    export_sentence_transformer(str(folder), tmp_path / "mean", average=[str(other)])
    for twice in ([str(folder), str(other)], [str(other), f"{other}/"]):
        with pytest.raises(
            ModelError, match="average names a model twice, or .* itself: name each of the other models"
        ):
            export_sentence_transformer(str(folder), tmp_path / "double", average=twice)
    for name, weight in SentenceEmbedder.from_pretrained(str(tmp_path / "mean")).model.encoder.named_parameters():
        torch.testing.assert_close(weight.detach(), 2 * weights[name.removeprefix("bert.")])


def test_adapters_are_merged_before_models_are_averaged(tmp_path: Path, encoder_folders: dict[str, Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"])
    merged = []
    for name in ("first", "second"):
        model = AlignmentForSentenceEmbedding.from_backbone(
            str(encoder_folders["bert"]), pooling="mean", max_length=16, lora_rank=2
        )
        with torch.no_grad():
            for key, weight in model.named_parameters():
                weight.add_(0.3 * torch.randn_like(weight) * ("lora" in key))
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        model.merge_adapters()
        merged.append(dict(model.named_parameters()))
    export_sentence_transformer(str(tmp_path / "first"), tmp_path / "mean", average=[str(tmp_path / "second")])
    mean = dict(SentenceEmbedder.from_pretrained(str(tmp_path / "mean")).model.named_parameters())
    for key, weight in merged[0].items():
        torch.testing.assert_close(mean[key], (weight + merged[1][key]) / 2, atol=1e-6, rtol=0)


def test_linear_layers_after_pooling_are_averaged_too(tmp_path: Path, encoder_folders: dict[str, Path]) -> None:
    data = tmp_path / "de.tsv"
    data.write_text("".join(f"Satz {number} .\tsentence {number * 7} !\n" for number in range(40)))
    folder = str(encoder_folders["bert"])
    export_sentence_transformer(folder, tmp_path / "plain")
    export_sentence_transformer(folder, tmp_path / "mapped", remove_language=[f"de={data}"])
    mapped = str(tmp_path / "mapped")
    shutil.copytree(mapped, tmp_path / "same")
    export_sentence_transformer(mapped, tmp_path / "mean", average=[str(tmp_path / "same")])
    dense = [load_file(tmp_path / name / "2_Dense/model.safetensors") for name in ("mapped", "mean")]
    torch.testing.assert_close(*dense)
    with pytest.raises(ModelError, match="different weights"):
        export_sentence_transformer(mapped, tmp_path / "other", average=[str(tmp_path / "plain")])


def test_models_of_different_encoders_are_not_averaged(tmp_path: Path, encoder_folders: dict[str, Path]) -> None:
    bert, xlm_roberta = (str(encoder_folders[name]) for name in ("bert", "xlm-roberta"))
    with pytest.raises(ModelError, match="different weights: average models of the same encoder"):
        export_sentence_transformer(bert, tmp_path / "mean", average=[xlm_roberta])
    assert not (tmp_path / "mean").exists()


def test_mixes_of_different_layers_are_not_averaged(tmp_path: Path, encoder_folders: dict[str, Path]) -> None:
    for layer in (1, 3):
        model = DualPivotForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), layers=[layer])
        model.save_pretrained(tmp_path / str(layer))
        AutoTokenizer.from_pretrained(encoder_folders["bert"]).save_pretrained(tmp_path / str(layer))
    with pytest.raises(ModelError, match="different pooling, normalization, layers, prompts or tokenizers"):
        export_sentence_transformer(str(tmp_path / "1"), tmp_path / "mean", average=[str(tmp_path / "3")])


def test_models_whose_tokenizers_normalize_differently_are_not_averaged(
    tmp_path: Path, encoder_folders: dict[str, Path]
) -> None:
    shutil.copytree(encoder_folders["bert"], tmp_path / "other")
    file = tmp_path / "other" / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    tokenizer["normalizer"] = None if tokenizer["normalizer"] else {"type": "Lowercase"}
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(ModelError, match="different pooling, normalization, layers, prompts or tokenizers"):
        export_sentence_transformer(str(encoder_folders["bert"]), tmp_path / "mean", average=[str(tmp_path / "other")])


@pytest.mark.parametrize("default", ["usual", None])
def test_models_of_different_prompts_are_not_averaged(
    tmp_path: Path, encoder_folders: dict[str, Path], default: str | None
) -> None:
    folder = str(encoder_folders["bert"])
    for name, prompt in (("first", "query: "), ("second", "passage: "), ("same", "query: ")):
        prompts = {"usual" if default else "passage": prompt} | ({"document": ""} if name == "same" else {})
        settings = {"prompts": prompts, "default_prompt_name": default}
        AlignmentForSentenceEmbedding.from_backbone(folder, **settings).save_pretrained(tmp_path / name)
    export_sentence_transformer(str(tmp_path / "first"), tmp_path / "equal", average=[str(tmp_path / "same")])
    with pytest.raises(ModelError, match="different pooling, normalization, layers, prompts or tokenizers"):
        export_sentence_transformer(str(tmp_path / "first"), tmp_path / "mean", average=[str(tmp_path / "second")])


@pytest.mark.parametrize(("stated", "length"), [({}, 16), ({"max_length": 20}, 20)])
def test_the_mean_has_the_length_of_the_model_or_the_stated_length(
    tmp_path: Path, encoder_folders: dict[str, Path], stated: dict[str, int], length: int
) -> None:
    for each in (16, 24):
        model = AlignmentForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), max_length=each)
        model.save_pretrained(tmp_path / str(each))
    folder = export_sentence_transformer(
        str(tmp_path / "16"), tmp_path / "mean", average=[str(tmp_path / "24")], **stated
    )
    assert SentenceEmbedder.from_pretrained(str(folder)).max_length == length


@pytest.mark.parametrize("normalize", [True, False])
def test_the_mean_has_the_normalization_of_the_models_and_a_stated_width(
    tmp_path: Path, encoder_folders: dict[str, Path], normalize: bool
) -> None:
    model = AlignmentForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]))
    model.save_pretrained(tmp_path / "first")
    model.config.normalize = normalize
    folder = export_sentence_transformer(model, tmp_path / "second", dim=8)
    start, other = str(tmp_path / "first"), [str(folder)]
    if normalize:
        with pytest.raises(ModelError, match="normalization"):
            export_sentence_transformer(start, tmp_path / "mean", average=other)
    else:
        mean = export_sentence_transformer(start, tmp_path / "mean", average=other, dim=16)
        assert SentenceEmbedder.from_pretrained(str(mean)).width == 16


def test_a_loaded_model_is_not_averaged(tmp_path: Path, encoder_folders: dict[str, Path]) -> None:
    model = AlignmentForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), pooling="mean")
    with pytest.raises(ModelError, match="save this one"):
        export_sentence_transformer(model, tmp_path / "mean", average=[str(encoder_folders["bert"])])


def test_the_card_of_an_average_counts_the_pairs_of_all_models(
    tmp_path: Path, encoder_folders: dict[str, Path], pairs: list[tuple[str, str]]
) -> None:
    options: Any = {"max_steps": 1, "per_device_train_batch_size": 4, "max_length": 16, "clean": False, "dev_pairs": 0}
    options |= {"eval_strategy": "no", "use_cpu": True}
    for name, code, licence, some in (("first", "de", "CC0", pairs[:8]), ("second", "fr", "CC-BY-NC-4.0", pairs[8:])):
        file = tmp_path / f"{code}.tsv"
        rows = "".join(f"{source}\t{target}\t{licence}\n" for source, target in some)
        file.write_text(f"source\ttarget\tlicence\n{rows}", encoding="utf-8")
        start = str(encoder_folders["bert"])
        pretrain(model=start, data={code: str(file)}, output_dir=str(tmp_path / name), **options)
    runs = [str(tmp_path / "first"), str(tmp_path / "second")]
    for start, *others in (runs, [str(encoder_folders["bert"]), *runs]):
        folder = export_sentence_transformer(
            start, tmp_path / "mean", average=others, max_length=16, verify=False, overwrite=True
        )
        card = (folder / "README.md").read_text("utf-8")
        assert "| origin not stated, CC-BY-NC-4.0 | 8 |\n| origin not stated, CC0 | 8 |" in card
        assert "| fr | 8 |\n| de | 8 |" in card
        assert "Languages: de, en, fr." in card
        assert "Recipe and steps are those of first" in card
    pretrain(model=str(folder), data={"de": pairs}, output_dir=str(tmp_path / "third"), **options)
    models = ", ".join(ModelFacts.read(folder).averaged)
    counts = "a pair is counted for each that was trained on it"
    continued = f"continued the training of mean (the mean of {models}; {counts}): pairs"
    assert continued in (tmp_path / "third/README.md").read_text("utf-8")


def test_the_card_of_an_average_of_models_of_others_names_them(
    tmp_path: Path, encoder_folders: dict[str, Path]
) -> None:
    for name in "ab":
        shutil.copytree(encoder_folders["bert"], tmp_path / name)
    folder = export_sentence_transformer(tmp_path / "a", tmp_path / "mean", average=[str(tmp_path / "b")])
    card = (folder / "README.md").read_text("utf-8")
    assert "## Training" in card and "\nThe weights are the mean of those of a, b.\n" in card


def test_runs_of_a_study_are_named_by_what_differs(tmp_path: Path) -> None:
    folders = [str(tmp_path / "runs" / name / "training") for name in "ab"]
    for folder in folders:
        Path(folder).mkdir(parents=True)
        ModelFacts(stages=[Stage(recipe={"method": "dap"}, pairs={"de": 1})], languages=["de"]).write(folder)
    facts = facts_of_mean(folders)
    (mean,) = facts.sentences()
    assert facts.pairs == {"de": 2}
    assert "the mean of those of a/training, b/training. Recipe and steps are those of a/training;" in mean
