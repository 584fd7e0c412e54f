from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModel

from hf_xsent import SentenceEmbedder
from hf_xsent.cli import main
from hf_xsent.errors import DataError
from hf_xsent.evaluation.analysis import project, sample_words, word_vectors


def test_a_word_is_the_mean_of_its_pieces(encoder_folders: dict[str, Path]) -> None:
    folder = encoder_folders["bert"]
    embedder = SentenceEmbedder.from_pretrained(str(folder), device="cpu")
    sentence = "The dog xyz."  # the tokenizer knows xyz by its letters alone
    words = word_vectors(embedder, ["Ich lese", sentence])
    assert words.texts == ["Ich", "lese", "The", "dog", "xyz", "."]
    assert words.sentences.tolist() == [0, 0, 1, 1, 1, 1]
    states = AutoModel.from_pretrained(folder).eval()(**embedder.tokenizer(sentence, return_tensors="pt"))
    expected = states.last_hidden_state[0].detach().numpy()
    np.testing.assert_allclose(words.vectors[4], expected[3:6].mean(0), atol=1e-5)
    pieces = word_vectors(embedder, [sentence], pieces=True)
    assert pieces.texts == ["The", "dog", "x", "y", "z", "."]
    np.testing.assert_allclose(pieces.vectors, expected[1:-1], atol=1e-5)


def test_words_are_encoded_after_the_models_prompt(tiny_encoders: Path) -> None:
    embedder = SentenceEmbedder.from_pretrained(str(tiny_encoders), device="cpu")
    longer = word_vectors(embedder, ["The cat: The dog xyz."])
    embedder.prompt = "The cat: "
    words = word_vectors(embedder, ["The dog xyz."])
    assert words.texts == ["The", "dog", "xyz", "."] == longer.texts[3:]
    np.testing.assert_allclose(words.vectors, longer.vectors[3:], atol=1e-5)
    pieces = word_vectors(embedder, ["The dog"], pieces=True)
    assert [text.strip() for text in pieces.texts] == ["The", "dog"]


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_projections_are_the_same_in_each_run_and_keep_groups_apart(method: str) -> None:
    generator = np.random.default_rng(0)
    vectors = np.vstack([generator.standard_normal((15, 8)) + 12 * side for side in (0, 1)])
    one, other = project(vectors, method), project(vectors, method)
    assert one.shape == (30, 2)
    np.testing.assert_array_equal(one, other)
    between = np.linalg.norm(one[:15].mean(0) - one[15:].mean(0))
    assert between > max(one[:15].std(0).max(), one[15:].std(0).max())


def test_a_projection_needs_four_vectors() -> None:
    with pytest.raises(DataError, match="at least four vectors, not 3"):
        project(np.ones((3, 3)), "pca")


def test_words_are_sampled_by_their_frequency() -> None:
    rare = [f"{left}{right}" for left in "abcdefghij" for right in "klmnopqrst"]
    sentences = [*["und die"] * 500, *rare, "हिन्दी 1998 !"] * 2
    words = sample_words(sentences, 20)
    assert len({*words}) == 20 and {"und", "die"} <= {*words}
    assert sample_words(sentences, 20) == words
    assert {*sample_words(sentences, 999)} == {"und", "die", "हिन्दी", *rare}, "numbers and punctuation are no words"
    with pytest.raises(DataError, match="no words to sample"):
        sample_words(["1998 !"], 5)


@pytest.fixture
def command(encoder_folders: dict[str, Path], pairs: list[tuple[str, str]], tmp_path: Path) -> list[str]:
    """Beside Tatoeba's German pairs and a bitext."""
    for side, name in enumerate(("deu", "eng")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (tmp_path / f"tatoeba.deu-eng.{name}").write_text(text, encoding="utf-8")
    (tmp_path / "train.tsv").write_text("Zucker Salz\tsugar salt\n" * 3, encoding="utf-8")
    data = ["--tatoeba", str(tmp_path), "--languages", "de", "--output", str(tmp_path / "words.svg")]
    return ["analyse", str(encoder_folders["bert"]), "--device", "cpu", *data]


@pytest.mark.parametrize("from_bitext", [False, True])
def test_the_command_plots_words_of_the_training_data(command: list[str], tmp_path: Path, from_bitext: bool) -> None:
    command += ["--layer", "0", "--words", "12", *(["--data", f"de={tmp_path / 'train.tsv'}"] * from_bitext)]
    assert main(command) == 0
    picture = (tmp_path / "words.svg").read_text("utf-8")
    assert ("Zucker" in picture and "salt" in picture) == from_bitext


def test_bitext_alone_is_no_analysis(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--data", "de=train.tsv"]) == 2
    assert "give --words N" in capsys.readouterr().err


def test_the_picture_shows_words_before_and_after(
    command: list[str], encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    command += ["--before", str(encoder_folders["xlm-roberta"])]
    assert main(command) == 0
    picture = (tmp_path / "words.svg").read_text("utf-8")
    titles = [one.text for one in ET.fromstring(picture).iter() if one.text and one.text.endswith(("pca", "tsne"))]
    assert titles == ["xlm-roberta, pca", "xlm-roberta, tsne", "bert, pca", "bert, tsne"]
    words = [one.text for one in ET.fromstring(picture).iter() if one.tag.endswith("title")]
    assert words and all(any(map(str.isalnum, word)) for word in words)  # no punctuation
    assert main(command) == 0
    assert (tmp_path / "words.svg").read_text("utf-8") == picture
