"""The RTL head against a slow computation, one pair at a time, with Hugging Face's own layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hf_xsent.models.vocabulary import RestrictedVocabulary
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from hf_xsent import XlmrWithRTLHead
from hf_xsent.data.collators import PairCollator
from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.models.families import backbone_of
from hf_xsent.packing import fingerprints

Pairs = list[tuple[str, str]]
RTL = {"representation_translation": 1.0}


def _batch(folder: Path, pairs: Pairs, max_length: int = 64, **settings: Any) -> dict[str, Tensor]:
    examples = [{"source": source, "target": target, "language": "de"} for source, target in pairs]
    return PairCollator(AutoTokenizer.from_pretrained(folder), max_length=max_length, **settings)(examples)


def _model(folder: Path, **settings: Any) -> Any:
    defaults: dict[str, Any] = {"objectives": RTL, "max_length": 64}
    return XlmrWithRTLHead.from_backbone(str(folder), **defaults | settings).eval()


def _shake(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)


def _rows(batch: dict[str, Tensor], side: str) -> list[Tensor]:
    ids, mask = batch[f"{side}_input_ids"], batch[f"{side}_attention_mask"].bool()
    return [row[keep] for row, keep in zip(ids, mask, strict=True)]


def _states(model: Any, ids: Tensor) -> Tensor:
    return model.encoder(input_ids=ids[None]).last_hidden_state[0]


def _head_by_hand(model: Any, known: Tensor, wanted: Tensor, start: int, language: int | None = None) -> Tensor:
    """Scores of each wanted token but [CLS], for one pair, whole rows through whole layers."""
    head = model.objectives["representation_translation"].head
    encoder, family = head.encoder, model.config.encoder_config.model_type
    first = {"xlm-roberta": 2}.get(family, 0)

    def embed(vectors: Tensor, positions: Tensor) -> Tensor:
        if family == "modernbert":
            return encoder.embeddings(inputs_embeds=vectors[None])
        types = torch.zeros_like(positions)[None]
        return encoder.embeddings(
            inputs_embeds=vectors[None], token_type_ids=types, position_ids=positions[None] + first
        )

    own = torch.arange(1, len(wanted))
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


def _by_hand(model: Any, known: list[Tensor], wanted: list[Tensor], start: int, language: int | None = None) -> Tensor:
    scores = [_head_by_hand(model, a, b, start, language) for a, b in zip(known, wanted, strict=True)]
    return nn.functional.cross_entropy(torch.cat(scores), torch.cat([ids[1:] for ids in wanted]))


def test_the_loss_and_its_gradients_are_the_equations(tiny_encoders: Path, pairs: Pairs) -> None:
    model = _model(tiny_encoders)
    _shake(model)
    batch = _batch(tiny_encoders, pairs)
    expected = _by_hand(model, _rows(batch, "source"), _rows(batch, "target"), start=64)
    expected.backward()
    gradients = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    loss = model(**batch).losses["representation_translation"]
    model(**batch).loss.backward()
    torch.testing.assert_close(loss, expected.detach(), atol=1e-5, rtol=0)
    ours = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    assert gradients.keys() <= ours.keys()
    for name, one in ours.items():
        theirs = gradients.get(name, torch.zeros_like(one))
        atol = 1e-6 + 1e-4 * theirs.abs().max().item()
        torch.testing.assert_close(one, theirs, atol=atol, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


def test_the_other_direction_rebuilds_sources_with_their_language(tiny_encoders: Path, pairs: Pairs) -> None:
    model = _model(tiny_encoders, rtl_direction="target_to_source", rtl_languages=["de", "en"])
    _shake(model)
    batch = _batch(tiny_encoders, pairs, languages=["de", "en"])
    expected = _by_hand(model, _rows(batch, "target"), _rows(batch, "source"), start=64, language=0)
    torch.testing.assert_close(model(**batch).loss, expected, atol=1e-5, rtol=0)


def test_both_directions_take_half_of_the_batch_each(tiny_encoders: Path, pairs: Pairs) -> None:
    model = _model(tiny_encoders, rtl_direction="both", rtl_languages=["de", "en"])
    _shake(model)
    batch = _batch(tiny_encoders, pairs, languages=["de", "en"])
    source, target = _rows(batch, "source"), _rows(batch, "target")
    first = (fingerprints(batch["target_input_ids"], batch["target_attention_mask"]) % 2 == 0).tolist()
    assert 4 <= sum(first) <= 12
    one, other = ([i for i, there in enumerate(first) if there == way] for way in (True, False))
    there = _by_hand(model, [source[i] for i in one], [target[i] for i in one], start=64, language=1)
    back = _by_hand(model, [target[i] for i in other], [source[i] for i in other], start=64, language=0)
    torch.testing.assert_close(model(**batch).loss, (there + back) / 2, atol=1e-5, rtol=0)


def test_the_numbering_of_the_authors_starts_at_the_padded_length(
    encoder_folders: dict[str, Path], pairs: Pairs
) -> None:
    model = _model(encoder_folders["bert"], rtl_positions="padded")
    batch = _batch(encoder_folders["bert"], pairs)
    width = max(batch["source_input_ids"].shape[1], batch["target_input_ids"].shape[1])
    expected = _by_hand(model, _rows(batch, "source"), _rows(batch, "target"), start=width)
    torch.testing.assert_close(model(**batch).loss, expected, atol=1e-5, rtol=0)


def test_with_a_ratio_shown_tokens_are_no_labels(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    """Seeing half of the target makes the rest another task; its loss counts the masked half only."""
    model = _model(encoder_folders["bert"], rtl_ratio=0.5)
    batch = _batch(encoder_folders["bert"], pairs)
    seen = []
    head = model.objectives["representation_translation"].head
    head.register_forward_pre_hook(lambda _, rows: seen.append(rows[0]))
    model(**batch)
    (rows,) = seen
    targets = sum(len(ids) - 1 for ids in _rows(batch, "target"))
    assert 0.3 * targets < len(rows.labels) < 0.7 * targets
    assert len(rows.shown) + len(rows.labels) == len(rows.packed.input_ids)


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
    """No gradient reaches what only [CLS] has: the word vector of its piece matters through attention alone."""
    model = _model(encoder_folders["bert"])
    batch = _batch(encoder_folders["bert"], pairs)
    seen = []
    model.objectives["representation_translation"].head.register_forward_pre_hook(
        lambda _, rows: seen.append(rows[0].packed.input_ids)
    )
    model(**batch)
    cls = batch["source_input_ids"][0, 0]
    assert cls not in seen[0]
    assert len(seen[0]) == sum(len(ids) - 1 for side in ("source", "target") for ids in _rows(batch, side))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_ranking_is_the_same_beside_rtl(tiny_encoders: Path, pairs: Pairs, pooling: str) -> None:
    batch = _batch(tiny_encoders, pairs)
    alone = _model(tiny_encoders, pooling=pooling, objectives={"translation_ranking": 1.0})
    beside = _model(tiny_encoders, pooling=pooling, objectives={"translation_ranking": 1.0, **RTL})
    ranking = [model(**batch).losses["translation_ranking"] for model in (alone, beside)]
    torch.testing.assert_close(*ranking, atol=1e-5, rtol=0)


# How it starts


def test_the_head_starts_as_the_encoder_ends(tiny_encoders: Path, encoder_folders: dict[str, Path]) -> None:
    folder = encoder_folders[f"{tiny_encoders.name}-mlm"]
    model = _model(folder, rtl_layers=2)
    head = model.objectives["representation_translation"].head
    checkpoint = AutoModelForMaskedLM.from_pretrained(folder)
    layers = backbone_of(head.encoder).layers
    assert len(layers) == 2
    for own, theirs in zip(layers, backbone_of(model.encoder).layers[-2:], strict=True):
        for (name, weight), other in zip(own.state_dict().items(), theirs.state_dict().values(), strict=True):
            assert torch.equal(weight, other), name
            assert weight.data_ptr() != other.data_ptr(), "a copy, not the encoder's own"
    words = checkpoint.get_input_embeddings().weight
    assert torch.equal(head.prediction.words.weight, words)
    assert torch.equal(head.encoder.get_input_embeddings().weight[0], words[model.config.mask_token_id])
    dense = next(one for name, one in checkpoint.named_parameters() if "dense.weight" in name and "layer" not in name)
    assert torch.equal(head.prediction.dense.weight, dense)


def test_it_opens_again_as_it_was_saved(tiny_encoders: Path, tmp_path: Path, pairs: Pairs) -> None:
    vocabulary = _vocabulary(tiny_encoders, pairs)
    model = _model(tiny_encoders, vocabulary=vocabulary, rtl_layers=1)
    _shake(model)
    model.save_pretrained(tmp_path)
    again = XlmrWithRTLHead.from_pretrained(tmp_path).eval()
    batch = _batch(tiny_encoders, pairs)
    torch.testing.assert_close(again(**batch).loss, model(**batch).loss)
    sentences = AutoModel.from_pretrained(tmp_path)
    assert not any("objectives" in name for name in sentences.state_dict())


# A restricted vocabulary


def _vocabulary(folder: Path, pairs: Pairs) -> RestrictedVocabulary:
    return RestrictedVocabulary.of([target for _, target in pairs], AutoTokenizer.from_pretrained(folder))


def test_a_restricted_vocabulary_is_the_softmax_over_its_pieces(tiny_encoders: Path, pairs: Pairs) -> None:
    vocabulary = _vocabulary(tiny_encoders, pairs)
    whole, restricted = _model(tiny_encoders), _model(tiny_encoders, vocabulary=vocabulary)
    assert len(vocabulary.ids) < whole.config.encoder_config.vocab_size
    assert not any(len(one) == whole.config.encoder_config.vocab_size for one in restricted.objectives.parameters())
    with torch.no_grad():  # pieces outside can no longer be chosen
        outside = torch.ones(whole.config.encoder_config.vocab_size, dtype=torch.bool)
        outside[list(vocabulary.ids)] = False
        whole.objectives["representation_translation"].head.prediction.bias[outside] = -1e9
    batch = _batch(tiny_encoders, pairs)
    torch.testing.assert_close(restricted(**batch).loss, whole(**batch).loss, atol=1e-5, rtol=0)


def test_pieces_that_the_vocabulary_lacks_count_as_unknown(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    folder = encoder_folders["bert"]
    vocabulary = _vocabulary(folder, pairs[:4])
    model = _model(folder, vocabulary=vocabulary)
    batch = _batch(folder, pairs)
    known = torch.tensor(vocabulary.ids)
    assert not torch.isin(batch["target_input_ids"], known).all(), "else the test says nothing"
    prediction = model.objectives["representation_translation"].head.prediction
    labels = prediction._rows_of(batch["target_input_ids"].flatten())
    unknown = AutoTokenizer.from_pretrained(folder).unk_token_id
    told = known[labels]
    expected = torch.where(
        torch.isin(batch["target_input_ids"].flatten(), known), batch["target_input_ids"].flatten(), unknown
    )
    assert torch.equal(told, expected)
    assert model(**batch).loss.isfinite()


def test_a_vocabulary_of_another_tokenizer_is_refused(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    _vocabulary(encoder_folders["bert"], pairs).write(tmp_path / "english.json")
    with pytest.raises(ModelError, match="was made with another tokenizer"):
        RestrictedVocabulary.read(
            tmp_path / "english.json", AutoTokenizer.from_pretrained(encoder_folders["xlm-roberta"])
        )
    again = RestrictedVocabulary.read(tmp_path / "english.json", AutoTokenizer.from_pretrained(encoder_folders["bert"]))
    assert again == _vocabulary(encoder_folders["bert"], pairs)


@pytest.mark.parametrize(
    ("text", "told"), [("{}", "is no vocabulary"), ("no json", "is no vocabulary"), (None, "cannot read")]
)
def test_a_file_that_is_no_vocabulary_is_refused(
    encoder_folders: dict[str, Path], tmp_path: Path, text: str | None, told: str
) -> None:
    if text is not None:
        (tmp_path / "english.json").write_text(text)
    with pytest.raises(ModelError, match=told):
        RestrictedVocabulary.read(tmp_path / "english.json", AutoTokenizer.from_pretrained(encoder_folders["bert"]))


# Every other objective in the same model


@pytest.mark.parametrize("objective", ["translation_language_modeling", "masked_language_modeling"])
@pytest.mark.parametrize("own_words", [False, True])
def test_masked_language_modelling_learns(tiny_encoders: Path, pairs: Pairs, objective: str, own_words: bool) -> None:
    model = _model(tiny_encoders, objectives={objective: 1.0}, tlm_own_words=own_words).train()
    batch = _batch(tiny_encoders, pairs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(60):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


def test_a_sampled_softmax_trains_the_head(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    folder = encoder_folders["bert"]
    model = _model(folder, vocabulary_sample=20)
    batch = _batch(folder, pairs)
    whole = _model(folder)(**batch).loss
    sampled = torch.stack([model(**batch).loss for _ in range(30)]).mean()
    assert (sampled - whole).abs() < 0.5


# What is refused


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"rtl_layers": 4}, "rtl_layers 4 does not fit: this encoder has 3 layers to start from"),
        ({"rtl_layers": 0}, "rtl_layers 0 does not fit"),
        ({"rtl_ratio": 0.0}, "rtl_ratio 0.0 is not above 0 and at most 1"),
        ({"rtl_ratio": 1.5}, "rtl_ratio 1.5 is not above 0 and at most 1"),
        ({"rtl_direction": "back"}, "unknown rtl_direction 'back'"),
        ({"rtl_positions": "own"}, "unknown rtl_positions 'own'"),
        ({"rtl_direction": "both"}, "rtl_direction both rebuilds several languages: list them under rtl_languages"),
        ({"rtl_direction": "both", "rtl_languages": ["de"], "languages": ["de", "en"]}, "rtl_languages must be the"),
        ({"max_length": 200}, "max_length 200 leaves the RTL head no positions for both sentences: use at most 128"),
        ({"vocabulary_sample": 0}, "vocabulary_sample 0 is not positive"),
        ({"masked_share": 1.0}, "masked_share 1.0 is not between 0 and 1"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_start(
    encoder_folders: dict[str, Path], settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(RecipeError) as error:
        _model(encoder_folders["bert"], **settings)
    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)
