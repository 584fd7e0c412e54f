"""AWP and WTR against a slow computation of their equations, a word at a time, with Hugging Face's own encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hf_xsent import WacseConfig, WacseForPreTraining
from hf_xsent.errors import RecipeError

AWP, WTR = "aligned_word_prediction", "word_translation_ranking"
Batch = dict[str, Tensor]


def _batch(seed: int = 0, pairs: int = 7, vocabulary: int = 60) -> Batch:
    """Random pairs: words of up to three pieces, pieces of none; links of cut words, several links of one."""
    random = torch.Generator().manual_seed(seed)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=random))

    batch: dict[str, Any] = {}
    for side in ("source", "target"):
        ids, words = [], []
        for _ in range(pairs):
            numbers = [number for number in range(draw(2, 6)) for _ in range(draw(1, 4))]
            numbers = [number for number in numbers if number != 1 or draw(0, 3)]  # the second word may be cut off
            row = [-1, *(number if draw(0, 9) else -1 for number in numbers), -1]
            words.append(torch.tensor(row))
            ids.append(torch.tensor([2, *(draw(5, vocabulary) for _ in numbers), 3]))
        pad = nn.utils.rnn.pad_sequence
        batch[f"{side}_input_ids"] = pad(ids, batch_first=True)
        batch[f"{side}_attention_mask"] = pad([torch.ones_like(one) for one in ids], batch_first=True)
        batch[f"{side}_words"] = pad(words, batch_first=True, padding_value=-1)
    links = torch.full((pairs, 6, 2), -1)
    for row in links[1:]:
        for place in range(draw(1, 7)):
            row[place] = torch.tensor([draw(0, 6), draw(0, 6)])
    return batch | {"links": links}


def _words(batch: Batch, side: str, number: int) -> dict[int, list[int]]:
    """The places of each word's pieces."""
    places: dict[int, list[int]] = {}
    for place, word in enumerate(batch[f"{side}_words"][number].tolist()):
        if word >= 0:
            places.setdefault(word, []).append(place)
    return places


def _directions(batch: Batch) -> list[tuple[int, str, str, dict[int, int], dict[int, list[int]], dict[int, list[int]]]]:
    """For each pair and direction the dictionary of eq. 3, and the words of both sides."""
    found = []
    for number, row in enumerate(batch["links"].tolist()):
        source, target = (_words(batch, side, number) for side in ("source", "target"))
        links = [(i, j) for i, j in row if i in source and j in target]
        there = {i: j for i, j in reversed(links)}
        back = {j: i for i, j in reversed(links)}
        found += [
            (number, "source", "target", there, source, target),
            (number, "target", "source", back, target, source),
        ]
    return found


def _encode(
    model: Any,
    batch: Batch,
    side: str,
    number: int,
    ids: Tensor | None = None,
    language: int = 0,
    layer: int | None = None,
) -> Tensor:
    length = int(batch[f"{side}_attention_mask"][number].sum())
    ids = (batch[f"{side}_input_ids"][number] if ids is None else ids)[:length]
    words = model.encoder.get_input_embeddings()(ids)
    if model.config.languages:
        words = words + model.language_embeddings.weight[language]
    if layer is not None:
        return model.encoder(inputs_embeds=words[None], output_hidden_states=True).hidden_states[layer][0]
    return model.encoder(inputs_embeds=words[None]).last_hidden_state[0]


def _awp(model: Any, batch: Batch, together: bool = True) -> Tensor:
    """Mask all linked words of a sentence together, or one after the other."""
    head = model.objectives[AWP].head
    total = torch.zeros(())
    for number, side, other, links, words, theirs in _directions(batch):
        for masked in [links] if together else [{word: translation} for word, translation in links.items()]:
            ids = batch[f"{side}_input_ids"][number].clone()
            for word in masked:
                ids[words[word]] = model.config.mask_token_id
            states = _encode(model, batch, side, number, ids, language=int(side == "target"))
            scores = head.transform(states) @ model.encoder.get_input_embeddings().weight.T + head.bias
            for word, translation in masked.items():
                for place, answer in zip(words[word], theirs[translation], strict=False):
                    total = total - scores[place].log_softmax(0)[batch[f"{other}_input_ids"][number, answer]]
    return total / (2 * len(batch["links"]))


def _wtr(model: Any, batch: Batch, temperature: float, layer: int | None = None) -> Tensor:
    total = torch.zeros(())
    for number, side, other, links, words, theirs in _directions(batch):
        own = _encode(model, batch, side, number, language=int(side == "target"), layer=layer)
        answers = _encode(model, batch, other, number, language=int(other == "target"), layer=layer)
        if layer is not None:
            own, answers = own - own.mean(0), answers - answers.mean(0)
            scale = torch.cat((own, answers)).square().mean(0).sqrt()
            own, answers = own / scale, answers / scale

        def similarity(word: int, translation: int) -> Tensor:
            pieces = [
                torch.cosine_similarity(own[a], answers[b], dim=0)  # noqa: B023 - used in this round only
                for a in words[word]  # noqa: B023
                for b in theirs[translation]  # noqa: B023
            ]
            return torch.stack(pieces).mean() / temperature

        for word, translation in links.items():
            others = torch.stack([similarity(word, one) for one in theirs])
            total = total + others.logsumexp(0) - similarity(word, translation)
    return total / (2 * len(batch["links"]))


def _model(folder: Path, **settings: Any) -> Any:
    model = WacseForPreTraining.from_backbone(str(folder), max_length=64, **settings).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def _assert_same(model: Any, name: str, expected: Tensor, batch: Batch) -> None:
    assert expected > 0
    expected.backward()
    theirs = {key: one.grad.clone() for key, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    output = model(**batch)
    output.loss.backward()
    torch.testing.assert_close(output.losses[name], expected.detach(), atol=2e-5, rtol=1e-5)
    for key, one in model.named_parameters():
        if one.grad is None:
            assert key not in theirs, key
            continue
        wanted = theirs.get(key, torch.zeros_like(one))
        atol = 1e-6 + 1e-4 * wanted.abs().max().item()
        torch.testing.assert_close(one.grad, wanted, atol=atol, rtol=0, msg=lambda m, k=key: f"{k}: {m}")


@pytest.mark.parametrize("seed", [0, 1])
def test_awp_is_equations_4_and_5(tiny_encoders: Path, seed: int) -> None:
    model = _model(tiny_encoders, objectives={AWP: 1.0})
    batch = _batch(seed)
    _assert_same(model, AWP, _awp(model, batch), batch)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_wtr_is_equations_6_to_8(tiny_encoders: Path, temperature: float) -> None:
    model = _model(tiny_encoders, objectives={WTR: {"weight": 1.0, "temperature": temperature}})
    batch = _batch()
    _assert_same(model, WTR, _wtr(model, batch, temperature), batch)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_wtr_of_a_middle_layer_trains_that_layer_and_those_below(
    encoder_folders: dict[str, Path], pooling: str
) -> None:
    model = _model(
        encoder_folders["bert"], pooling=pooling, objectives={WTR: {"weight": 1.0, "temperature": 0.1, "layer": 1}}
    )
    batch = _batch()
    _assert_same(model, WTR, _wtr(model, batch, 0.1, layer=1), batch)
    norms = {name: one.grad.norm() for name, one in model.named_parameters() if "pooler" not in name}
    above = {name for name in norms if "encoder.encoder.layer.1." in name}
    assert above and all(norms[name] == 0 for name in above)
    assert all(norm > 0 for name, norm in norms.items() if "layer.0.attention.output" in name)


def test_wtr_of_a_middle_layer_leaves_the_ranking_of_sentences_as_it_is(encoder_folders: dict[str, Path]) -> None:
    objectives: dict[str, Any] = {"translation_ranking": {"symmetric": True}}
    alone = _model(encoder_folders["bert"], objectives=objectives)
    both = WacseForPreTraining.from_backbone(
        str(encoder_folders["bert"]), max_length=64, objectives=objectives | {WTR: {"layer": 1}}
    ).eval()
    both.load_state_dict(alone.state_dict())
    losses = both(**_batch()).losses
    torch.testing.assert_close(losses["translation_ranking"], alone(**_batch()).losses["translation_ranking"])


def test_wtr_of_a_layer_that_the_encoder_lacks_is_refused(encoder_folders: dict[str, Path]) -> None:
    with pytest.raises(RecipeError, match="layer 4 does not exist: this encoder has 3 layers"):
        _model(encoder_folders["bert"], objectives={WTR: {"layer": 4}})


def test_languages_are_added_in_both_passes(tiny_encoders: Path) -> None:
    model = _model(tiny_encoders, objectives={AWP: 1.0, WTR: 1.0}, languages=["de", "en"])
    batch = _batch()
    ids = torch.tensor([0, 1]).repeat_interleave(len(batch["links"]))
    losses = model(**batch, language_ids=ids).losses
    torch.testing.assert_close(losses[AWP], _awp(model, batch).detach(), atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(losses[WTR], _wtr(model, batch, 1.0).detach(), atol=2e-5, rtol=1e-5)


def test_the_preset_is_the_papers(encoder_folders: dict[str, Path]) -> None:
    weights = {name: settings.weight for name, settings in WacseConfig().objectives.items()}
    assert weights == {"translation_ranking": 0.8, AWP: 0.1, WTR: 0.1}
    assert WacseConfig().pooling == "cls"
    model = _model(encoder_folders["xlm-roberta"])
    output = model(**_batch())
    weighted = sum(model.config.objectives[name].weight * loss for name, loss in output.losses.items())
    torch.testing.assert_close(output.loss.detach(), weighted)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_and_the_order_of_pairs_do_not_count(tiny_encoders: Path, pooling: str) -> None:
    objectives = {"translation_ranking": {"symmetric": True}, AWP: 0.1, WTR: 0.1}
    model = _model(tiny_encoders, pooling=pooling, objectives=objectives)
    batch = _batch()
    wide = {
        name: one if name == "links" else nn.functional.pad(one, (0, 5), value=-1 if "words" in name else 0)
        for name, one in batch.items()
    }
    wide["links"] = nn.functional.pad(batch["links"], (0, 0, 0, 3), value=-1)
    order = torch.randperm(len(batch["links"]))
    turned = {name: one[order] for name, one in wide.items()}
    expected = model(**batch)
    for other in (wide, turned):
        losses = model(**other).losses
        for name, loss in expected.losses.items():
            torch.testing.assert_close(losses[name], loss, atol=2e-5, rtol=1e-5)


def test_a_pair_without_links_adds_nothing_but_counts(encoder_folders: dict[str, Path]) -> None:
    model = _model(encoder_folders["bert"], objectives={AWP: 1.0, WTR: 1.0})
    batch = _batch()
    without = {name: one[1:] for name, one in batch.items()}
    assert (batch["links"][0] == -1).all()
    count = len(batch["links"])
    for name, loss in model(**batch).losses.items():
        torch.testing.assert_close(loss, model(**without).losses[name] * (count - 1) / count)


def test_a_share_of_the_sentences_is_right_on_average(encoder_folders: dict[str, Path]) -> None:
    model = _model(encoder_folders["bert"], objectives={AWP: {"weight": 1.0, "masked_share": 0.5}})
    batch = _batch(pairs=20)
    whole = _awp(model, batch)
    some = torch.stack([model(**batch).losses[AWP] for _ in range(60)])
    assert some.std() > 0.05 * whole
    assert abs(some.mean() - whole) < 4 * some.std() / 60**0.5


def test_a_share_of_the_words_leaves_the_others_as_context(encoder_folders: dict[str, Path]) -> None:
    """With a small share hardly two words of a sentence are masked together: eq. 4, which masks one."""
    model = _model(encoder_folders["bert"], objectives={AWP: {"weight": 1.0, "word_share": 0.3}})
    batch = _batch(pairs=20)
    encoded = model.encode_pairs(batch)
    (sampled,) = encoded.sampled[AWP]
    masked = int((sampled.rows.packed.input_ids == model.config.mask_token_id).sum())
    together = _model(encoder_folders["bert"], objectives={AWP: 1.0}).encode_pairs(batch).sampled[AWP][0]
    assert masked < 0.6 * int((together.rows.packed.input_ids == model.config.mask_token_id).sum())
    assert sampled.count == pytest.approx(0.3 * 40)
    one_by_one = _awp(model, batch, together=False)
    some = torch.stack([model(**batch).losses[AWP] for _ in range(60)])
    assert some.std() > 0.05 * one_by_one
    assert abs(some.mean() - one_by_one) < 4 * some.std() / 60**0.5 + 0.02 * one_by_one


def test_only_sentences_with_a_masked_word_are_encoded_again(encoder_folders: dict[str, Path]) -> None:
    model = _model(encoder_folders["bert"], objectives={AWP: 1.0})
    batch = _batch()
    batch["links"][5:] = -1
    seen: list[Any] = []
    encode = model._encode
    model._encode = lambda packed, tokens, languages: seen.append((packed, tokens)) or encode(packed, tokens, languages)
    model(**batch)
    ((packed, tokens),) = seen
    linked = {(number, side) for number, side, _, links, _, _ in _directions(batch) if links}
    assert len(packed.lengths) == len(linked)
    assert (packed.input_ids[tokens] == model.config.mask_token_id).all()
    assert len(tokens) == sum(
        min(len(words[a]), len(theirs[b]))
        for _, _, _, links, words, theirs in _directions(batch)
        for a, b in links.items()
    )


def test_the_head_starts_from_the_checkpoints_own(encoder_folders: dict[str, Path]) -> None:
    trained = WacseForPreTraining.from_backbone(str(encoder_folders["bert-mlm"]), max_length=64)
    plain = WacseForPreTraining.from_backbone(str(encoder_folders["bert"]), max_length=64)
    dense = [one.objectives[AWP].head.dense.weight for one in (trained, plain)]
    assert torch.equal(dense[1], torch.eye(len(dense[1])))
    assert not torch.equal(dense[0], dense[1])
