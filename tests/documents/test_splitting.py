from __future__ import annotations

import pytest

from hf_xsent.documents.splitting import split_lines, split_paragraph, split_text


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("de", ["Am 3. Mai kam Dr. Maier.", "Er blieb, z. B. zum Essen!", "„Und dann?“", "Um 1990.", "Danach nicht."]),
        ("en", ["Mr. J. R. Smith paid $3.50.", 'He said "No."', "Then he left...", "Why?"]),
        ("fr", ["M. Dupont est là.", "« Vraiment ? »", "Oui, vraiment !"]),
        ("es", ["¿Dónde está la Sra. López?", "¡Aquí!"]),
        ("el", ["Πού είναι ο σταθμός;", "Εδώ."]),
        ("ru", ["Это было в 1990 г. в Москве.", "А потом?"]),
        ("hi", ["यह एक किताब है।", "वह घर जाता है।"]),
        ("ar", ["أين المحطة؟", "هنا."]),
        ("ur", ["یہ کتاب ہے۔", "وہ گھر جاتا ہے۔"]),
        ("hy", ["Սա գիրք է։", "Նա տանն է։"]),
        ("ka", ["ეს წიგნია.", "ის სახლშია."]),
        ("ko", ["이것은 책입니다.", "그는 집에 갑니다."]),
    ],
)
def test_sentences_of_a_language(language: str, sentences: list[str]) -> None:
    assert split_paragraph("  ".join(sentences), language) == sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [("zh", ["今天很冷。", "你去哪里？", "“回家！”"]), ("ja", ["今日は寒いです。", "本を読みます。"])],
)
def test_scripts_without_spaces(language: str, sentences: list[str]) -> None:
    assert split_paragraph("".join(sentences), language) == sentences


def test_thai_is_cut_at_spaces_into_clauses_that_are_not_too_short() -> None:
    clauses = ["วันนี้อากาศดีมากและฉันอยากไปเที่ยวทะเล", "แต่เพื่อนของฉันต้องทำงานทั้งวันจนถึงเย็น"]
    assert split_paragraph(" ".join(clauses), "th") == clauses
    assert split_paragraph("สวัสดี ครับ", "th") == ["สวัสดี ครับ"]


def test_empty_lines_separate_paragraphs_of_running_text() -> None:
    document = split_text("One line\nwraps here. Two.\n\n  \nThree.\n", "en")
    assert document.sentences == ["One line wraps here.", "Two.", "Three."]
    assert document.paragraphs == [0, 0, 1]
    assert document.numbers == [1, 2, 3]


def test_lines_are_paragraphs_where_no_line_is_empty() -> None:
    assert split_text("One. Two.\nThree.", "en").paragraphs == [0, 0, 1]


def test_lines_keep_their_numbers() -> None:
    document = split_lines("\n one \ntwo\n\n\nthree\x0bmore\n")
    assert document.sentences == ["one", "two", "three more"]
    assert document.numbers == [2, 3, 6]
    assert document.paragraphs == [0, 0, 1]


def test_nothing_is_lost() -> None:
    text = "1. Erstens: Am 3. Mai (s. S. 4) kam er... nicht! [Und?] „Ja.“ usw. Ende"
    assert " ".join(split_paragraph(text, "de")) == text
