"""Every stored case of the DAP authors' code is reproduced in float64."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import BertConfig, BertModel

from hf_xsent import DapConfig, XlmrWithRTLHead
from hf_xsent.objectives import representation_translation

FOLDER = Path(os.environ.get("HF_XSENT_ASSETS", "")) / "parity"


def _cases() -> Iterator[Any]:
    files = sorted(FOLDER.glob("*.json")) if os.environ.get("HF_XSENT_ASSETS") else []
    for file in files:
        for name in json.loads(file.read_text())["cases"]:
            yield pytest.param(file, name, id=f"{file.stem}-{name}")


def _objectives(stored: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    arguments = case["args"]
    objectives: dict[str, Any] = {
        "translation_ranking": {
            "temperature": arguments["temp"],
            "symmetric": arguments["cl_dir"] == "both",
            "margin": arguments["ams_margin"],
        }
    }
    if arguments["do_rtl"]:
        objectives["representation_translation"] = {
            "weight": arguments["rtl_weight"],
            "head_layers": case["K"] or 1,
            "positions": "padded",
            "masked_share": 0.5 if case["partial"] else 1.0,  # so that the targets' states are read
            "vocabulary_size": len(stored["en_token_ids"]) if case["en_restricted"] else None,
        }
    if arguments["do_tlm"]:
        objectives["translation_language_modeling"] = {"weight": arguments["tlm_weight"], "untied_embeddings": True}
    return objectives


def _model(stored: dict[str, Any], case: dict[str, Any]) -> XlmrWithRTLHead:
    encoder_config = BertConfig(**stored["config"])
    config = DapConfig(
        encoder_config=encoder_config,
        max_length=stored["L"],
        objectives=_objectives(stored, case),
        training_mlp=case["args"]["mlp_only_train"],
        mask_token_id=case["args"]["mask_token_id"],
        unknown_token_id=1,
    )
    encoder = BertModel(encoder_config, add_pooling_layer=False)
    return XlmrWithRTLHead(config, encoder=encoder).double()


PLACES = {  # theirs to ours
    "bert.": "encoder.",
    "mlp.dense.": "training_mlp.0.",
    "decoder.bert.": "objectives.representation_translation.layers.encoder.",
    "decoder.cls.predictions.transform.dense.": "objectives.representation_translation.prediction.dense.",
    "decoder.cls.predictions.transform.LayerNorm.": "objectives.representation_translation.prediction.norm.",
    "decoder.cls.predictions.decoder.weight": "objectives.representation_translation.prediction.words.weight",
    "decoder.cls.predictions.bias": "objectives.representation_translation.prediction.bias",
    "lm_head.transform.dense.": "objectives.translation_language_modeling.head.dense.",
    "lm_head.transform.LayerNorm.": "objectives.translation_language_modeling.head.norm.",
    "lm_head.decoder.weight": "objectives.translation_language_modeling.head.words.weight",
    "lm_head.bias": "objectives.translation_language_modeling.head.bias",
}
HEAD = "objectives.representation_translation"
MASK_ROW = f"{HEAD}.layers.encoder.embeddings.word_embeddings.weight"
PROJECTION = f"{HEAD}.prediction.words.weight"


def _ours(name: str) -> str | None:
    prefixes = [prefix for prefix in PLACES if name.startswith(prefix)]
    if not prefixes or name.endswith("decoder.bias") or "pooler" in name:  # the bias is the same tensor twice
        return None
    longest = max(prefixes, key=len)
    return PLACES[longest] + name.removeprefix(longest)


def _named(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    found = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
    return {ours: tensor.double() for name, tensor in found.items() if (ours := _ours(name)) is not None}


@pytest.mark.skipif(not os.environ.get("HF_XSENT_ASSETS"), reason="HF_XSENT_ASSETS is not set")
@pytest.mark.parametrize(("file", "name"), list(_cases()))
def test_losses_and_gradients_are_those_of_the_authors_code(
    file: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = json.loads(file.read_text())
    tensors = load_file(file.with_suffix(".safetensors"))
    case = stored["cases"][name]
    mask_id = case["args"]["mask_token_id"]
    model = _model(stored, case)
    weights = _named(tensors, f"{name}.w.")
    if MASK_ROW in weights:  # theirs shares the word table between [MASK] and the projection; ours keeps one row
        weights[MASK_ROW] = weights[MASK_ROW][mask_id : mask_id + 1]
    if case["en_restricted"]:
        weights[f"{HEAD}.prediction.vocabulary"] = torch.tensor(sorted(stored["en_token_ids"]))
    model.load_state_dict(weights)

    ids, mask = tensors["in.input_ids"], tensors["in.attention_mask"]
    if case["args"]["do_tlm"]:
        _give_masking(model, tensors, monkeypatch)
    if case["partial"]:
        _give_partial_mask(tensors, monkeypatch)
    output = model(ids[:, 0], mask[:, 0], ids[:, 1], mask[:, 1])
    output.loss.backward()

    expected = case["float64"]
    assert output.loss.item() == pytest.approx(expected["total"], rel=1e-12)
    assert output.losses["translation_ranking"].item() == pytest.approx(expected["tr"], rel=1e-12)
    for ours, theirs in (("representation_translation", "rtl"), ("translation_language_modeling", "tlm")):
        if ours in output.losses:
            assert output.losses[ours].item() == pytest.approx(expected[theirs], rel=1e-12)
    _compare_gradients(model, _named(tensors, f"{name}.grad.total."), mask_id)


def _compare_gradients(model: XlmrWithRTLHead, expected: dict[str, Tensor], mask_id: int) -> None:
    gradients = {name: one.grad for name, one in model.named_parameters() if one.grad is not None and one.grad.any()}
    if MASK_ROW in gradients:
        row = gradients.pop(MASK_ROW)
        if PROJECTION in expected:  # two tables: theirs has gradients in the [MASK] row alone
            table = expected.pop(MASK_ROW)
            assert table.any(1).nonzero().flatten().tolist() == [mask_id]
            torch.testing.assert_close(row[0], table[mask_id], atol=1e-9, rtol=1e-6)
        else:  # one table: its gradient is the sum of ours
            gradients[PROJECTION][mask_id] += row[0]
            expected[PROJECTION] = expected.pop(MASK_ROW)
    noise = {name for name, one in gradients.items() if name.endswith("key.bias") and one.abs().max() < 1e-15}
    assert gradients.keys() - noise == expected.keys() - noise
    for name in gradients.keys() - noise:
        scale = expected[name].abs().max().item()  # theirs are stored in float32
        torch.testing.assert_close(
            gradients[name], expected[name], atol=1e-6 * scale, rtol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )


def _give_masking(model: XlmrWithRTLHead, tensors: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """Their masked input instead of a drawn one. What is masked comes packed, so each token is found by its place."""
    objective = model.objectives["translation_language_modeling"]
    mask = tensors["in.attention_mask"].bool()
    rows = objective.rows

    def remember(pairs: Any) -> Any:
        packed, origin = rows(pairs)
        callers = pairs.packed.token_order[origin]  # sources row by row, then targets
        by_side = [torch.cat((one[:, 0][mask[:, 0]], one[:, 1][mask[:, 1]])) for one in _given(tensors)]
        changed, labels = (one[callers] for one in by_side)
        monkeypatch.setattr(objective, "masking", lambda _: (changed, labels != -100))
        return packed, origin

    monkeypatch.setattr(objective, "rows", remember)


def _given(tensors: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return tensors["in.tlm_input_ids"], tensors["in.tlm_labels"]


def _give_partial_mask(tensors: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    mask, chosen = tensors["in.attention_mask"].bool(), tensors["in.partial_rtl_mask"]
    by_side = torch.cat((torch.zeros_like(chosen)[mask[:, 0]], chosen[mask[:, 1]]))
    build = representation_translation.translation_rows

    def with_mask(pairs: Any, known: Tensor, predicted: Tensor, start: int, share: float) -> Any:
        masked = by_side[pairs.packed.token_order]
        return build(pairs, known, predicted, start, masked=masked)

    monkeypatch.setattr(representation_translation, "translation_rows", with_mask)
