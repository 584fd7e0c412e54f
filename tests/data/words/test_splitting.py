from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from hf_xsent.data.words.splitting import split_words, word_units, words_of_pieces


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Sie sagt: „Nein!“", ["Sie", "sagt", ":", "„", "Nein", "!", "“"]),
        ("I don't pay 1,000.50.", ["I", "don't", "pay", "1,000.50", "."]),
        ("l’eau s'en va", ["l’eau", "s'en", "va"]),
        ("हिन्दी में लिखो।", ["हिन्दी", "में", "लिखो", "।"]),
        ("می‌روم خانه", ["می‌روم", "خانه"]),
        ("తెలుగు భాష", ["తెలుగు", "భాష"]),
        ("我爱USB线", ["我", "爱", "USB", "线"]),
        ("私はコーヒーを2杯", ["私", "は", "コーヒー", "を", "2", "杯"]),
        ("ผมรักน้ำ", ["ผ", "ม", "รั", "ก", "น้", "ำ"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("a \x1d b\x1c", ["a", "b"]),
        ("", []),
        ("  ", []),
    ],
)
def test_words_by_script(text: str, words: list[str]) -> None:
    assert split_words(text).strings == words


def test_words_between_spaces() -> None:
    assert split_words("足利 義満 to1394 .", "spaces").strings == ["足利", "義満", "to1394", "."]


@given(st.text())
def test_words_are_in_order_and_cover_all_but_spaces(text: str) -> None:
    spans = split_words(text).spans
    assert all(start < end for start, end in spans)
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))
    covered = {place for span in spans for place in range(*span)}
    assert all(text[place].isspace() or place in covered for place in range(len(text)))


def test_a_piece_may_be_of_several_words_and_a_word_of_several_pieces() -> None:
    words = split_words("我爱你 maybe")  # the pieces: <s>, 我爱, 你, may, be, </s>
    offsets = [(0, 0), (0, 2), (2, 3), (4, 7), (7, 9), (0, 0)]
    assert [list(numbers) for numbers in words_of_pieces(words, offsets)] == [[], [0, 1], [2], [3], [3], []]
    assert word_units(words, offsets) == ([-1, 0, 1, 2, 2, -1], [0, 0, 1, 2])


def test_a_piece_that_reaches_into_the_next_word_joins_both() -> None:
    words = split_words("我爱你")
    assert word_units(words, [(0, 1), (1, 3)]) == ([0, 1], [0, 1, 1])
    assert word_units(words, [(0, 2), (1, 3)]) == ([0, 0], [0, 0, 0])


def test_truncated_words_have_no_unit() -> None:
    words = split_words("one two three")
    assert word_units(words, [(0, 0), (0, 3), (4, 6), (0, 0)]) == ([-1, 0, 1, -1], [0, 1, -1])


def test_units_are_the_words_of_real_tokenizers(
    wordpiece_tokenizer: PreTrainedTokenizerFast,
    unigram_tokenizer: PreTrainedTokenizerFast,
    pairs: list[tuple[str, str]],
) -> None:
    for tokenizer in (wordpiece_tokenizer, unigram_tokenizer):
        for source, target in pairs:
            for text in (source, target):
                words = split_words(text)
                offsets = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
                of_pieces, of_words = word_units(words, offsets)
                assert min(of_words) == 0
                assert sorted({*of_pieces} - {-1}) == sorted({*of_words})
                for (start, end), unit in zip(offsets, of_pieces, strict=True):
                    inside = [text[a:b] for (a, b), one in zip(words.spans, of_words, strict=True) if one == unit]
                    assert unit == -1 or text[start:end].strip() in "".join(inside)
