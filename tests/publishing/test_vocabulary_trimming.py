"""A trimmed model has the same embeddings for texts whose pieces remain; other texts are segmented again."""

from __future__ import annotations

import json
import shutil
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from hf_xsent import SentenceEmbedder, align_words, export_gguf, export_sentence_transformer, pretrain
from hf_xsent.cli import main
from hf_xsent.errors import DataError, ModelError, OutputError, RecipeError
from hf_xsent.finetuning.mlqa import SpanExtraction
from hf_xsent.models.pretraining import AlignmentForSentenceEmbedding
from hf_xsent.publishing.facts import ModelFacts, Stage
from hf_xsent.publishing.trimmed_tokenizer import PieceTable, trim_tokenizer
from hf_xsent.publishing.vocabulary_trimming import choose_pieces, trim_vocabulary, word_shares

Pairs = list[tuple[str, str]]


def _byte_tokenizer(pairs: Pairs, add_prefix_space: bool = True) -> PreTrainedTokenizerFast:
    """RoBERTa's kind: BPE over bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([sentence for pair in pairs for sentence in pair], trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {
        "bos_token": "<s>",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", model_max_length=64, **names
    )


def _character_tokenizer(pairs: Pairs, affix: str) -> PreTrainedTokenizerFast:
    """HerBERT's kind: BPE over characters, with a mark at the end of a word; or inside, as WordPiece has it."""
    affixes = {affix: {"end_of_word_suffix": "</w>", "continuing_subword_prefix": "##"}[affix]}
    special = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", **affixes))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    alphabet = {character for pair in pairs for sentence in pair for character in sentence}
    texts = [sentence for pair in pairs for sentence in (*pair, *alphabet, *(f"{each}a{each}" for each in alphabet))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False, **affixes)
    tokenizer.train_from_iterator(texts, trainer)
    names = {f"{name[1:-1].lower()}_token": name for name in special}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


@pytest.fixture(params=["wordpiece", "unigram", "bpe", "end_of_word_suffix", "continuing_subword_prefix"])
def tokenizer(request: pytest.FixtureRequest, pairs: Pairs) -> PreTrainedTokenizerBase:
    if request.param in ("end_of_word_suffix", "continuing_subword_prefix"):
        return _character_tokenizer(pairs, request.param)
    if request.param == "bpe":
        return _byte_tokenizer(pairs)
    return request.getfixturevalue(f"{request.param}_tokenizer")


def _pieces(tokenizer: PreTrainedTokenizerBase, text: str) -> list[str]:
    return tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])


def test_texts_whose_pieces_stay_are_segmented_as_before(tokenizer: PreTrainedTokenizerBase, pairs: Pairs) -> None:
    german = [source for source, _ in pairs[:4]]
    table = PieceTable(tokenizer)
    selected = choose_pieces(table, word_shares(tokenizer, {"de": german}))
    trimmed, old = trim_tokenizer(tokenizer, selected)
    assert len(trimmed) == len(old) < len(tokenizer)
    for text in german:
        assert _pieces(trimmed, text) == _pieces(tokenizer, text)
        assert [old[number] for number in trimmed(text)["input_ids"]] == tokenizer(text)["input_ids"]
    two = (german[0], german[1])
    assert [old[number] for number in trimmed(*two)["input_ids"]] == tokenizer(*two)["input_ids"]


@pytest.mark.parametrize("prompt", ["Wo ", "Wo"])
@pytest.mark.parametrize("prefix", [False, True])
def test_texts_are_segmented_as_before_with_a_prompt_and_without(
    pairs: Pairs, tmp_path: Path, prompt: str, prefix: bool
) -> None:
    """BPE has other pieces for a word that follows a space or a letter."""
    texts = [source for source, _ in pairs[:4]]
    tokenizer = _byte_tokenizer([(f"{prompt}{source}", source) for source in texts] * 9, prefix)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    encoder = RobertaModel(RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=130, **sizes))
    encoder.save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    model = AlignmentForSentenceEmbedding.from_backbone(str(tmp_path / "encoder"), prompts={"query": prompt})
    model.save_pretrained(tmp_path / "run")
    trim_vocabulary(str(tmp_path / "run"), tmp_path / "trimmed", {"texts": texts})
    assert json.loads((tmp_path / "trimmed" / "training.json").read_text("utf-8")).get("languages") is None
    assert "word pieces, by texts." in (tmp_path / "trimmed" / "README.md").read_text("utf-8")
    trimmed = AutoTokenizer.from_pretrained(tmp_path / "trimmed")
    for text in (start + text for start in ("", prompt) for text in texts):
        assert _pieces(trimmed, text) == _pieces(tokenizer, text)


def test_pieces_that_words_pass_through_stay() -> None:
    """The merges list two splits of abc: zabc takes b + c and a + bc, not the one that is listed first."""
    merges = [("b", "c"), ("ab", "c"), ("a", "bc"), ("z", "a"), ("a", "b")]
    vocabulary = {piece: number for number, piece in enumerate(["z", "a", "b", "c", "ab", "bc", "za", "abc"])}
    backend = Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    assert _pieces(tokenizer, "zabc za") == ["z", "abc", "za"]
    selected = choose_pieces(PieceTable(tokenizer), word_shares(tokenizer, {"de": ["zabc za"]}))
    trimmed, _ = trim_tokenizer(tokenizer, selected)
    assert _pieces(trimmed, "zabc za") == ["z", "abc", "za"] and len(trimmed) == len(tokenizer) - 1


def test_texts_with_added_tokens_are_segmented_as_before(tokenizer: PreTrainedTokenizerBase, pairs: Pairs) -> None:
    tokenizer = deepcopy(tokenizer)
    tokenizer.add_tokens(["covid"])
    texts = [f"covid{word}" for source, _ in pairs for word in source.split()]
    selected = choose_pieces(PieceTable(tokenizer), word_shares(tokenizer, {"de": texts}))
    trimmed, _ = trim_tokenizer(tokenizer, selected)
    assert len(trimmed) < len(tokenizer)
    for text in texts:
        assert _pieces(trimmed, text) == _pieces(tokenizer, text)


def test_other_texts_are_segmented_into_the_remaining_pieces(tokenizer: PreTrainedTokenizerBase, pairs: Pairs) -> None:
    table = PieceTable(tokenizer)
    selected = choose_pieces(table, word_shares(tokenizer, {"de": [pairs[0][0]]}))
    trimmed, _ = trim_tokenizer(tokenizer, selected)
    for text in ("The station is a good book.", "Wo ist der Bahnhof?"):
        pieces = _pieces(trimmed, text)
        assert len(pieces) > len(_pieces(tokenizer, text))
        assert trimmed.unk_token not in pieces
    assert {name: getattr(trimmed, name) for name in ("pad_token", "cls_token", "mask_token", "unk_token")} == {
        name: getattr(tokenizer, name) for name in ("pad_token", "cls_token", "mask_token", "unk_token")
    }
    assert _pieces(trimmed, f"a {trimmed.mask_token} b").count(trimmed.mask_token) == 1
    assert trimmed.pad_token_id == trimmed.convert_tokens_to_ids(trimmed.pad_token)


def test_the_number_of_pieces_is_at_most_the_given_one(tokenizer: PreTrainedTokenizerBase, pairs: Pairs) -> None:
    texts = {"de": [source for source, _ in pairs], "en": [target for _, target in pairs]}
    table, words = PieceTable(tokenizer), word_shares(tokenizer, texts)
    occurring = choose_pieces(table, words)
    size = len(occurring) - 25 if table.unknown is None else 200
    selected = choose_pieces(table, words, size)
    trimmed, old = trim_tokenizer(tokenizer, selected)
    assert size - 3 <= len(old) == len(trimmed) <= size
    assert not any(trimmed.unk_token in _pieces(trimmed, text) for some in texts.values() for text in some)
    assert choose_pieces(table, words, 10**6) <= occurring
    with pytest.raises(ModelError, match="^5 pieces are too few: special tokens and characters alone are "):
        choose_pieces(table, words, 5)


@pytest.mark.parametrize("kind", ["bytes", "characters"])
def test_added_tokens_that_are_built_by_merges_count_once(kind: str, pairs: Pairs) -> None:
    tokenizer = _byte_tokenizer(pairs) if kind == "bytes" else _character_tokenizer(pairs, "end_of_word_suffix")
    built = [piece for piece in tokenizer.get_vocab() if len(piece) > 4 and piece.isalpha()]
    tokenizer.add_tokens([AddedToken(piece, normalized=False) for piece in built])
    table, words = PieceTable(tokenizer), word_shares(tokenizer, {"de": [source for source, _ in pairs]})
    size = len(choose_pieces(table, words)) - 5
    assert len(built) > 3
    for least in (size, len(choose_pieces(table, {"a": 1.0}))):
        _, old = trim_tokenizer(tokenizer, choose_pieces(table, words, least))
        assert len(old) <= least


def test_a_tokenizer_that_splits_no_words_has_the_length_of_its_texts(pairs: Pairs, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    sentences = [source for source, _ in pairs]
    words = [f"▁{word}" for sentence in sentences for word in sentence.split()]
    special = ["<pad>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(words, trainers.BpeTrainer(vocab_size=300, special_tokens=special))
    names = {f"{name[1:-1]}_token": name for name in special}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names)
    config = BertConfig(vocab_size=len(fast), hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
    BertModel(config).save_pretrained(tmp_path / "encoder")
    fast.save_pretrained(tmp_path / "encoder")
    report = trim_vocabulary(tmp_path / "encoder", tmp_path / "out", {"de": sentences}, pieces=100)
    trimmed = AutoTokenizer.from_pretrained(tmp_path / "out")
    lengths = [sum(len(each(text)["input_ids"]) for text in sentences) for each in (fast, trimmed)]
    assert report.pieces[1] <= 100
    assert report.lengthening == pytest.approx(lengths[1] / lengths[0], abs=1e-4)
    assert report.lengthening > 1.1


def test_texts_without_languages_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="texts takes a mapping"):
        trim_vocabulary("org/none", tmp_path / "trimmed", ["Ein Hund."])  # type: ignore[arg-type]
    for texts in ("Ein Hund.", 5):
        with pytest.raises(DataError, match=f"texts of 'de' are {texts!r}: give a list"):
            trim_vocabulary("org/none", tmp_path / "trimmed", {"de": texts})


def test_texts_and_tokenizers_that_do_not_fit_are_named(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(encoder_folders["bert"], tmp_path / "bert")
    with pytest.raises(DataError, match="^sentence 1 of 'de' is None, not text: remove it$"):
        trim_vocabulary(str(folder), tmp_path / "trimmed", {"de": ["Ein Hund.", None]})
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["newtok"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ModelError, match=f"has {len(tokenizer)} tokens, but the encoder only "):
        trim_vocabulary(str(folder), tmp_path / "trimmed", {"de": ["Ein Hund."]})


def test_a_tokenizer_in_python_is_refused(
    exported_phobert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", MagicMock())
    monkeypatch.setattr("hf_xsent.publishing.vocabulary_trimming.load_bitext", None)  # not called
    (tmp_path / "pairs.tsv").write_text("a\tb\n", "utf-8")
    refused = r"runs in Python \(PhobertTokenizer\): trim-vocab and GGUF files need a model with a tokenizer.json"
    with pytest.raises(ModelError, match=refused):
        trim_vocabulary(str(exported_phobert), tmp_path / "trimmed", data=[f"vi={tmp_path}/pairs.tsv"])
    with pytest.raises(ModelError, match=refused):
        export_gguf(exported_phobert)
    assert not (exported_phobert / "gguf" / "model-f16.gguf").exists()
    of_words = r"runs in Python \(PhobertTokenizer\), .* need a model with a tokenizer.json"
    with pytest.raises(ModelError, match=of_words):
        words = {"word_translation_ranking": 1.0}
        pretrain(model=str(exported_phobert), data=f"vi={tmp_path}/pairs.tsv", objectives=words, output_dir="x")
    with pytest.raises(ModelError, match=of_words):
        align_words([("the dog", "the dog")], tmp_path / "o.jsonl", model=exported_phobert)
    with pytest.raises(ModelError, match=of_words):
        SpanExtraction(AutoTokenizer.from_pretrained(exported_phobert))


def test_an_existing_output_is_refused_before_texts_are_read(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="exists already: choose another folder"):
        trim_vocabulary("org/none", tmp_path.parent, {"de": "Ein Hund."})


def test_every_language_weighs_the_same(unigram_tokenizer: PreTrainedTokenizerBase) -> None:
    words = word_shares(unigram_tokenizer, {"de": ["Hund"] * 100, "en": ["dog", "cat"]})
    assert words == {"▁Hund": 1.0, "▁dog": 0.5, "▁cat": 0.5}
    with pytest.raises(DataError, match="the corpus has no text of sw"):
        word_shares(unigram_tokenizer, {"sw": []})


def _encoder(kind: str, encoder_folders: dict[str, Path], pairs: Pairs, folder: Path) -> Path:
    if kind != "roberta":
        return encoder_folders[kind]
    tokenizer = _byte_tokenizer(pairs)
    sizes: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4}
    torch.manual_seed(0)
    config = RobertaConfig(vocab_size=len(tokenizer), intermediate_size=64, initializer_range=0.08, **sizes)
    RobertaModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta", "modernbert", "roberta"])
def test_the_vectors_stay(kind: str, encoder_folders: dict[str, Path], pairs: Pairs, tmp_path: Path) -> None:
    """And the folder opens without anything of ours."""
    from sentence_transformers import SentenceTransformer

    encoder = _encoder(kind, encoder_folders, pairs, tmp_path / "roberta")
    texts = {"de": [source for source, _ in pairs[:4]], "en": [target for _, target in pairs[:4]]}
    report = trim_vocabulary(str(encoder), tmp_path / "out", texts)
    sentences = [sentence for some in texts.values() for sentence in some]
    before = SentenceEmbedder.from_pretrained(str(encoder), device="cpu").encode(sentences)
    after = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(sentences)
    np.testing.assert_allclose(after, before, atol=1e-5)
    plain = AutoModel.from_pretrained(tmp_path / "out").encoder
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) == report.pieces[1] == plain.config.vocab_size
    assert plain.get_input_embeddings().weight.shape[0] == report.pieces[1] < report.pieces[0]
    assert report.weights[0] - report.weights[1] >= 32 * (report.pieces[0] - report.pieces[1])
    assert report.lengthening == 1


def _with_special_tokens_last(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    text = json.loads(tokenizer.backend_tokenizer.to_str())
    special = [token["content"] for token in text["added_tokens"]]
    pieces = [*(piece for piece in text["model"]["vocab"] if piece not in special), *special]
    text["model"]["vocab"] = ids = {piece: number for number, piece in enumerate(pieces)}
    for token in text["added_tokens"]:
        token["id"] = ids[token["content"]]
    for name, token in text["post_processor"]["special_tokens"].items():
        token["ids"] = [ids[name]]
    names = {key: str(value) for key, value in tokenizer.special_tokens_map.items()}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(text)), **names)


@pytest.mark.parametrize("kind", ["bert", "modernbert", "roberta"])
def test_special_tokens_may_have_the_last_ids(
    kind: str, wordpiece_tokenizer: PreTrainedTokenizerFast, pairs: Pairs, tmp_path: Path
) -> None:
    tokenizer = _with_special_tokens_last(wordpiece_tokenizer)
    names = ("pad_token_id", "cls_token_id", "sep_token_id")
    ids = {name: getattr(tokenizer, name) for name in names}
    sizes: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4}
    config: Any = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), intermediate_size=64, max_position_embeddings=1000, **sizes, **ids
    )
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    texts = {"de": [source for source, _ in pairs[:3]]}
    if kind == "roberta":
        with pytest.raises(ModelError, match="counted from the id of its padding token"):
            trim_vocabulary(str(tmp_path / "encoder"), tmp_path / "out", texts)
        return
    trim_vocabulary(str(tmp_path / "encoder"), tmp_path / "out", texts)
    config, trimmed = AutoConfig.from_pretrained(tmp_path / "out"), AutoTokenizer.from_pretrained(tmp_path / "out")
    stated = {name: getattr(config, name) for name in names if hasattr(config, name)}
    assert stated == {name: getattr(trimmed, name) for name in stated}
    assert stated["pad_token_id"] < ids["pad_token_id"]


def test_the_command_reports_the_size(
    encoder_folders: dict[str, Path], pairs: Pairs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for language in ("de", "fr"):
        (tmp_path / f"{language}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), "utf-8")
    model = shutil.copytree(encoder_folders["bert"], tmp_path / "run")
    stage = Stage(recipe={"method": "dap"}, steps=8, read_per_step=4, epochs=2)
    ModelFacts(stages=[stage], languages=["de", "en", "fr"]).write(model)
    command = ["trim-vocab", str(model), "-o", str(tmp_path / "out"), "--pieces", "150"]
    command += ["--data", f"{tmp_path}/{{language}}.tsv", "--cache_dir", str(tmp_path / "cache")]
    assert main([*command, "--languages", "de"]) == 0
    assert "length of texts in pieces" in capsys.readouterr().out
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "Languages: de, en.\nTraining took 8 steps of 4 pairs (2.00 epochs).\nThe vocabulary was trimmed to " in card
    assert "word pieces, by texts in de, en." in card
    assert len(AutoTokenizer.from_pretrained(tmp_path / "out")) <= 150
    (tmp_path / "sw.txt").write_text("Mbwa analala.\n", "utf-8")
    assert main([*command, "--text", f"{tmp_path}/sw.txt", "--languages", "sw", "--overwrite"]) == 0
    assert "word pieces, by texts in sw." in (tmp_path / "out" / "README.md").read_text("utf-8")
    again = ["trim-vocab", f"{tmp_path}/out", "-o", f"{tmp_path}/again", "--text", f"{tmp_path}/sw.txt"]
    assert main(again) == 0
    assert (tmp_path / "again" / "README.md").read_text("utf-8").count("The vocabulary was trimmed to ") == 2
    assert main([*command, "--languages", "de", "sw", "--overwrite"]) == 2
    assert "no text of 'sw': the languages are de, fr" in capsys.readouterr().err


def test_pieces_are_chosen_by_plain_text_too(
    encoder_folders: dict[str, Path], pairs: Pairs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), "utf-8")
    for side, name in enumerate(("news.de", "news.en")):
        (tmp_path / f"{name}.txt").write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
    model = str(encoder_folders["bert"])
    bitext = ["--data", f"de={tmp_path}/pairs.tsv", "--cache_dir", str(tmp_path / "cache")]
    assert main(["trim-vocab", model, "--output", str(tmp_path / "nothing")]) == 2
    assert "give --data de=pairs.tsv or --text" in capsys.readouterr().err
    (tmp_path / "records.jsonl").write_text('{"text": "Ein Hund."}\n')
    assert main(["trim-vocab", model, "--output", str(tmp_path / "no"), "--text", f"de={tmp_path}/records.jsonl"]) == 2
    assert "records.jsonl seems to be a table or records, not text" in capsys.readouterr().err
    both = f"de={tmp_path}/news.de.txt,{tmp_path}/news.en.txt"
    assert main(["trim-vocab", model, "--output", str(tmp_path / "no"), "--text", both]) == 2
    assert "news.en.txt is no text file: give a file of one sentence per line" in capsys.readouterr().err
    assert main(["trim-vocab", model, "--output", str(tmp_path / "no"), "--text", "de=org/corpus", *bitext]) == 2
    assert "org/corpus is no text file" in capsys.readouterr().err
    plain = ["--text", f"{tmp_path}/news.de.txt", f"{tmp_path}/news.en.txt"]
    assert main(["trim-vocab", model, "--output", str(tmp_path / "plain"), *plain]) == 0
    assert json.loads((tmp_path / "plain" / "training.json").read_text("utf-8"))["languages"] == ["de", "en"]
    assert main(["trim-vocab", model, "--output", str(tmp_path / "pairs"), *bitext]) == 0
    vocabularies = [set(AutoTokenizer.from_pretrained(tmp_path / one).get_vocab()) for one in ("plain", "pairs")]
    assert vocabularies[0] >= vocabularies[1]  # bitext is cleaned
    whole, trimmed = (AutoTokenizer.from_pretrained(folder) for folder in (model, tmp_path / "plain"))
    assert all(whole.tokenize(text) == trimmed.tokenize(text) for pair in pairs for text in pair)
    assert "Languages: de, en.\nThe vocabulary was trimmed to " in (tmp_path / "plain" / "README.md").read_text("utf-8")


@pytest.mark.parametrize("size", [None, 40])
def test_the_pieces_of_the_prompt_are_retained(
    encoder_folders: dict[str, Path], tmp_path: Path, size: int | None
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"])
    model = AlignmentForSentenceEmbedding.from_backbone(
        str(encoder_folders["bert"]),
        pooling="mean",
        max_length=32,
        prompts={"query": "the dog "},
        default_prompt_name="query",
    )
    folder = export_sentence_transformer(model.eval(), tmp_path / "exported", tokenizer)
    texts = {"de": ["ein"], "en": ["a"]}
    trim_vocabulary(str(folder), tmp_path / "trimmed", texts, pieces=size)
    before, after = (
        SentenceEmbedder.from_pretrained(str(tmp_path / name), device="cpu").encode(["a"])
        for name in ("exported", "trimmed")
    )
    np.testing.assert_allclose(after, before, atol=1e-5)


def test_a_card_says_that_the_vocabulary_was_trimmed_also_after_further_training(
    encoder_folders: dict[str, Path], pairs: Pairs, tmp_path: Path
) -> None:
    trim_vocabulary(str(encoder_folders["bert"]), str(tmp_path / "trimmed"), {"de": [source for source, _ in pairs]})
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), "utf-8")
    command = f"pretrain --model {tmp_path}/trimmed --data de={tmp_path}/pairs.tsv --output {tmp_path}/run"
    assert main([*command.split(), "--max_steps", "1", "--dev_pairs", "0", "--clean", "false"]) == 0
    assert "The vocabulary was trimmed to " in (tmp_path / "run" / "README.md").read_text("utf-8")
