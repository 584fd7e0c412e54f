"""Students: an encoder of fewer layers starts from evenly spaced ones, in every family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from hf_xsent.errors import RecipeError
from hf_xsent.models.families import backbone_of
from hf_xsent.models.layer_selection import reduced_config, select_layers, spaced_layers
from hf_xsent.models.loading import load_encoder
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining


@pytest.mark.parametrize("total", range(1, 25))
def test_layers_are_evenly_spaced_from_the_first_to_the_last(total: int) -> None:
    for count in range(1, total + 1):
        chosen = spaced_layers(total, count)
        assert len(set(chosen)) == count and chosen == sorted(chosen) and chosen[0] == 0
        assert count == 1 or chosen[-1] == total - 1
        gaps = [after - before for before, after in zip(chosen, chosen[1:], strict=False)]
        assert not gaps or max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize("count", [0, 4])
def test_layers_that_do_not_exist_are_refused(encoder_folders: dict[str, Path], count: int) -> None:
    with pytest.raises(RecipeError, match=f"encoder_layers {count} .*3"):
        spaced_layers(3, count)


def test_a_student_has_the_weights_of_its_layers_and_opens_again(tiny_encoders: Path, tmp_path: Path) -> None:
    whole = load_encoder(str(tiny_encoders))
    student = SentenceEncoderForPreTraining.from_backbone(str(tiny_encoders), encoder_layers=2, pooling="cls")
    assert student.config.encoder_layers == student.config.encoder_config.num_hidden_layers == 2
    for layer, number in zip(student.backbone.layers, (0, 2), strict=True):
        for name, weight in layer.named_parameters():
            assert torch.equal(weight, dict(backbone_of(whole).layers[number].named_parameters())[name])
    assert student.config.encoder_config.to_dict() == student.encoder.config.to_dict()
    reduced = reduced_config(whole.config, 2).to_dict() | {"_name_or_path": ""}
    assert reduced == student.encoder.config.to_dict()
    student.save_pretrained(tmp_path)
    further = SentenceEncoderForPreTraining.from_pretrained(tmp_path, objectives={"interpolation": 1.0})
    assert further.config.encoder_layers is None and len(further.backbone.layers) == 2
    opened = AutoModel.from_pretrained(tmp_path)
    ids = torch.arange(5, 17).view(2, 6)
    expected = student.eval().embed([ids], [torch.ones_like(ids)])
    assert torch.equal(opened.eval().embed([ids], [torch.ones_like(ids)]), expected)
    plain = load_encoder(str(tiny_encoders)).eval()
    select_layers(plain, 2)
    assert torch.allclose(plain(input_ids=ids).last_hidden_state[:, 0], expected, atol=1e-5)
