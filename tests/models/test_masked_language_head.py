from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from hf_xsent.models.masked_language_head import MaskedLanguageHead, load_masked_language_head


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
    head = load_masked_language_head(str(tmp_path))
    with torch.no_grad():
        logits = model(**batch).logits
        states = model.base_model(**batch).last_hidden_state
        scores = head.transform(states) @ model.get_input_embeddings().weight.T + head.bias
    torch.testing.assert_close(scores, logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "modernbert"])
def test_where_the_checkpoint_has_no_head_a_new_one_starts_plain(encoder_folders: dict[str, Path], name: str) -> None:
    head = load_masked_language_head(str(encoder_folders[name]))
    assert isinstance(head, MaskedLanguageHead)
    size = head.dense.in_features
    states, words = torch.randn(5, size), torch.randn(7, size)
    plain = torch.nn.functional.layer_norm(head.activation(states), (size,), eps=head.norm.eps) @ words.T
    torch.testing.assert_close(head.transform(states) @ words.T, plain)
    assert not head.bias.any()


def test_loading_a_head_says_nothing(encoder_folders: dict[str, Path], capfd: pytest.CaptureFixture[str]) -> None:
    load_masked_language_head(str(encoder_folders["bert"]))
    assert capfd.readouterr() == ("", "")
