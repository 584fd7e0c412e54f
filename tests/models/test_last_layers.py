"""Heads of transformer layers start from the encoder's last layers and compute the same."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForMaskedLM

from hf_xsent import XlmrWithRTLHead
from hf_xsent.models.families import backbone_of
from hf_xsent.models.last_layers import LastLayers
from hf_xsent.models.loading import load_encoder
from hf_xsent.tensors.packing import pack


def test_the_head_starts_as_a_copy_of_the_encoders_end(tiny_encoders: Path, encoder_folders: dict[str, Path]) -> None:
    folder = encoder_folders[f"{tiny_encoders.name}-mlm"]
    objectives = {"representation_translation": {"head_layers": 2}}
    model = XlmrWithRTLHead.from_backbone(str(folder), objectives=objectives, max_length=64)
    objective = model.objectives["representation_translation"]
    checkpoint = AutoModelForMaskedLM.from_pretrained(folder)
    layers = backbone_of(objective.layers.encoder).layers
    assert len(layers) == 2
    for own, theirs in zip(layers, backbone_of(model.encoder).layers[-2:], strict=True):
        for (name, weight), other in zip(own.state_dict().items(), theirs.state_dict().values(), strict=True):
            assert torch.equal(weight, other), name
            assert weight.data_ptr() != other.data_ptr(), "a copy, not the encoder's own"
    words = checkpoint.get_input_embeddings().weight
    assert torch.equal(objective.prediction.words.weight, words)
    mask_row = objective.layers.encoder.get_input_embeddings().weight[0]
    assert torch.equal(mask_row, words[model.config.mask_token_id])
    dense = next(one for name, one in checkpoint.named_parameters() if "dense.weight" in name and "layer" not in name)
    assert torch.equal(objective.prediction.dense.weight, dense)


def test_layers_without_embeddings_continue_the_encoders_hidden_states(tiny_encoders: Path) -> None:
    """The last two layers over the states before them give the encoder's last states."""
    encoder = load_encoder(str(tiny_encoders)).eval()
    layers = LastLayers(encoder.config, 2, embeddings=False).eval()
    layers.start_from(encoder, 4)
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 9, 3, 0, 0]])
    packed = pack([ids], [(ids > 0).long()])
    with torch.no_grad():
        states = list(backbone_of(encoder).hidden_states(packed))
        tokens = torch.tensor([0, 3, 5])
        torch.testing.assert_close(layers(states[-3], packed, tokens), states[-1][tokens], atol=1e-5, rtol=1e-5)
