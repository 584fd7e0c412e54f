"""Adapters start with zero effect, run in the packed forward pass, and merge into plain weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, TrainingArguments

from hf_xsent import (
    AlignmentTrainer,
    DapForSentenceEmbedding,
    SentenceEmbedder,
    SentenceEncoderForPreTraining,
    XlmrWithRTLHead,
    export_sentence_transformer,
)
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import MissingExtraError, RecipeError
from hf_xsent.models.adapters import plain_weights

Pairs = list[tuple[str, str]]
TR: dict[str, Any] = {"objectives": {"translation_ranking": 1.0}}


def _model(folder: Path, learnt: bool = True, **settings: Any) -> XlmrWithRTLHead:
    pytest.importorskip("peft")
    torch.manual_seed(0)
    model = XlmrWithRTLHead.from_backbone(str(folder), max_length=64, lora_rank=4, **TR | settings).eval()
    for name, weight in model.named_parameters():
        if learnt and "lora_B" in name:
            nn.init.normal_(weight, std=0.1)
    return model


def _batch(folder: Path, sentences: list[str]) -> tuple[list[Tensor], list[Tensor]]:
    encoded = AutoTokenizer.from_pretrained(folder)(sentences, padding=True, return_tensors="pt")
    return [encoded["input_ids"]], [encoded["attention_mask"]]


def test_new_adapters_change_nothing(tiny_encoders: Path, sentences: list[str]) -> None:
    plain = XlmrWithRTLHead.from_backbone(str(tiny_encoders), **TR).eval()
    ids, masks = _batch(tiny_encoders, sentences)
    with torch.no_grad():
        assert torch.equal(_model(tiny_encoders, learnt=False).embed(ids, masks), plain.embed(ids, masks))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_every_adapter_takes_part_in_the_packed_forward(
    tiny_encoders: Path, sentences: list[str], pooling: str
) -> None:
    """The encoder's own padded forward, in which the adapters surely take part, gives the same vectors."""
    model = _model(tiny_encoders, pooling=pooling)
    ids, masks = _batch(tiny_encoders, sentences)
    vectors = model.embed(ids, masks)
    with torch.no_grad():
        states = model.encoder(input_ids=ids[0], attention_mask=masks[0]).last_hidden_state
    mask = masks[0][..., None]
    expected = states[:, 0] if pooling == "cls" else (states * mask).sum(1) / mask.sum(1)
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=1e-4)

    vectors.square().sum().backward()
    for name, weight in model.encoder.named_parameters():
        assert weight.requires_grad == (".lora_" in name)
        assert (weight.grad is not None and weight.grad.any()) == weight.requires_grad, name


@pytest.mark.parametrize("checkpointing", [False, True])
def test_only_adapters_and_heads_move(tiny_encoders: Path, pairs: Pairs, checkpointing: bool) -> None:
    objectives = {"translation_ranking": 1.0, "representation_translation": 1.0}
    model = _model(tiny_encoders, objectives=objectives, learnt=False).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    collator = PairCollator(AutoTokenizer.from_pretrained(tiny_encoders), 64)
    batch = collator([{"source": one, "target": other, "language": "de"} for one, other in pairs])
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-2)
    for _ in range(2):  # after the first step B is no longer zero, and A moves, too
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    for name, weight in model.named_parameters():
        moves = ".lora_" in name or (name.startswith("objectives.") and weight.grad is not None)
        assert torch.equal(weight, before[name]) != moves, name
    assert any(name.startswith("objectives.") and weight.grad is not None for name, weight in model.named_parameters())


def test_heads_start_from_the_encoder_as_ever(tiny_encoders: Path) -> None:
    objectives = {"representation_translation": 1.0}
    plain = XlmrWithRTLHead.from_backbone(str(tiny_encoders), max_length=64, objectives=objectives)
    adapted = _model(tiny_encoders, objectives=objectives)
    heads = (one.objectives.state_dict() for one in (plain, adapted))
    for (name, weight), other in zip(*(head.items() for head in heads), strict=True):
        assert name == other[0] and torch.equal(weight, other[1])


def test_a_saved_model_opens_with_its_adapters_and_a_merged_one_without(
    tiny_encoders: Path, tmp_path: Path, sentences: list[str]
) -> None:
    model = _model(tiny_encoders)
    ids, masks = _batch(tiny_encoders, sentences)
    with torch.no_grad():
        expected = model.embed(ids, masks)
        model.save_pretrained(tmp_path / "adapted")
        again = XlmrWithRTLHead.from_pretrained(tmp_path / "adapted").eval()
        assert torch.equal(again.embed(ids, masks), expected)
        sentence_model = DapForSentenceEmbedding.from_pretrained(tmp_path / "adapted")  # merged
        torch.testing.assert_close(sentence_model.embed(ids, masks), expected, atol=1e-5, rtol=1e-4)

        model.merge_adapters()
        assert model.config.lora_rank is None
        assert (
            plain_weights(model.encoder).keys()
            == AutoModel.from_pretrained(
                tiny_encoders, **({} if "modernbert" in tiny_encoders.name else {"add_pooling_layer": False})
            )
            .state_dict()
            .keys()
        )
        torch.testing.assert_close(model.embed(ids, masks), expected, atol=1e-5, rtol=1e-4)
        model.save_pretrained(tmp_path / "merged")
        plain, report = DapForSentenceEmbedding.from_pretrained(tmp_path / "merged", output_loading_info=True)
        assert not report["missing_keys"] and not report["unexpected_keys"]
        assert torch.equal(plain.eval().embed(ids, masks), model.embed(ids, masks))


def test_an_export_is_merged_and_leaves_the_model_alone(
    tiny_encoders: Path, tmp_path: Path, sentences: list[str]
) -> None:
    model, tokenizer = _model(tiny_encoders), AutoTokenizer.from_pretrained(tiny_encoders)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    folder = export_sentence_transformer(model, tmp_path / "exported", tokenizer)
    assert "lora" not in (folder / "config.json").read_text()
    _, report = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not report["unexpected_keys"]
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name]), name
    ours = SentenceEmbedder(model, tokenizer).encode(sentences)
    theirs = SentenceEmbedder.from_pretrained(str(folder), device="cpu").encode(sentences)
    torch.testing.assert_close(torch.tensor(theirs), torch.tensor(ours), atol=1e-5, rtol=1e-4)


def test_a_merged_encoder_trains(tiny_encoders: Path, sentences: list[str]) -> None:
    model = _model(tiny_encoders)
    model.merge_adapters()
    assert all(weight.requires_grad for weight in model.encoder.parameters())
    model.freeze(2)  # as an earlier training without adapters
    model.config.lora_rank = 2
    model.add_adapters()
    model.freeze(0)
    assert all("lora_" in name for name, weight in model.encoder.named_parameters() if weight.requires_grad)


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("targets", ["query", "word_embeddings", "key"])
def test_an_adapter_of_another_library_is_neither_trained_nor_saved(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs, rank: int | None, targets: str
) -> None:
    peft = pytest.importorskip("peft")
    model = SentenceEncoderForPreTraining.from_pretrained(encoder_folders["bert"], lora_rank=rank)
    if targets == "key":
        model.encoder.add_adapter(peft.IA3Config(target_modules=[targets], feedforward_modules=[]), "other")
    else:
        name = "other" if targets == "word_embeddings" else "default"
        model.add_adapter(peft.LoraConfig(r=2, target_modules=[targets], use_dora=name == "default"), name)
    arguments = TrainingArguments(str(tmp_path / "run"), use_cpu=True, report_to="none")
    for use in (lambda: AlignmentTrainer(model, arguments, {"de": pairs}), lambda: model.save_pretrained(tmp_path)):
        with pytest.raises(RecipeError, match="^the model has an adapter, which no checkpoint would hold: merge it"):
            use()
    assert not [*tmp_path.iterdir()]


def test_a_model_whose_adapter_was_merged_or_deleted_is_saved(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = SentenceEncoderForPreTraining.from_pretrained(encoder_folders["bert"])
    expected = model.encode(["a dog"])
    config = peft.LoraConfig(r=2, target_modules=["query"])
    model.encoder = peft.get_peft_model(model.encoder, config).merge_and_unload()
    model.add_adapter(config)
    model.delete_adapter("default")
    model.save_pretrained(tmp_path)
    assert (SentenceEmbedder.from_pretrained(str(tmp_path)).encode(["a dog"]) == expected).all()


def test_without_peft_the_way_out_is_an_error(
    encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=r'^lora_rank needs an extra: pip install "hf-xsent\[lora\]"'):
        XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"]), lora_rank=4)
