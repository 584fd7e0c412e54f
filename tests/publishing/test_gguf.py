"""GGUF files have llama.cpp's names and keys; `make test-runtimes` opens them in llama.cpp."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, call

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, AutoTokenizer, ModernBertConfig, PreTrainedTokenizerFast

from hf_xsent import DapForSentenceEmbedding, export_gguf, export_sentence_transformer
from hf_xsent.errors import MissingExtraError, ModelError
from hf_xsent.publishing.gguf import _add_settings
from hf_xsent.publishing.gguf_tokenizer import add_tokenizer, character_replacements, precompile

needs_gguf = pytest.mark.skipif(find_spec("gguf") is None, reason="the extra gguf is not installed")


def _reader(compiled: bytes) -> Callable[[str], tuple[int, str] | None]:
    """Return a function that finds length and replacement of the longest prefix of a text, as llama.cpp does."""
    size = int(np.frombuffer(compiled[:4], "<u4")[0])
    cells, texts = np.frombuffer(compiled[4 : 4 + size], "<u4").tolist(), compiled[4 + size :]

    def children(cell: int) -> int:
        return int((cells[cell] >> 10) << ((cells[cell] & 1 << 9) >> 6))

    def longest_replacement(text: str) -> tuple[int, str] | None:
        cell, longest = children(0), None
        for place, byte in enumerate(text.encode(), 1):
            cell ^= byte
            if cells[cell] & (1 << 31 | 0xFF) != byte:
                break
            ends = cells[cell] >> 8 & 1
            cell ^= children(cell)
            if ends:
                start = cells[cell] & (1 << 31) - 1
                longest = place, texts[start : texts.index(b"\0", start)].decode()
        return longest

    return longest_replacement


def test_every_replacement_of_a_normalizer_is_in_the_trie() -> None:
    replacements = character_replacements(normalizers.NFKC())
    assert replacements["ﬁ"] == "fi" and replacements["e\u0301"] == "é" and "a" not in replacements
    longest_replacement = _reader(precompile(replacements))
    for old, new in replacements.items():
        assert longest_replacement(f"{old}!") == (len(old.encode()), new)
    assert longest_replacement("abc") is None


def test_characters_may_be_removed() -> None:
    replacements = character_replacements(normalizers.Replace("\u200b", ""))
    assert replacements == {"\u200b": ""}
    assert _reader(precompile(replacements))("\u200bx") == (3, "")
    assert character_replacements(None) == {}


def _export(encoder: Path, folder: Path, pooling: str = "mean") -> Path:
    model = DapForSentenceEmbedding.from_backbone(str(encoder), pooling=pooling, max_length=40).eval()
    return export_sentence_transformer(model, folder, AutoTokenizer.from_pretrained(encoder), verify=False)


@needs_gguf
def test_keys_and_tensors_are_llama_cpp_s(tiny_encoders: Path, tmp_path: Path) -> None:
    import gguf

    reader = gguf.GGUFReader(export_gguf(_export(tiny_encoders, tmp_path / "out")))
    architecture = reader.fields["general.architecture"].contents()
    keys = {name.replace(f"{architecture}.", ""): field for name, field in reader.fields.items()}
    assert keys["context_length"].contents() == 40 and keys["pooling_type"].contents() == 1
    assert keys["attention.causal"].contents() is False
    tokenizer, encoder = AutoTokenizer.from_pretrained(tiny_encoders), AutoModel.from_pretrained(tiny_encoders)
    assert keys["tokenizer.ggml.bos_token_id"].contents() == tokenizer.cls_token_id
    assert len(keys["tokenizer.ggml.tokens"].contents()) == encoder.config.vocab_size
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    words = encoder.get_input_embeddings().weight.detach().numpy()
    np.testing.assert_allclose(tensors["token_embd.weight"].data, words, atol=1e-3)
    if "position_embd.weight" in tensors:
        assert tensors["position_embd.weight"].data.shape == (40, 32)


def test_a_run_of_spaces_is_replaced_by_one() -> None:
    replacements = {"\u3000": " ", "\n": " ", "\u200b": "", "ﬁ": "fi"}
    longest_replacement = _reader(precompile(replacements, merge_spaces=True))
    for run in (" ", "   ", "\n", "\n \u3000", " \u200b ", "\u3000" * 40):
        assert longest_replacement(f"{run}a") == (len(run.encode()), " ")
    assert longest_replacement("\u200b a") == (3, "")
    assert longest_replacement("ﬁ ") == (3, "fi")
    assert _reader(precompile(replacements))("\n\n") == (1, " ")


@needs_gguf
def test_q8_0_is_smaller(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    config = AutoConfig.from_pretrained(encoder_folders["bert"], hidden_size=64)
    AutoModel.from_config(config).save_pretrained(tmp_path / "wide")
    AutoTokenizer.from_pretrained(encoder_folders["bert"]).save_pretrained(tmp_path / "wide")
    folder = _export(tmp_path / "wide", tmp_path / "out")
    half, eight = export_gguf(folder), export_gguf(folder, "q8_0")
    assert [path.name for path in (half, eight)] == ["model-f16.gguf", "model-q8_0.gguf"]
    assert eight.stat().st_size < 0.8 * half.stat().st_size


@needs_gguf
def test_q8_0_of_one_block_a_row_is_refused(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="llama.cpp cannot compute q8_0 with 32 dimensions .* write float16"):
        export_gguf(_export(encoder_folders["bert"], tmp_path / "out"), "q8_0")


@needs_gguf
def test_max_pooling_has_no_gguf_file(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="llama.cpp cannot compute bert with max pooling"):
        export_gguf(_export(encoder_folders["bert"], tmp_path / "out", pooling="max"))


@pytest.mark.parametrize(("activation", "computed"), [("relu", False), ("quick_gelu", False), ("gelu_new", True)])
def test_an_encoder_without_gelu_has_no_gguf_file(
    tiny_encoders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, activation: str, computed: bool
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", MagicMock())
    folder = _export(tiny_encoders, tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    config |= {name: activation for name in ("hidden_act", "hidden_activation") if name in config}
    (folder / "config.json").write_text(json.dumps(config))
    refused = pytest.raises(ModelError, match=f"llama.cpp cannot compute [a-z-]+ with {activation}, but only with GELU")
    with nullcontext() if computed else refused:
        export_gguf(folder)


_BYTES, _GEMMA = pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.Replace(" ", "▁")
_LOWER = normalizers.Lowercase()


@pytest.mark.parametrize(
    ("normalizer", "splitter", "options", "kind"),
    [
        (None, _BYTES, {}, "gpt2"),
        (normalizers.NFC(), _BYTES, {}, "gpt2"),
        (_LOWER, _BYTES, {}, None),
        (None, pre_tokenizers.ByteLevel(), {}, None),
        (None, _BYTES, {"end_of_word_suffix": "</w>"}, None),
        (_GEMMA, None, {"byte_fallback": True}, "gemma4"),
        (_GEMMA, pre_tokenizers.Split(" ", "merged_with_previous"), {"byte_fallback": True}, "gemma4"),
        (_GEMMA, None, {}, None),
        (normalizers.Sequence([_GEMMA, _LOWER]), None, {"byte_fallback": True}, None),
        (None, pre_tokenizers.Metaspace(), {"byte_fallback": True}, None),
        (None, pre_tokenizers.BertPreTokenizer(), {"end_of_word_suffix": "</w>"}, None),
    ],
)
def test_bpe_that_llama_cpp_lacks_is_refused(
    normalizer: normalizers.Normalizer | None,
    splitter: pre_tokenizers.PreTokenizer | None,
    options: dict[str, Any],
    kind: str | None,
) -> None:
    backend, writer = Tokenizer(models.BPE({"<s>": 0, "</s>": 1, "a": 2}, [], **options)), MagicMock()
    backend.normalizer, backend.pre_tokenizer = normalizer, splitter
    backend.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<s>")
    tokenizer.add_tokens([AddedToken("\n"), AddedToken("  ")])
    with pytest.raises(ModelError, match="no pre-tokenizer like that") if kind is None else nullcontext():
        add_tokenizer(writer, tokenizer, len(tokenizer))
    assert writer.add_tokenizer_model.call_args_list == ([] if kind is None else [call(kind)])


@pytest.mark.parametrize(
    ("splitter", "options", "warned"),
    [
        (pre_tokenizers.BertPreTokenizer(), {"lowercase": False}, ""),
        (pre_tokenizers.BertPreTokenizer(), {"lowercase": True}, "llama.cpp strips fewer marks than this tokenizer"),
        (
            pre_tokenizers.BertPreTokenizer(),
            {"lowercase": False, "handle_chinese_chars": False},
            "llama.cpp splits Chinese characters, which this tokenizer does not",
        ),
        (pre_tokenizers.WhitespaceSplit(), {"lowercase": False}, None),
        (None, {"lowercase": False}, None),
    ],
)
def test_wordpiece_that_llama_cpp_splits_otherwise_is_refused_or_warned_of(
    splitter: pre_tokenizers.PreTokenizer | None,
    options: dict[str, Any],
    warned: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend = Tokenizer(models.WordPiece({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}, unk_token="[UNK]"))
    backend.normalizer, backend.pre_tokenizer = normalizers.BertNormalizer(**options), splitter
    backend.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[UNK]", unk_token="[UNK]")
    with pytest.raises(ModelError, match="splits words otherwise") if warned is None else nullcontext():
        add_tokenizer(MagicMock(), tokenizer, len(tokenizer))
    assert [record.message.partition(":")[0] for record in caplog.records] == ([warned] if warned else [])


def test_unigram_without_a_mark_before_the_text_has_no_gguf_file() -> None:
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("</s>", 0.0), ("a", -1.0)], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    backend.post_processor = processors.BertProcessing(("</s>", 1), ("</s>", 1))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<unk>", unk_token="<unk>")
    with pytest.raises(ModelError, match="llama.cpp adds ▁ before a text, and this tokenizer does not"):
        add_tokenizer(MagicMock(), tokenizer, len(tokenizer))


def test_a_modernbert_with_biases_has_no_gguf_file() -> None:
    with pytest.raises(ModelError, match="llama.cpp cannot compute a ModernBERT with biases"):
        _add_settings(MagicMock(), ModernBertConfig(mlp_bias=True), {"max_length": 8, "pooling": "mean"})


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match=r'pip install "hf-xsent\[gguf\]"'):
        export_gguf(tmp_path)


def test_global_attention_at_other_than_each_nth_layer_has_no_gguf_file() -> None:
    """As of a ModernBERT of 22 layers that was reduced to 7."""
    full, local = "full_attention", "sliding_attention"
    config = ModernBertConfig(num_hidden_layers=4, layer_types=[full, local, full, full])
    with pytest.raises(ModelError, match="llama.cpp needs global attention in each Nth layer"):
        _add_settings(MagicMock(), config, {"max_length": 8, "pooling": "mean"})
