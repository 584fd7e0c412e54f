from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

from hf_xsent.data.words.splitting import Words, split_words
from hf_xsent.errors import DataError, MissingExtraError, ModelError, RecipeError
from hf_xsent.settings.read import read_settings
from hf_xsent.words.aligners import open_aligner
from hf_xsent.words.embedding import EmbeddingAligner
from hf_xsent.words.posteriors import link_posteriors
from hf_xsent.words.settings import AlignerSettings
from hf_xsent.words.span_prediction import SpanAligner
from hf_xsent.words.statistical import StatisticalAligner, grow_diag_final_and

Pairs = list[tuple[str, str]]


def _words(texts: list[str]) -> list[Words]:
    return [split_words(text) for text in texts]


# By embeddings


def _similarities_by_hand(aligner: Any, source: Words, target: Words) -> tuple[torch.Tensor, list[list[list[int]]]]:
    """With the encoder's own forward, one sentence at a time; and the words of each piece."""
    states, of_pieces, kept = [], [], []
    for words in (source, target):
        encoded = aligner.tokenizer(words.text, return_offsets_mapping=True)
        ids = torch.tensor(encoded["input_ids"])[None]
        with torch.no_grad():
            hidden = aligner.model.encoder(ids, output_hidden_states=True).hidden_states[aligner.layer][0]
        numbers_of_pieces = [
            [k for k, (a, b) in enumerate(words.spans) if max(a, start) < min(b, end)]
            for start, end in encoded["offset_mapping"]
        ]
        keep = [place for place, numbers in enumerate(numbers_of_pieces) if numbers]
        states.append(hidden - hidden.mean(0))
        kept.append(keep)
        of_pieces.append([numbers_of_pieces[place] for place in keep])
    scale = torch.cat(states).square().mean(0).sqrt()
    source, target = (
        torch.nn.functional.normalize(side[keep] / scale) for side, keep in zip(states, kept, strict=True)
    )
    return source @ target.T, of_pieces


def _posteriors_by_hand(similarities: torch.Tensor) -> torch.Tensor:
    """By the definition: the share of all sequences of states, weighted by their joint probability."""
    pieces, states = similarities.shape
    jumps = [[math.exp(-0.3 * abs(k - j - 1)) + 0.05 for k in range(states)] for j in range(states)]
    posteriors = torch.zeros(pieces, states, dtype=torch.float64)
    for sequence in itertools.product(range(states), repeat=pieces):
        probability = math.prod(math.exp(similarities[i, j].item() / 0.08) for i, j in enumerate(sequence))
        for j, k in itertools.pairwise(sequence):
            probability *= jumps[j][k] / sum(jumps[j])
        for i, j in enumerate(sequence):
            posteriors[i, j] += probability
    return posteriors / posteriors.sum(1, keepdim=True)


def test_posteriors_equal_those_of_all_sequences_of_states() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = [(4, 5), (5, 3), (1, 4), (2, 1), (5, 5)]
    similarities = torch.zeros(len(sizes), 5, 5)
    is_source, is_target = (torch.arange(5) < torch.tensor([size[side] for size in sizes])[:, None] for side in (0, 1))
    for number, (rows, columns) in enumerate(sizes):
        similarities[number, :rows, :columns] = torch.rand(rows, columns, generator=generator) * 0.3
    posteriors = link_posteriors(similarities, is_source, is_target)
    for number, (rows, columns) in enumerate(sizes):
        pair = similarities[number, :rows, :columns]
        expected = (_posteriors_by_hand(pair) * _posteriors_by_hand(pair.T).T).sqrt()
        torch.testing.assert_close(posteriors[number, :rows, :columns].double(), expected, rtol=1e-4, atol=1e-6)


def test_neighbours_decide_which_of_two_equal_words_is_linked() -> None:
    similarities = torch.zeros(1, 4, 4)
    for i, j in [(0, 0), (0, 2), (1, 1), (2, 0), (2, 2), (3, 3)]:  # "the dog the cat": two equal words
        similarities[0, i, j] = 0.5
    all_pieces = torch.ones(1, 4, dtype=torch.bool)
    posteriors = link_posteriors(similarities, all_pieces, all_pieces)[0]
    assert (posteriors >= 0.3).nonzero().tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]


def test_posteriors_of_long_sentences_are_finite() -> None:
    generator = torch.Generator().manual_seed(0)
    similarities = torch.rand(2, 512, 500, generator=generator) * 2 - 1
    is_source, is_target = (
        torch.arange(512) < torch.tensor([[512], [3]]),
        torch.arange(500) < torch.tensor([[7], [500]]),
    )
    posteriors = link_posteriors(similarities, is_source, is_target)
    assert posteriors[0, :, :7].isfinite().all()
    assert posteriors[1, :3].isfinite().all()


def test_words_of_pieces_with_high_posteriors_are_linked_best_first(tiny_encoders: Path, pairs: Pairs) -> None:
    aligner = EmbeddingAligner.from_pretrained(str(tiny_encoders), layer=2)
    sources, targets = (_words([pair[side] for pair in pairs]) for side in (0, 1))
    for threshold in (0.05, 0.3):
        aligner.threshold = threshold
        aligned = aligner.align(sources, targets)
        for source, target, links in zip(sources, targets, aligned, strict=True):
            similarities, of_pieces = _similarities_by_hand(aligner, source, target)
            there = [torch.ones(1, size, dtype=torch.bool) for size in similarities.shape]
            scores: dict[tuple[int, int], float] = {}
            for (i, j), score in np.ndenumerate(link_posteriors(similarities[None], *there)[0].numpy()):
                for link in itertools.product(of_pieces[0][i], of_pieces[1][j]):
                    scores[link] = max(score, scores.get(link, 0))
            assert set(links) == {link for link, score in scores.items() if score >= threshold}
            assert [scores[link] for link in links] == pytest.approx(sorted((scores[x] for x in links), reverse=True))
        assert any(aligned)


def test_neither_batches_nor_order_count(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    aligner = EmbeddingAligner.from_pretrained(str(encoder_folders["bert"]))
    sources, targets = (_words([pair[side] for pair in pairs]) for side in (0, 1))
    together = aligner.align(sources, targets)
    aligner.tokens_per_batch = 20
    assert [set(links) for links in aligner.align(sources, targets)] == [set(links) for links in together]
    turned = aligner.align(sources[::-1], targets[::-1])[::-1]
    assert [set(links) for links in turned] == [set(links) for links in together]


def test_the_models_prompt_precedes_each_sentence_and_is_no_word(tiny_encoders: Path, pairs: Pairs) -> None:
    aligner = EmbeddingAligner.from_pretrained(str(tiny_encoders), layer=2)
    sides = [_words([pair[side] for pair in pairs]) for side in (0, 1)]
    without, prompt = aligner.align(*sides), "We eat: "
    start = len(prompt)
    longer = [
        [Words(prompt + words.text, tuple((i + start, j + start) for i, j in words.spans)) for words in side]
        for side in sides
    ]
    expected = aligner.align(*longer)
    assert expected != without
    aligner.model.config.prompts, aligner.model.config.default_prompt_name = {"query": prompt}, "query"
    prompted = EmbeddingAligner(aligner.model, aligner.tokenizer, layer=2)
    assert prompted.align(*sides) == expected


def test_spaces_between_the_words_of_a_script_without_spaces_do_not_count(encoder_folders: dict[str, Path]) -> None:
    aligner = EmbeddingAligner.from_pretrained(str(encoder_folders["xlm-roberta"]), layer=2)
    sides = "私は本を読む", "we read 本"
    natural = aligner.align(_words([sides[0]]), _words([sides[1]]))
    tokenized = aligner.align([split_words(" ".join(sides[0]), "spaces")], [split_words(sides[1], "spaces")])
    assert natural[0]
    assert tokenized == natural


def test_a_sentence_without_words_has_no_links(encoder_folders: dict[str, Path]) -> None:
    aligner = EmbeddingAligner.from_pretrained(str(encoder_folders["bert"]))
    assert aligner.align(_words([""]), _words(["dog"])) == [[]]
    assert aligner.align(_words(["", "Der Hund"]), _words(["dog", "The dog"]))[0] == []
    assert aligner.align([], []) == []


def test_words_after_the_maximum_length_have_no_links(encoder_folders: dict[str, Path]) -> None:
    aligner = EmbeddingAligner.from_pretrained(str(encoder_folders["bert"]))
    aligner.max_length = 6
    long = _words(["the dog eats the small cat today and tomorrow"])
    assert max(i for i, _ in aligner.align(long, long)[0]) < 6


def test_a_token_without_an_embedding_raises(encoder_folders: dict[str, Path]) -> None:
    aligner = EmbeddingAligner.from_pretrained(str(encoder_folders["bert"]))
    aligner.tokenizer.add_tokens(["newtok"])
    with pytest.raises(ModelError, match="has the token 'newtok', but the encoder no embedding for it"):
        aligner.align(_words(["The dog"]), _words(["Der newtok"]))


def test_hidden_states_that_are_not_finite_raise(encoder_folders: dict[str, Path]) -> None:
    aligner = EmbeddingAligner.from_pretrained(str(encoder_folders["bert"]))
    with torch.no_grad():
        next(aligner.model.encoder.parameters()).fill_(float("nan"))
    with pytest.raises(
        DataError, match="^the hidden states of 'The dog' or of its translation are not finite in torch"
    ):
        aligner.align(_words(["The dog"]), _words(["Der Hund"]))


def test_the_aligner_has_the_settings(encoder_folders: dict[str, Path], _spans: Path) -> None:
    def opened(**settings: Any) -> Any:
        return open_aligner(AlignerSettings(**settings))

    bert, spans = str(encoder_folders["bert"]), str(_spans)
    default = opened(model=bert)
    assert (default.threshold, default.layer, default.model.dtype) == (0.3, 2, torch.float32)
    changed = opened(model=bert, layer=1, threshold=0.6, precision="bfloat16")
    assert (changed.threshold, changed.layer, changed.model.dtype) == (0.6, 1, torch.bfloat16)
    changed = opened(aligner="span", model=spans, threshold=0.5, precision="bfloat16")
    assert (changed.threshold, changed.model.dtype) == (0.5, torch.bfloat16)
    assert opened(aligner="span", model=spans).identity == (0.9, "torch.float32")


def test_a_layer_that_does_not_exist_raises(encoder_folders: dict[str, Path]) -> None:
    with pytest.raises(ModelError, match="^layer 4 does not exist: this encoder has layers 0"):
        EmbeddingAligner.from_pretrained(str(encoder_folders["bert"]), layer=4)


# By statistics


def test_words_that_stand_together_often_are_linked() -> None:
    pytest.importorskip("eflomal", reason="the extra align is not installed")
    german, english = ["Hund", "Katze", "Maus", "Kuh"], ["dog", "cat", "mouse", "cow"]
    numbers = [(i, j) for i in range(4) for j in range(4) if i != j] * 20
    sources = _words([f"{german[i]} {german[j]}" for i, j in numbers])
    targets = _words([f"{english[j]} {english[i]}" for i, j in numbers])
    aligned = StatisticalAligner().align(sources, targets)
    assert sum({*links} == {(0, 1), (1, 0)} for links in aligned) > 0.9 * len(aligned)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "eflomal", None)
    with pytest.raises(MissingExtraError, match=r'pip install "hf-xsent\[align\]"'):
        open_aligner(AlignerSettings(aligner="statistical"))


def test_both_directions_grow_into_one() -> None:
    forward = {(0, 0), (1, 1), (2, 1), (4, 4), (6, 0)}
    backward = {(0, 0), (1, 1), (3, 4), (7, 7)}
    assert grow_diag_final_and(forward, backward)[:2] == [(0, 0), (1, 1)]
    assert set(grow_diag_final_and(forward, backward)) == {(0, 0), (1, 1), (2, 1), (3, 4), (7, 7)}
    assert grow_diag_final_and(set(), set()) == []


# By span prediction


@pytest.fixture
def _spans(encoder_folders: dict[str, Path], tmp_path: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"])
    config = BertConfig.from_pretrained(encoder_folders["bert"])
    model = BertForQuestionAnswering(config)
    torch.nn.init.normal_(model.qa_outputs.weight, std=3)
    model.save_pretrained(tmp_path / "spans")
    tokenizer.save_pretrained(tmp_path / "spans")
    return tmp_path / "spans"


def test_answers_are_those_of_the_slow_way(_spans: Path, pairs: Pairs) -> None:
    aligner = SpanAligner.from_pretrained(str(_spans), threshold=1e-6)
    aligner.questions = 5
    sources, targets = (_words([pair[side] for pair in pairs[:4]]) for side in (0, 1))
    aligned, dropped = aligner.align(sources, targets), 0
    for source, target, links in zip(sources, targets, aligned, strict=True):
        scores: dict[tuple[int, int], float] = {}
        for asking, answering, turn in ((source, target, False), (target, source, True)):
            for word, (a, b) in enumerate(asking.spans):
                question = f"{asking.text[:a]} ¶ {asking.text[a:b]} ¶ {asking.text[b:]}"
                encoded = aligner.tokenizer(question, answering.text, return_offsets_mapping=True, return_tensors="pt")
                offsets = encoded.pop("offset_mapping")[0].tolist()
                context = [place for place, part in enumerate(encoded.sequence_ids(0)) if part == 1]
                with torch.no_grad():
                    output = aligner.model(**encoded)
                seen = [0, *context]
                start, end = (
                    dict(zip(seen, logits[0, seen].softmax(0).tolist(), strict=True))
                    for logits in (output.start_logits, output.end_logits)
                )
                best = max((start[i] * end[j], i, j) for i in context for j in context if i <= j < i + 15)
                first, last = offsets[best[1]][0], offsets[best[2]][1]
                inside = [k for k, (c, d) in enumerate(answering.spans) if first <= c and d <= last]
                for other in inside:
                    link = (other, word) if turn else (word, other)
                    if turn and link not in scores:  # WSPAlign drops what only the backward direction predicts
                        dropped += 1
                        continue
                    scores[link] = scores.get(link, 0) + best[0] / len(inside)
        assert set(links) == {link for link, score in scores.items() if score >= 1e-6}
        assert links[0] == max(scores, key=lambda link: round(scores[link], 5))
        aligner.threshold = 0.5
        assert set(aligner.align([source], [target])[0]) == {link for link, score in scores.items() if score >= 0.5}
        aligner.threshold = 1e-6
    assert dropped


def test_a_model_that_answers_no_questions_raises(encoder_folders: dict[str, Path]) -> None:
    with pytest.raises(ModelError, match="was not trained to answer questions: use a WSPAlign checkpoint"):
        SpanAligner.from_pretrained(str(encoder_folders["bert"]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"aligner": "span"}, "the span aligner needs a model"),
        ({"aligner": "statistical", "model": "x"}, "the statistical aligner has no model: omit (--)?model"),
        ({"aligner": "span", "model": "x", "layer": 3}, "the span aligner has no layer: omit (--)?layer"),
        ({"model": "x", "threshold": 1.5}, "threshold 1.5 links no word"),
        ({"aligner": "statistical", "threshold": 0.5}, "the statistical aligner has no threshold"),
    ],
)
def test_settings_that_the_aligner_does_not_have_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        open_aligner(AlignerSettings(**settings))


def test_an_unknown_aligner_is_named_before_its_settings() -> None:
    with pytest.raises(RecipeError, match="aligner 'eflomal' is unknown: use embedding, statistical, span"):
        read_settings(AlignerSettings, {"aligner": "eflomal", "model": "x"})
