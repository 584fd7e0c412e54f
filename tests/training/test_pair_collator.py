from __future__ import annotations

import pickle

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from hf_xsent.data.collators import PairCollator
from hf_xsent.errors import DataError

EXAMPLES = [
    {"source": "Le chat dort sur la chaise.", "target": "The cat sleeps on the chair.", "language": "fr"},
    {"source": "Wo ist der Bahnhof?", "target": "Where is the station?", "language": "de"},
]


def test_both_sides_are_tokenised_and_padded_alone(wordpiece_tokenizer: PreTrainedTokenizerFast) -> None:
    batch = PairCollator(wordpiece_tokenizer, max_length=32)(EXAMPLES)
    assert list(batch) == [
        "source_input_ids",
        "source_attention_mask",
        "target_input_ids",
        "target_attention_mask",
    ]
    for side in ("source", "target"):
        expected = wordpiece_tokenizer([example[side] for example in EXAMPLES], padding=True, return_tensors="pt")
        assert torch.equal(batch[f"{side}_input_ids"], expected["input_ids"])
        assert torch.equal(batch[f"{side}_attention_mask"], expected["attention_mask"])
    assert batch["source_attention_mask"].sum(1).tolist() == [9, 7]


def test_sentences_are_cut_but_keep_their_end_token(unigram_tokenizer: PreTrainedTokenizerFast) -> None:
    batch = PairCollator(unigram_tokenizer, max_length=5)(EXAMPLES)
    assert batch["source_input_ids"].shape == batch["target_input_ids"].shape == (2, 5)
    assert (batch["source_input_ids"][:, 0] == unigram_tokenizer.bos_token_id).all()
    assert (batch["target_input_ids"][:, -1] == unigram_tokenizer.eos_token_id).all()


def test_language_ids_are_those_of_all_sources_then_of_all_targets(
    wordpiece_tokenizer: PreTrainedTokenizerFast,
) -> None:
    collator = PairCollator(wordpiece_tokenizer, 32, languages=["de", "en", "fr"], target_language="en")
    assert collator(EXAMPLES)["language_ids"].tolist() == [2, 0, 1, 1]


@pytest.mark.parametrize(("languages", "missing"), [(["de", "en"], "fr"), (["de", "fr"], "en")])
def test_a_language_without_embedding_is_told(
    wordpiece_tokenizer: PreTrainedTokenizerFast, languages: list[str], missing: str
) -> None:
    collator = PairCollator(wordpiece_tokenizer, 32, languages=languages)
    with pytest.raises(DataError, match=f"^language '{missing}' has no embedding: list it under languages"):
        collator(EXAMPLES)


def test_it_travels_to_data_loader_workers(wordpiece_tokenizer: PreTrainedTokenizerFast) -> None:
    collator = PairCollator(wordpiece_tokenizer, 32, languages=["de", "en", "fr"])
    again = pickle.loads(pickle.dumps(collator))
    for name, tensor in collator(EXAMPLES).items():
        assert torch.equal(again(EXAMPLES)[name], tensor)
