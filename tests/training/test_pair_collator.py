from __future__ import annotations

import pickle

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from hf_xsent.data.sampling import collators
from hf_xsent.data.sampling.collators import PairCollator
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
def test_a_language_without_embedding_is_an_error(
    wordpiece_tokenizer: PreTrainedTokenizerFast, languages: list[str], missing: str
) -> None:
    collator = PairCollator(wordpiece_tokenizer, 32, languages=languages)
    with pytest.raises(DataError, match=f"^language '{missing}' has no embedding: list it under languages"):
        collator(EXAMPLES)


LINKED = [
    EXAMPLES[0] | {"links": "0-0 1-1 2-2 5-5 6-6"},
    EXAMPLES[1],
    {"source": "今日は寒いです。", "target": "It is cold today.", "language": "ja", "links": "3-2 0-3 1-3 7-4"},
]


def test_links_hold_words_of_pieces_together(unigram_tokenizer: PreTrainedTokenizerFast) -> None:
    """The Japanese sentence is one piece, so its characters are one word to the model."""
    batch = PairCollator(unigram_tokenizer, 32, links=True)(LINKED)
    assert batch["source_words"].shape == batch["source_input_ids"].shape
    french = unigram_tokenizer.convert_ids_to_tokens(batch["source_input_ids"][0])
    words = batch["source_words"][0].tolist()
    assert words[0] == words[french.index("</s>")] == -1
    assert [french[place] for place, word in enumerate(words) if word == 1] == ["▁chat"]
    assert batch["links"][0].tolist() == [[0, 0], [1, 1], [2, 2], [5, 5], [6, 6]]
    assert (batch["links"][1] == -1).all()
    assert batch["links"][2, 0, 0] == 0


def test_links_of_words_that_are_cut_off_go(wordpiece_tokenizer: PreTrainedTokenizerFast) -> None:
    whole = PairCollator(wordpiece_tokenizer, 32, links=True)(LINKED)
    assert whole["links"][0].tolist() == [[0, 0], [1, 1], [2, 2], [5, 5], [6, 6]]
    cut = PairCollator(wordpiece_tokenizer, 5, links=True)(LINKED)
    assert cut["links"][0].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert cut["source_words"][0].tolist() == [-1, 0, 1, 2, -1]


def test_a_batch_without_links_has_an_empty_row_a_pair(wordpiece_tokenizer: PreTrainedTokenizerFast) -> None:
    assert PairCollator(wordpiece_tokenizer, 32, links=True)(EXAMPLES)["links"].shape == (2, 0, 2)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_large_batch_is_tokenized_in_blocks_with_the_same_result(
    unigram_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    monkeypatch.setattr(unigram_tokenizer, "padding_side", side)
    collator = PairCollator(unigram_tokenizer, 16, links=True)
    at_once = collator(LINKED)
    monkeypatch.setattr(collators, "_SENTENCES_AT_ONCE", 2)
    in_blocks = collator(LINKED)
    assert at_once.keys() == in_blocks.keys()
    assert all(torch.equal(at_once[name], in_blocks[name]) for name in at_once)


def test_it_travels_to_data_loader_workers(wordpiece_tokenizer: PreTrainedTokenizerFast) -> None:
    collator = PairCollator(wordpiece_tokenizer, 32, languages=["de", "en", "fr"])
    again = pickle.loads(pickle.dumps(collator))
    for name, tensor in collator(EXAMPLES).items():
        assert torch.equal(again(EXAMPLES)[name], tensor)


def test_a_prompt_precedes_each_sentence_and_has_no_words(wordpiece_tokenizer: PreTrainedTokenizerFast) -> None:
    prompt = "the chair "
    plain = PairCollator(wordpiece_tokenizer, 32, links=True)(LINKED[:2])
    batch = PairCollator(wordpiece_tokenizer, 32, links=True, prompt=prompt)(LINKED[:2])
    pieces = len(wordpiece_tokenizer(prompt, add_special_tokens=False)["input_ids"])
    expected = wordpiece_tokenizer([prompt + one["target"] for one in LINKED[:2]], padding=True, return_tensors="pt")
    assert torch.equal(batch["target_input_ids"], expected["input_ids"])
    assert (batch["target_words"][:, 1 : pieces + 1] == -1).all()
    assert torch.equal(batch["target_words"][:, pieces + 1 :], plain["target_words"][:, 1:])
    assert torch.equal(batch["links"], plain["links"])


def test_a_prompt_precedes_mined_negatives(wordpiece_tokenizer: PreTrainedTokenizerFast) -> None:
    examples = [one | {"target_negatives": ["a chair"]} for one in EXAMPLES]
    batch = PairCollator(wordpiece_tokenizer, 32, negatives={"target": 1}, prompt="the ")(examples)
    expected = wordpiece_tokenizer(["the a chair"] * len(examples), return_tensors="pt")
    assert torch.equal(batch["target_negative_input_ids"], expected["input_ids"])
