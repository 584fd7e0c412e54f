from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from hf_xsent import XlmrWithRTLHead
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.models.mlm_head import MLMHead, load_mlm_head


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "modernbert"])
def test_a_trained_heads_scores_are_the_checkpoints(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], name: str
) -> None:
    folder = encoder_folders[f"{name}-mlm"]
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms that a new head has, too, would prove nothing
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(tmp_path)

    batch = AutoTokenizer.from_pretrained(folder)(sentences, padding=True, return_tensors="pt")
    head = load_mlm_head(str(tmp_path))
    with torch.no_grad():
        logits = model(**batch).logits
        states = model.base_model(**batch).last_hidden_state
        scores = head.transform(states) @ model.get_input_embeddings().weight.T + head.bias
    torch.testing.assert_close(scores, logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "modernbert"])
def test_where_the_checkpoint_has_no_head_a_new_one_starts_plain(encoder_folders: dict[str, Path], name: str) -> None:
    head = load_mlm_head(str(encoder_folders[name]))
    assert isinstance(head, MLMHead)
    size = head.dense.in_features
    states, words = torch.randn(5, size), torch.randn(7, size)
    plain = torch.nn.functional.layer_norm(head.activation(states), (size,), eps=head.norm.eps) @ words.T
    torch.testing.assert_close(head.transform(states) @ words.T, plain)
    assert not head.bias.any()


@pytest.mark.parametrize("objective", ["translation_language_modeling", "masked_language_modeling"])
def test_a_method_starts_from_the_head_that_masked_language_modelling_trained(
    tiny_encoders: Path, tmp_path: Path, objective: str
) -> None:
    settings: dict[str, Any] = {"max_length": 24}
    first: Any = XlmrWithRTLHead.from_backbone(str(tiny_encoders), objectives={objective: 1.0}, **settings)
    with torch.no_grad():
        for weight in first.objectives[objective].head.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    first.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_encoders).save_pretrained(tmp_path)
    trained = first.objectives[objective].head

    names = ["representation_translation", "aligned_word_prediction"]
    heads = {"representation_translation": "prediction", "aligned_word_prediction": "head"}
    second: Any = XlmrWithRTLHead.from_backbone(str(tmp_path), objectives=dict.fromkeys(names, 1.0), **settings)
    for name in names:
        head = getattr(second.objectives[name], heads[name])
        for part in ("dense.weight", "norm.weight", "bias"):
            torch.testing.assert_close(head.state_dict()[part], trained.state_dict()[part])


def test_a_head_with_output_embeddings_in_itself_is_not_copied(tiny_encoders: Path, tmp_path: Path) -> None:
    objectives = {"masked_language_modeling": {"untied_embeddings": True}}
    first: Any = XlmrWithRTLHead.from_backbone(str(tiny_encoders), objectives=objectives, max_length=24)
    torch.nn.init.normal_(first.objectives["masked_language_modeling"].head.bias)
    first.save_pretrained(tmp_path)
    assert not load_mlm_head(str(tmp_path)).bias.any()


def test_loading_a_head_says_nothing(encoder_folders: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    load_mlm_head(str(encoder_folders["bert"]))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("objective", ["translation_language_modeling", "masked_language_modeling"])
@pytest.mark.parametrize("untied_embeddings", [False, True])
def test_masked_language_modelling_learns(
    tiny_encoders: Path, pairs: list[tuple[str, str]], objective: str, untied_embeddings: bool
) -> None:
    objectives = {objective: {"untied_embeddings": untied_embeddings}}
    model = XlmrWithRTLHead.from_backbone(str(tiny_encoders), objectives=objectives, max_length=64).train()
    examples = [{"source": source, "target": target, "language": "de"} for source, target in pairs]
    batch = PairCollator(AutoTokenizer.from_pretrained(tiny_encoders), max_length=64)(examples)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(60):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])
