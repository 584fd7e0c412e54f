from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

from hf_xsent.alignment.aligners import AlignerSettings
from hf_xsent.alignment.embedding import EmbeddingAligner, mutual_links
from hf_xsent.alignment.span_prediction import SpanAligner
from hf_xsent.alignment.statistical import StatisticalAligner, grow_diag_final_and
from hf_xsent.data.words.splitting import Words, split_words
from hf_xsent.errors import MissingExtraError, ModelError, RecipeError

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
        found = [
            [k for k, (a, b) in enumerate(words.spans) if max(a, start) < min(b, end)]
            for start, end in encoded["offset_mapping"]
        ]
        keep = [place for place, some in enumerate(found) if some]
        states.append(hidden - hidden.mean(0))
        kept.append(keep)
        of_pieces.append([found[place] for place in keep])
    scale = torch.cat(states).square().mean(0).sqrt()
    source, target = (torch.nn.functional.normalize(one[keep] / scale) for one, keep in zip(states, kept, strict=True))
    return source @ target.T, of_pieces


@pytest.mark.parametrize("method", ["argmax", "itermax"])
def test_pieces_that_are_each_others_nearest_link_their_words(tiny_encoders: Path, pairs: Pairs, method: str) -> None:
    aligner = EmbeddingAligner.from_pretrained(str(tiny_encoders), layer=2, method=method)
    sources, targets = (_words([pair[side] for pair in pairs]) for side in (0, 1))
    found = aligner.align(sources, targets)
    for source, target, links in zip(sources, targets, found, strict=True):
        similarities, of_pieces = _similarities_by_hand(aligner, source, target)
        rows, columns = similarities.shape
        linked: set[tuple[int, int]] = set()
        for _ in range(2 if method == "itermax" else 1):
            used = [{i for i, _ in linked}, {j for _, j in linked}]

            def worth(i: int, j: int, used: Any = used, similarities: Any = similarities) -> float:
                return similarities[i, j].item() * min(1.0, 0.9 * ((i not in used[0]) + (j not in used[1])))

            linked |= {
                (i, j)
                for i in range(rows)
                for j in range(columns)
                if i not in used[0]
                and j not in used[1]
                and worth(i, j) >= max(worth(i, other) for other in range(columns)) - 1e-6
                and worth(i, j) >= max(worth(other, j) for other in range(rows)) - 1e-6
            }
        expected = {(a, b) for i, j in linked for a in of_pieces[0][i] for b in of_pieces[1][j]}
        assert set(links) == expected
        assert len(links) == len(set(links))


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
    longer = [
        [Words(prompt + one.text, tuple((i + len(prompt), j + len(prompt)) for i, j in one.spans)) for one in side]
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
    assert aligner.align(_words(["", "Der Hund"]), _words(["dog", "The dog"]))[0] == []
    assert aligner.align([], []) == []


def test_the_second_round_links_what_is_left() -> None:
    similarities = torch.tensor([[[0.9, 0.8, 0.1], [0.85, 0.7, 0.1], [0.2, 0.1, 0.3]]])
    there = torch.ones_like(similarities, dtype=torch.bool)
    once, twice = (mutual_links(similarities, there, rounds)[0].nonzero().tolist() for rounds in (1, 2))
    assert once == [[0, 0], [2, 2]]
    assert twice == [[0, 0], [2, 2]]  # 0.7 is less than 0.9 of 0.85
    similarities[0, 1, 0] = 0.75
    assert mutual_links(similarities, there, 2)[0].nonzero().tolist() == [[0, 0], [2, 2]]
    similarities[0, 0, 1] = 0.7
    assert mutual_links(similarities, there, 2)[0].nonzero().tolist() == [[0, 0], [1, 1], [2, 2]]


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
    found = StatisticalAligner().align(sources, targets)
    assert sum({*links} == {(0, 1), (1, 0)} for links in found) > 0.9 * len(found)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "eflomal", None)
    with pytest.raises(MissingExtraError, match=r'pip install "hf-xsent\[align\]"'):
        AlignerSettings("statistical").build()


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
    found, dropped = aligner.align(sources, targets), 0
    for source, target, links in zip(sources, targets, found, strict=True):
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
        (
            {"name": "embeding"},
            "unknown aligner 'embeding': use embedding, statistical, span; did you mean 'embedding'",
        ),
        ({"name": "span"}, "the span aligner needs a model"),
        ({"model": "x", "method": "max"}, "unknown method 'max': use argmax or itermax"),
        ({"model": "x", "threshold": 0.0}, "threshold must be above 0"),
    ],
)
def test_wrong_settings_raise(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        AlignerSettings(**settings).check()
