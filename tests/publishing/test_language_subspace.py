"""Test the linear layer that removes the language from embeddings."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import TrainingArguments

from hf_xsent import AlignmentTrainer, SentenceEmbedder, export_sentence_transformer, load_bitext
from hf_xsent.cli import main
from hf_xsent.errors import DataError, ModelError, RecipeError
from hf_xsent.models.dual_pivot import DualPivotForSentenceEmbedding
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.publishing.facts import ModelFacts
from hf_xsent.publishing.language_subspace import TEXTS, read_texts
from hf_xsent.training.retention import average_with_start, starting_weights

TEXTS_OF = {
    "de": ["der hund", "ein hund und die katze", "das haus"],
    "fr": ["le chien", "un chien et le chat", "la maison est la"],
    "sw": ["mbwa", "mbwa na paka wa nyumba", "nyumba"],
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for language, texts in TEXTS_OF.items():
        (tmp_path / f"{language}.txt").write_text("\n".join(texts), encoding="utf-8")
    return [f"{language}={tmp_path / language}.txt" for language in TEXTS_OF]


def _exported(encoder: Path, tmp_path: Path, files: list[str]) -> Path:
    return export_sentence_transformer(str(encoder), str(tmp_path / "out"), remove_language=files)


def test_the_card_has_the_languages_that_were_removed(tiny_encoders: Path, tmp_path: Path, files: list[str]) -> None:
    card = ModelCard.load(str(_exported(tiny_encoders, tmp_path, files) / "README.md"))
    assert card.data.language == ["de", "fr", "sw"]
    removed = "The language was removed from its embeddings by a linear layer (`hf-xsent export --remove_language`, "
    assert f"{removed}texts in de, fr, sw)." in card.content
    run = tmp_path / "run"
    (tmp_path / "pairs.tsv").write_text("ein hund\ta dog\neine katze\ta cat\n" * 4, "utf-8")
    command = f"pretrain --model {tmp_path / 'out'} --data de={tmp_path / 'pairs.tsv'} --output {run} --max_steps 1"
    assert main([*command.split(), "--dev_pairs", "0", "--clean", "false"]) == 0
    trained = ModelCard.load(str(run / "README.md")).content
    assert f"{removed}texts in de, fr, sw)." in trained


def _with_tanh(encoder: str, folder: Path) -> str:
    from sentence_transformers.models import Dense, Pooling, Transformer

    from sentence_transformers import SentenceTransformer

    SentenceTransformer(modules=[Transformer(encoder), Pooling(32), Dense(32, 32)], device="cpu").save(str(folder))
    return str(folder)


def test_all_languages_have_the_same_mean_and_what_is_left_is_unchanged(
    tiny_encoders: Path, tmp_path: Path, files: list[str], sentences: list[str]
) -> None:
    """Three languages differ in two directions, which are removed; the others are those of the start, centered."""
    from sentence_transformers import SentenceTransformer

    before = SentenceEmbedder.from_pretrained(str(tiny_encoders), device="cpu")
    after = SentenceTransformer(str(_exported(tiny_encoders, tmp_path, files)), device="cpu")
    means = np.stack([after.encode(texts).mean(0) for texts in TEXTS_OF.values()])
    np.testing.assert_allclose(means, 0, atol=1e-5)
    old = np.stack([before.encode(texts).mean(0) for texts in TEXTS_OF.values()])
    basis = np.linalg.qr((old[1:] - old[:1]).T)[0]
    centered = before.encode(sentences) - old.mean(0)
    np.testing.assert_allclose(after.encode(sentences), centered - centered @ basis @ basis.T, atol=1e-5)
    ours = SentenceEmbedder.from_pretrained(str(tmp_path / "out"), device="cpu")
    np.testing.assert_allclose(ours.encode(sentences), after.encode(sentences), atol=1e-5)


def test_a_model_in_memory_stays_as_it_was(
    encoder_folders: dict[str, Path], tmp_path: Path, files: list[str], sentences: list[str]
) -> None:
    model = SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"])).eval()
    before = model.encode(sentences)
    export_sentence_transformer(model, str(tmp_path / "out"), remove_language=files)
    assert model.linear_map is None
    np.testing.assert_array_equal(model.encode(sentences), before)


def test_the_start_s_share_includes_the_layer(
    encoder_folders: dict[str, Path], tmp_path: Path, files: list[str]
) -> None:
    folder = _exported(encoder_folders["bert"], tmp_path, files)
    model = SentenceEncoderForPreTraining.from_backbone(str(folder))
    start, weight = starting_weights(model), model.linear_map.weight.detach().clone()
    with torch.no_grad():
        model.linear_map.weight += 1
    average_with_start(model, start, 0.25)
    torch.testing.assert_close(model.linear_map.weight.detach(), weight + 0.75)


@pytest.mark.parametrize("truncated", [False, True])
def test_embeddings_may_be_truncated(
    encoder_folders: dict[str, Path], tmp_path: Path, files: list[str], truncated: bool
) -> None:
    from sentence_transformers import SentenceTransformer

    start = str(encoder_folders["bert"])
    if truncated:  # at the start already
        start = str(export_sentence_transformer(start, str(tmp_path / "start"), dim=16))
    dim = None if truncated else 16
    folder = export_sentence_transformer(start, str(tmp_path / "out"), remove_language=files, dim=dim)
    opened = SentenceTransformer(str(folder), device="cpu")
    means = np.stack([opened.encode(texts).mean(0) for texts in TEXTS_OF.values()])
    assert means.shape == (3, 16)
    np.testing.assert_allclose(means, 0, atol=1e-5)


def test_results_of_a_run_are_not_those_of_its_export_without_language(
    exported: Path, tmp_path: Path, files: list[str]
) -> None:
    """Nor if an export of the run is exported again."""
    ModelFacts(name="mine", exported_from="the run").write(exported)
    again = export_sentence_transformer(exported, tmp_path / "out", remove_language=files)
    assert ModelFacts.read(again).exported_from == ""
    assert ModelFacts.read(export_sentence_transformer(exported, tmp_path / "same")).exported_from != "the run"


@pytest.mark.slow
@pytest.mark.parametrize("tanh", [False, True])
def test_a_card_has_the_code_of_runtimes_that_apply_the_layer(
    encoder_folders: dict[str, Path], tmp_path: Path, files: list[str], tanh: bool
) -> None:
    onnx, openvino = (find_spec(name) is not None for name in ("onnxruntime", "openvino"))
    encoder, removed = str(encoder_folders["bert"]), files
    if tanh:
        encoder, removed = _with_tanh(encoder, tmp_path / "tanh"), []
    folder = export_sentence_transformer(
        encoder,
        str(tmp_path / "out"),
        remove_language=removed,
        onnx="float32" if onnx else None,
        openvino=onnx and openvino,
        check=True,
    )
    card = (folder / "README.md").read_text("utf-8")
    assert "mapped by a linear layer (the module Dense)" in card
    shown = {title for title in re.findall("<summary>(.*?):", card)}
    applying = {"LangChain", "Infinity"} | ({"ONNX Runtime", "transformers.js"} if onnx else set())
    applying |= {"OpenVINO"} if onnx and openvino else set()
    assert shown == applying
    checked = json.loads((folder / "runtimes.json").read_text("utf-8"))
    assert {each["runtime"] for each in checked} <= {"sentence-transformers", *applying}


def test_an_export_of_an_encoder_that_was_not_trained_is_published_with_what_its_card_must_state(
    encoder_folders: dict[str, Path], tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _exported(encoder_folders["bert"], tmp_path, files)
    command = ["publish", str(folder), "org/neutral", "--dry_run"]
    assert main(command) == 2 and "README.md states no license and no " in capsys.readouterr().err
    assert main([*command, "--license", "mit", "--base_model", "org/start", "--languages", "de", "fr"]) == 0
    card = (folder / "README.md").read_text("utf-8")
    assert "It started from [org/start]" in card and "## Training" not in card


@pytest.mark.parametrize("loaded", [False, True])
def test_training_continues_with_the_layer(
    encoder_folders: dict[str, Path], tmp_path: Path, files: list[str], sentences: list[str], loaded: bool
) -> None:
    """The start, the trained model and the saved one embed through the layer, which trains with the encoder."""
    from sentence_transformers import SentenceTransformer

    folder = _exported(encoder_folders["bert"], tmp_path, files)
    start = SentenceTransformer(str(folder), device="cpu")
    kind = SentenceEncoderForPreTraining
    model = kind.from_sentence_transformer(start) if loaded else kind.from_backbone(str(folder))
    np.testing.assert_allclose(model.encode(sentences), start.encode(sentences), atol=1e-5)
    before = model.linear_map.weight.clone()
    data = load_bitext({"fr": [("le chien", "the dog"), ("un chat", "a cat"), ("la maison", "the house")] * 8})
    arguments = TrainingArguments(
        str(tmp_path / "run"), max_steps=2, learning_rate=1e-2, report_to="none", save_strategy="no", use_cpu=True
    )
    AlignmentTrainer(model=model, args=arguments, train_dataset=data).train()
    model.save_pretrained(tmp_path / "saved")
    assert (model.linear_map.weight - before).abs().max() > 1e-3
    for opened in (SentenceTransformer, kind.from_pretrained):
        np.testing.assert_allclose(
            opened(str(tmp_path / "saved")).encode(sentences), model.encode(sentences), atol=1e-5
        )


def test_a_second_layer_is_merged_with_the_first(
    encoder_folders: dict[str, Path], tmp_path: Path, files: list[str], sentences: list[str]
) -> None:
    first = _exported(encoder_folders["bert"], tmp_path, files[:2])
    second = export_sentence_transformer(str(first), str(tmp_path / "second"), remove_language=files[1:])
    assert "texts in de, fr, sw)" in (second / "README.md").read_text("utf-8")
    second = export_sentence_transformer(str(first), str(tmp_path / "second"), remove_language=files, overwrite=True)
    embedder = SentenceEmbedder.from_pretrained(str(second), device="cpu")
    means = np.stack([embedder.encode(texts).mean(0) for texts in TEXTS_OF.values()])
    np.testing.assert_allclose(means, 0, atol=1e-5)


def test_one_language_and_a_layer_with_an_activation_are_refused(
    encoder_folders: dict[str, Path], tmp_path: Path, files: list[str]
) -> None:
    encoder = str(encoder_folders["bert"])
    with pytest.raises(ModelError, match="ends in a layer with an activation"):
        export_sentence_transformer(
            _with_tanh(encoder, tmp_path / "tanh"), str(tmp_path / "out"), remove_language=files
        )
    (tmp_path / "it.txt").write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="the files of it have no text"):
        export_sentence_transformer(
            encoder, str(tmp_path / "empty"), remove_language=[*files, f"it={tmp_path / 'it.txt'}"]
        )
    with pytest.raises(RecipeError, match="gguf files cannot have the linear layer"):
        export_sentence_transformer(encoder, str(tmp_path / "gguf"), remove_language=files, gguf=["q8_0"])
    model = DualPivotForSentenceEmbedding.from_backbone(encoder)
    with pytest.raises(ModelError, match="remove_language does not support dual pivot"):
        export_sentence_transformer(model, str(tmp_path / "pivot"), remove_language=files)
    with pytest.raises(DataError, match="needs texts of two languages or more, not only of de"):
        export_sentence_transformer(encoder, str(tmp_path / "one"), remove_language=files[:1])


def test_the_layer_is_part_of_onnx_files(encoder_folders: dict[str, Path], tmp_path: Path, files: list[str]) -> None:
    pytest.importorskip("onnxruntime")
    from hf_xsent.publishing.onnx import OnnxEncoder, export_onnx

    folder = _exported(encoder_folders["bert"], tmp_path, files)
    export_onnx(folder)
    expected = SentenceEmbedder.from_pretrained(str(folder), device="cpu").encode(TEXTS_OF["de"])
    np.testing.assert_allclose(OnnxEncoder(folder).encode(TEXTS_OF["de"]), expected, atol=1e-4)


def test_texts_are_lines_or_both_sides_of_pairs(tmp_path: Path) -> None:
    for language in ("de", "fr"):
        rows = [f"{language}, {number}.\ten, {language} {number}.\n" for number in range(TEXTS + 100)]
        (tmp_path / f"{language}-en.tsv").write_text("".join(rows), encoding="utf-8")
    (tmp_path / "sw.txt").write_text("moja\n\nmbili\n", encoding="utf-8")
    (tmp_path / "fr-en.tsv").rename(tmp_path / "fr.txt")  # pairs all the same, as for pretrain
    assert {*read_texts([f"de={tmp_path}/de-en.tsv"], "fr")} == {"de", "fr"}
    with pytest.raises(DataError, match="en and eng are codes of one language"):
        read_texts([f"{tmp_path}/de-en.tsv", f"eng={tmp_path}/sw.txt"])
    texts = read_texts([f"de={tmp_path}/de-en.tsv", f"fr={tmp_path}/fr.txt", f"sw={tmp_path}/sw.txt"])
    assert {language: len(lines) for language, lines in texts.items()} == {"de": TEXTS, "fr": TEXTS, "sw": 2, "en": 132}
    assert texts["de"][0] == "de, 0." and texts["sw"] == ["moja", "mbili"]
    assert {text.split()[1] for text in texts["en"]} == {"de", "fr"}
    (tmp_path / "news.en.txt").write_text("A dog.\n", encoding="utf-8")
    texts = read_texts([f"de={tmp_path}/de-en.tsv"] * 5 + [f"en={tmp_path}/news.en.txt"])
    assert len(texts["de"]) == TEXTS and len(texts["en"]) <= TEXTS and texts["en"][-1] == "A dog."
    (tmp_path / "news.sw.txt").write_text("Mbwa.\n", encoding="utf-8")
    assert {*read_texts([f"{tmp_path}/news.sw.txt", f"{tmp_path}/news.en.txt"])} == {"sw", "en"}


def test_languages_with_the_same_texts_are_refused(tmp_path: Path, encoder_folders: dict[str, Path]) -> None:
    (tmp_path / "texts.txt").write_text("A dog.\nA cat.\n")
    files = [f"{code}={tmp_path}/texts.txt" for code in ("de", "en")]
    with pytest.raises(DataError, match="de and en have the same texts"):
        export_sentence_transformer(str(encoder_folders["bert"]), tmp_path / "out", remove_language=files)
    assert not (tmp_path / "out").exists()
