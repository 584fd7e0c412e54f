"""The RTL head against a slow computation, one pair at a time, with Hugging Face's own layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from hf_xsent import DapConfig, XlmrWithRTLHead
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.models.families import backbone_of
from hf_xsent.objectives.representation_translation import (
    RepresentationTranslation,
    RepresentationTranslationSettings,
    word_pieces,
)
from hf_xsent.tensors.packing import hash_sentences

Pairs = list[tuple[str, str]]
RTL = "representation_translation"


def _batch(folder: Path, pairs: Pairs, max_length: int = 64, **settings: Any) -> dict[str, Tensor]:
    examples = [{"source": source, "target": target, "language": "de"} for source, target in pairs]
    return PairCollator(AutoTokenizer.from_pretrained(folder), max_length=max_length, **settings)(examples)


def _model(folder: Path, *, languages: list[str] | None = None, **settings: Any) -> Any:
    """Build a model of RTL alone with these settings."""
    objectives = {RTL: {"weight": 1.0, **settings}}
    return XlmrWithRTLHead.from_backbone(str(folder), objectives=objectives, max_length=64, languages=languages).eval()


def _shake(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)


def _rows(batch: dict[str, Tensor], side: str) -> list[Tensor]:
    ids, mask = batch[f"{side}_input_ids"], batch[f"{side}_attention_mask"].bool()
    return [row[keep] for row, keep in zip(ids, mask, strict=True)]


def _states(model: Any, ids: Tensor) -> Tensor:
    return model.encoder(input_ids=ids[None]).last_hidden_state[0]


def _head_by_hand(model: Any, known: Tensor, predicted: Tensor, start: int, language: int | None = None) -> Tensor:
    """Scores of each predicted token but [CLS], for one pair, whole rows through whole layers."""
    head = model.objectives[RTL]
    encoder, family = head.layers.encoder, model.config.encoder_config.model_type
    first = {"xlm-roberta": 2}.get(family, 0)

    def embed(vectors: Tensor, positions: Tensor) -> Tensor:
        if family == "modernbert":
            return encoder.embeddings(inputs_embeds=vectors[None])
        types = torch.zeros_like(positions)[None]
        return encoder.embeddings(
            inputs_embeds=vectors[None], token_type_ids=types, position_ids=positions[None] + first
        )

    own = torch.arange(1, len(predicted))
    masks = embed(encoder.get_input_embeddings().weight.expand(len(own), -1), own)[0]
    if language is not None:
        masks = masks + head.language_embeddings.weight[language]
    states = torch.cat((_states(model, known)[1:], masks))
    positions = torch.cat((torch.arange(1, len(known)), start + own))
    hidden = embed(states, positions)
    for layer in backbone_of(encoder).layers:
        if family == "modernbert":
            assert layer.attention_type == "sliding_attention"
            near = (torch.arange(len(states))[:, None] - torch.arange(len(states))).abs() <= 4
            rotation = encoder.rotary_emb(hidden, positions[None], layer.attention_type)
            hidden = layer(hidden, attention_mask=near[None, None], position_embeddings=rotation)
        else:
            hidden = layer(hidden)
    if family == "modernbert":
        hidden = encoder.final_norm(hidden)
    prediction = head.prediction
    return prediction.transform(hidden[0, len(known) - 1 :]) @ prediction.words.weight.T + prediction.bias


def _by_hand(
    model: Any, known: list[Tensor], predicted: list[Tensor], start: int, language: int | None = None
) -> Tensor:
    scores = [_head_by_hand(model, a, b, start, language) for a, b in zip(known, predicted, strict=True)]
    return nn.functional.cross_entropy(torch.cat(scores), torch.cat([ids[1:] for ids in predicted]))


def test_the_loss_and_its_gradients_are_the_equations(tiny_encoders: Path, pairs: Pairs) -> None:
    model = _model(tiny_encoders)
    _shake(model)
    batch = _batch(tiny_encoders, pairs)
    expected = _by_hand(model, _rows(batch, "source"), _rows(batch, "target"), start=64)
    expected.backward()
    gradients = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    loss = model(**batch).losses[RTL]
    model(**batch).loss.backward()
    torch.testing.assert_close(loss, expected.detach(), atol=1e-5, rtol=0)
    ours = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    assert gradients.keys() <= ours.keys()
    for name, one in ours.items():
        theirs = gradients.get(name, torch.zeros_like(one))
        atol = 1e-6 + 1e-4 * theirs.abs().max().item()
        torch.testing.assert_close(one, theirs, atol=atol, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


def test_the_other_direction_predicts_sources_with_their_language(tiny_encoders: Path, pairs: Pairs) -> None:
    model = _model(tiny_encoders, direction="target_to_source", predicted_languages=["de", "en"])
    _shake(model)
    batch = _batch(tiny_encoders, pairs, languages=["de", "en"])
    expected = _by_hand(model, _rows(batch, "target"), _rows(batch, "source"), start=64, language=0)
    torch.testing.assert_close(model(**batch).loss, expected, atol=1e-5, rtol=0)


def test_both_directions_take_half_of_the_batch_each(tiny_encoders: Path, pairs: Pairs) -> None:
    model = _model(tiny_encoders, direction="both", predicted_languages=["de", "en"])
    _shake(model)
    batch = _batch(tiny_encoders, pairs, languages=["de", "en"])
    source, target = _rows(batch, "source"), _rows(batch, "target")
    first = (hash_sentences(batch["target_input_ids"], batch["target_attention_mask"]) % 2 == 0).tolist()
    assert 4 <= sum(first) <= 12
    one, other = ([i for i, there in enumerate(first) if there == way] for way in (True, False))
    there = _by_hand(model, [source[i] for i in one], [target[i] for i in one], start=64)  # English: no embedding
    back = _by_hand(model, [target[i] for i in other], [source[i] for i in other], start=64, language=0)
    torch.testing.assert_close(model(**batch).loss, (there + back) / 2, atol=1e-5, rtol=0)


def test_padded_positions_start_at_the_padded_length(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    model = _model(encoder_folders["bert"], positions="padded")
    batch = _batch(encoder_folders["bert"], pairs)
    width = max(batch["source_input_ids"].shape[1], batch["target_input_ids"].shape[1])
    expected = _by_hand(model, _rows(batch, "source"), _rows(batch, "target"), start=width)
    torch.testing.assert_close(model(**batch).loss, expected, atol=1e-5, rtol=0)


def test_with_a_masked_share_visible_tokens_are_no_labels(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    """The head sees the states of half of the target's tokens; the loss counts the other half only."""
    model = _model(encoder_folders["bert"], masked_share=0.5)
    batch = _batch(encoder_folders["bert"], pairs)
    seen = _watch_head(model)
    model(**batch)
    ((vectors, packed, masked), (hidden, labels)) = seen
    targets = sum(len(ids) - 1 for ids in _rows(batch, "target"))
    assert 0.3 * targets < len(labels) < 0.7 * targets
    assert len(hidden) == len(masked) == len(labels)
    assert len(vectors) == len(packed.input_ids) == targets + sum(len(ids) - 1 for ids in _rows(batch, "source"))
    assert torch.equal(packed.input_ids[masked], labels)
    (sampled,) = model.encode_pairs(batch).sampled[RTL]
    assert sampled.count == len(sampled.rows.labels)
    assert len(sampled.rows.visible) + len(sampled.rows.labels) == len(sampled.rows.packed.input_ids)


def _watch_head(model: Any) -> list[tuple[Any, ...]]:
    """Record what the layers and the projection of the head receive."""
    seen: list[tuple[Any, ...]] = []
    for part in (model.objectives[RTL].layers, model.objectives[RTL].prediction):
        part.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    return seen


# What must not matter


def test_neither_padding_nor_company_nor_order_counts(tiny_encoders: Path, pairs: Pairs) -> None:
    model = _model(tiny_encoders)
    batch = _batch(tiny_encoders, pairs)
    loss = model(**batch).loss
    pad = model.config.encoder_config.pad_token_id
    wide = {name: nn.functional.pad(one, (0, 9), value=pad if "ids" in name else 0) for name, one in batch.items()}
    torch.testing.assert_close(model(**wide).loss, loss, atol=1e-6, rtol=0)
    order = torch.randperm(len(pairs))
    torch.testing.assert_close(model(**{name: one[order] for name, one in batch.items()}).loss, loss, atol=1e-6, rtol=0)
    parts = [model(**_batch(tiny_encoders, [pair])).loss for pair in pairs]
    counts = torch.tensor([len(ids) - 1 for ids in _rows(batch, "target")])
    torch.testing.assert_close((torch.stack(parts) * counts).sum() / counts.sum(), loss, atol=1e-5, rtol=0)


def test_cls_takes_no_part(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    """The head reads no [CLS] of either side."""
    model = _model(encoder_folders["bert"])
    batch = _batch(encoder_folders["bert"], pairs)
    seen = _watch_head(model)
    model(**batch)
    vectors, packed, _ = seen[0]
    assert batch["source_input_ids"][0, 0] not in packed.input_ids
    assert len(vectors) == sum(len(ids) - 1 for side in ("source", "target") for ids in _rows(batch, side))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_ranking_is_the_same_beside_rtl(tiny_encoders: Path, pairs: Pairs, pooling: str) -> None:
    batch = _batch(tiny_encoders, pairs)
    ranking = []
    for objectives in ({"translation_ranking": 1.0}, {"translation_ranking": 1.0, RTL: 1.0}):
        model = XlmrWithRTLHead.from_backbone(str(tiny_encoders), pooling=pooling, objectives=objectives, max_length=64)
        ranking.append(model.eval()(**batch).losses["translation_ranking"])
    torch.testing.assert_close(*ranking, atol=1e-5, rtol=0)


# A restricted vocabulary, and what else the data decides


def _fitted(folder: Path, pairs: Pairs, languages: list[str] | None = None, **settings: Any) -> Any:
    """Return the config of RTL after it has seen the data."""
    config = DapConfig(objectives={RTL: {"weight": 1.0, **settings}}, max_length=64, languages=languages)

    def sentences(side: str) -> Iterator[str]:
        return (pair[side == "target"] for pair in pairs)

    return config.fit(("en", "de"), sentences, AutoTokenizer.from_pretrained(folder))


def _restricted(folder: Path, pairs: Pairs, **settings: Any) -> Any:
    config = _fitted(folder, pairs, restrict_vocabulary=True, **settings)
    return XlmrWithRTLHead.from_backbone(str(folder), config=config).eval()


def _pieces(folder: Path, sentences: list[str]) -> tuple[int, ...]:
    return word_pieces(sentences, AutoTokenizer.from_pretrained(folder))


def test_word_pieces_are_those_of_the_sentences_and_the_special_ones(tiny_encoders: Path, pairs: Pairs) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_encoders)
    sentences = [target for _, target in pairs]
    expected = {*tokenizer.all_special_ids, *(one for text in sentences for one in tokenizer(text)["input_ids"])}
    found = word_pieces(iter(sentences), tokenizer)
    assert found == tuple(sorted(expected)) and tokenizer.mask_token_id in found
    assert word_pieces([], tokenizer) == tuple(sorted(tokenizer.all_special_ids))


@pytest.mark.parametrize(
    ("direction", "sides"), [("source_to_target", [1]), ("target_to_source", [0]), ("both", [0, 1])]
)
def test_the_vocabulary_is_that_of_the_predicted_sides(
    encoder_folders: dict[str, Path], pairs: Pairs, direction: str, sides: list[int]
) -> None:
    folder = encoder_folders["bert"]
    settings = _fitted(folder, pairs, direction=direction, restrict_vocabulary=True).objectives[RTL]
    expected = _pieces(folder, [pair[side] for side in sides for pair in pairs])
    assert (settings.vocabulary_ids, settings.vocabulary_size) == (expected, len(expected))
    prompted = DapConfig(objectives={RTL: {"direction": direction}}, prompts={"a": "Kedi "}, default_prompt_name="a")
    sentences = prompted.fit(
        (), lambda side: [pair[side == "target"] for pair in pairs], AutoTokenizer.from_pretrained(folder)
    )
    assert {*sentences.objectives[RTL].vocabulary_ids} == {*expected, *_pieces(folder, ["Kedi"])}
    whole = _fitted(folder, pairs, direction=direction, restrict_vocabulary=False).objectives[RTL]
    assert (whole.vocabulary_ids, whole.vocabulary_size) == (None, None)


@pytest.mark.parametrize(
    ("settings", "languages", "expected"),
    [
        ({"direction": "both"}, None, ["de", "en"]),  # those of the data, sorted
        ({"direction": "target_to_source", "predicted_languages": ["en", "de"]}, None, ["en", "de"]),
        ({"direction": "both"}, ["en", "de"], None),  # those of the encoder
        ({}, None, None),
    ],
)
def test_predicted_languages_are_those_of_the_data_unless_stated(
    encoder_folders: dict[str, Path],
    pairs: Pairs,
    settings: dict[str, Any],
    languages: list[str] | None,
    expected: list[str] | None,
) -> None:
    config = _fitted(encoder_folders["bert"], pairs, languages, **settings)
    assert config.objectives[RTL].predicted_languages == expected
    model = XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"]), config=config)
    embeddings = model.objectives[RTL].language_embeddings
    assert (None if embeddings is None else embeddings.num_embeddings) == (2 if settings else None)


def test_a_restricted_vocabulary_is_the_softmax_over_its_pieces(tiny_encoders: Path, pairs: Pairs) -> None:
    ids = _pieces(tiny_encoders, [target for _, target in pairs])
    whole, restricted = _model(tiny_encoders), _restricted(tiny_encoders, pairs)
    assert len(ids) < whole.config.encoder_config.vocab_size
    assert not any(len(one) == whole.config.encoder_config.vocab_size for one in restricted.objectives.parameters())
    with torch.no_grad():  # pieces outside can no longer be chosen
        outside = torch.ones(whole.config.encoder_config.vocab_size, dtype=torch.bool)
        outside[list(ids)] = False
        whole.objectives[RTL].prediction.bias[outside] = -1e9
    batch = _batch(tiny_encoders, pairs)
    torch.testing.assert_close(restricted(**batch).loss, whole(**batch).loss, atol=1e-5, rtol=0)


def test_pieces_that_the_vocabulary_lacks_count_as_unknown(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    folder = encoder_folders["bert"]
    model = _restricted(folder, pairs[:4])
    batch = _batch(folder, pairs)
    known = torch.tensor(_pieces(folder, [target for _, target in pairs[:4]]))
    assert not torch.isin(batch["target_input_ids"], known).all(), "else the test says nothing"
    labels = model.objectives[RTL].prediction._rows_of(batch["target_input_ids"].flatten())
    unknown = AutoTokenizer.from_pretrained(folder).unk_token_id
    expected = torch.where(
        torch.isin(batch["target_input_ids"].flatten(), known), batch["target_input_ids"].flatten(), unknown
    )
    assert torch.equal(known[labels], expected)
    assert model(**batch).loss.isfinite()


def test_a_saved_model_opens_with_its_restricted_vocabulary(tiny_encoders: Path, tmp_path: Path, pairs: Pairs) -> None:
    model = _restricted(tiny_encoders, pairs, head_layers=1)
    _shake(model)
    model.save_pretrained(tmp_path)
    assert "vocabulary_ids" not in (tmp_path / "config.json").read_text()  # the weights hold them
    again = XlmrWithRTLHead.from_pretrained(tmp_path).eval()
    assert torch.equal(again.objectives[RTL].prediction.vocabulary, model.objectives[RTL].prediction.vocabulary)
    batch = _batch(tiny_encoders, pairs)
    torch.testing.assert_close(again(**batch).loss, model(**batch).loss)
    sentences = AutoModel.from_pretrained(tmp_path)
    assert not any("objectives" in name for name in sentences.state_dict())


def test_a_sampled_softmax_trains_the_head(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    folder = encoder_folders["bert"]
    model = _model(folder, sampled_pieces=20)
    batch = _batch(folder, pairs)
    whole = _model(folder)(**batch).loss
    sampled = torch.stack([model(**batch).loss for _ in range(30)]).mean()
    assert (sampled - whole).abs() < 0.5


# Errors


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"head_layers": 4}, "head_layers 4 does not fit: this encoder has 3 layers to copy"),
        (
            {"direction": "both"},
            f"direction both predicts several languages: list them as objectives.{RTL}.predicted_languages",
        ),
        (
            {"direction": "both", "predicted_languages": ["de"], "languages": ["de", "en"]},
            "languages and predicted_languages are different lists",
        ),
    ],
)
def test_settings_that_cannot_work_are_an_error_at_the_start(
    encoder_folders: dict[str, Path], settings: dict[str, Any], error: str
) -> None:
    with pytest.raises(RecipeError) as raises:
        _model(encoder_folders["bert"], **settings)
    assert str(raises.value).startswith(error)
    assert "\n" not in str(raises.value)


def test_sentences_too_long_for_the_heads_positions_are_an_error(encoder_folders: dict[str, Path]) -> None:
    error = "^max_length 200 leaves the RTL head too few positions for both sentences: use at most 128$"
    with pytest.raises(RecipeError, match=error):
        XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"]), objectives={RTL: 1.0}, max_length=200)


def test_a_head_with_languages_needs_language_ids(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    model = _model(encoder_folders["bert"], direction="both", predicted_languages=["de", "en"])
    with pytest.raises(ModelError, match="^the RTL head has language embeddings: pass language_ids$"):
        model(**_batch(encoder_folders["bert"], pairs))


@pytest.mark.parametrize(
    ("changes", "continues"),
    [
        ({"weight": 0.1, "masked_share": 0.5, "positions": "padded", "restrict_vocabulary": True}, True),
        ({"head_layers": 1}, False),
        ({"predicted_languages": ["de", "fr"]}, False),
    ],
)
def test_a_head_continues_with_as_many_layers_and_the_same_languages(changes: dict[str, Any], continues: bool) -> None:
    earlier = RepresentationTranslationSettings(predicted_languages=["de", "en"])
    assert RepresentationTranslation.continues(replace(earlier, **changes), earlier) == continues
