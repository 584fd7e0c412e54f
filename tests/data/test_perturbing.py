"""Perturbed sentences: each rule changes what it names, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest
import regex

from hf_xsent.data.perturbing import RULES, perturb
from hf_xsent.errors import DataError

SENTENCES = {
    "en": [
        "On Monday, Anna won 3 races before the war.",
        "The police of Rome (the capital city) said Tom was here.",
    ],
    "de": [
        "Am Montag gewann sie 3 Rennen vor dem Krieg, sagte Anna.",
        "Die Polizei war in Rom, aber nicht heute.",
    ],
    "fr": ["Le 3 mai, Anna a gagné avant la guerre.", "La police de Rome (la capitale) n’est pas venue lundi."],
    "es": ["El 3 de mayo, Ana ganó antes de la guerra.", "La policía de Roma (la capital) no vino el lunes."],
    "ru": ["3 мая судья Анна выиграла дело до войны.", "Полиция Рима не приехала в среду, сообщил Том."],
    "zh": ["5月3日，安娜在战争之前赢得了美国的比赛，他们已经宣布。", "罗马的警察（首都的警察局长）没有来。"],
    "ar": [
        "في 3 مايو فازت آنا بالسباق قبل الحرب في أمريكا.",
        "لم يكن رجال الشرطة في روما يوم الاثنين، كما قال توم لهم.",
    ],
    "hi": ["3 मई को अमेरिका में आना ने युद्ध से पहले दौड़ जीती थी।", "रोम की पुलिस सोमवार को नहीं आई, टॉम ने कहा।"],
    "sw": ["Tarehe 3 Mei, Anna alishinda kabla ya vita.", "Polisi wa Roma hawakuja Jumatatu, alisema Tom."],
}
OTHERS = {"tr": ["Ali 3 Mayıs günü Ankara şehrine geldi.", "Sonra Veli gitti."], "ka": ["ანა 3 დღის შემდეგ ჩამოვიდა."]}


@pytest.mark.parametrize(("language", "sentences"), [*SENTENCES.items(), *OTHERS.items()])
def test_every_perturbation_is_new_and_reproducible(language: str, sentences: list[str]):
    found = perturb(sentences, language, per_rule=3)
    assert found == perturb(sentences, language, per_rule=3)
    assert {one.rule for one in found} >= {"number"}
    texts = [" ".join(one.text.casefold().split()) for one in found]
    assert len({*texts}) == len(texts) and not {*texts} & {text.casefold() for text in sentences}
    assert max(Counter((one.line, one.rule) for one in found).values()) <= 3
    assert all(regex.search(r"\p{L}", one.text) and "  " not in one.text for one in found)


@pytest.mark.parametrize(("language", "sentences"), SENTENCES.items())
def test_the_nine_languages_have_every_rule_for_words(language: str, sentences: list[str]):
    assert {one.rule for one in perturb(sentences, language)} >= {"number", "name", "negation", "opposite"}


@pytest.mark.parametrize(
    ("text", "language", "perturbed"),
    [
        ("He did not win.", "en", "He did win."),
        ("She can't be here.", "en", "She can be here."),
        ("It was late.", "en", "It was not late."),
        ("Ein Mann sang.", "de", "Kein Mann sang."),
        ("Sie hat sich gefreut.", "de", "Sie hat sich nicht gefreut."),
        ("Er kam nicht heute.", "de", "Er kam heute."),
        ("İzmir is not near.", "en", "İzmir is near."),  # İ in lower case has two characters
        ("Ce n’est pas vrai.", "fr", "C’est vrai."),
        ("Ils ont gagné.", "fr", "Ils n’ont pas gagné."),
        ("No se ha ido.", "es", "Se ha ido."),
        ("Se ha ido.", "es", "No se ha ido."),
        ("Он не был дома.", "ru", "Он был дома."),
        ("Это является тайной.", "ru", "Это не является тайной."),
        ("他没有钱。", "zh", "他有钱。"),
        ("他们已经到了。", "zh", "他们尚未到了。"),
        ("لن يكون سهلا.", "ar", "سيكون سهلا."),
        ("وقالت إنها هنا.", "ar", "ولم تقل إنها هنا."),
        ("वह नहीं आया।", "hi", "वह आया।"),
        ("वह खुश है।", "hi", "वह खुश नहीं है।"),
        ("Alisema kweli.", "sw", "Hakusema kweli."),
        ("Hawakusema kweli.", "sw", "Walisema kweli."),
    ],
)
def test_negation_is_added_or_removed(text: str, language: str, perturbed: str):
    assert [one.text for one in perturb([text], language, ["negation"])] == [perturbed]


@pytest.mark.parametrize(("text", "language"), [("Anna est ici.", "fr"), ("Ana vino este lunes.", "es")])
def test_a_word_that_mostly_means_something_else_is_no_opposite(text: str, language: str):
    assert perturb([text], language, ["opposite"]) == []


@pytest.mark.parametrize(
    ("text", "language", "perturbed"),
    [
        ("They won't come.", "en", ["They will come."]),
        ("They won’t come.", "en", ["They will come."]),
        ("Why They Won't.", "en", ["Why Bob Won't."]),
        ("Y'all go.", "en", []),
        ("Mother’s here.", "en", ["Father’s here.", "Sister’s here.", "Brother’s here."]),
        ("Vu l’ancien roi.", "fr", []),
        ("Qu’aucun roi sont.", "fr", []),  # negative
    ],
)
def test_a_part_of_a_word_with_an_apostrophe_is_no_word(text: str, language: str, perturbed: list[str]):
    found = perturb([text, "We saw Bob."], language, ["name", "negation", "opposite"], per_rule=3)
    assert {one.text for one in found if not one.line} == {*perturbed}


@pytest.mark.parametrize("text", ["1,000", "0", "2010", "7.50", "10:30", "२०१०", "٢٠١٧"])
def test_another_number_differs_in_value_and_has_the_same_digits_script_and_marks(text: str):
    values = {text}
    for one in perturb([f"a {text} b"], "und", ["number"], per_rule=20):
        number = one.text[2:-2]
        values.add(number)
        assert regex.sub(r"\p{Nd}", "9", number) == regex.sub(r"\p{Nd}", "9", text)
        assert {ord(c) - int(c) for c in number if c.isdigit()} == {ord(c) - int(c) for c in text if c.isdigit()}
    assert len(values) in (9, 10)


@pytest.mark.parametrize("text", ["the 1st of three", "21st century"])
def test_ordinals_are_not_changed(text: str):
    assert all("1st" in one.text for one in perturb([text], "en", ["number"], per_rule=9))


def test_names_come_from_other_sentences_and_have_the_same_form():
    sentences = ["Here is Anna.", "There is Tom Fox of the BBC.", "We saw Bob."]
    found = {(one.line, one.text) for one in perturb(sentences, "en", ["name"], per_rule=5)}
    assert found == {(0, "Here is Bob."), (2, "We saw Anna.")}


def test_names_without_capitals_are_rare_words():
    sentences = ["ჩვენ ვნახეთ თბილისი დღეს", "ჩვენ ვნახეთ პარიზი დღეს", "ჩვენ ვნახეთ ლონდონი დღეს"]
    for one in perturb(sentences, "ka", ["name"], per_rule=9):
        assert regex.fullmatch(r"ჩვენ ვნახეთ (თბილისი|პარიზი|ლონდონი) დღეს", one.text)


def test_a_clause_is_dropped_with_its_comma():
    text = "The council, which met on three days, voted for the new law."
    assert [one.text for one in perturb([text], "en", ["clause"])] == ["The council, voted for the new law."]
    (one,) = perturb(["They went to the old town, because all of the others did."], "en", ["clause"], seed=3)
    assert one.text in ("They went to the old town.", "Because all of the others did.")
    assert perturb(['He said "this is all, and this is what we want" and left.'], "en", ["clause"]) == []


@pytest.mark.parametrize("text", ["(log details removed)", "(log details removed).", "（他们没有参加这次会议）。"])
def test_a_sentence_in_brackets_is_not_dropped(text: str):
    assert perturb([text], "und", ["clause"]) == []


@pytest.mark.parametrize(
    "text", ["They bought tables and cables.", "He likes tables, fables and cables.", "great big hunting hiking"]
)
def test_words_of_one_list_do_not_change_places(text: str):
    assert perturb([text], "en", ["order"]) == []


def test_word_order_changes_and_words_do_not():
    text = "The hunting dog of the queen was feared by the sleeping fox."
    (one,) = perturb([text], "en", ["order"], per_rule=3)
    assert one.text == "The sleeping dog of the queen was feared by the hunting fox."


def test_the_seed_and_the_number_per_rule_count():
    text = "He paid 17 and 25 and 38 and 49."
    variants = {perturb([text], "en", ["number"], seed=seed)[0].text for seed in range(20)}
    assert len(variants) > 5
    assert len(perturb([text], "en", ["number"], per_rule=30)) == 30


def test_a_lone_surrogate_stays():
    first, _ = perturb(["In 1990 \ud83d, Anna won.", "In 1991, Tom lost."], "en", ["name"])
    assert first.text == "In 1990 \ud83d, Tom won."


def test_an_unknown_rule_is_an_error():
    with pytest.raises(DataError, match=r"unknown rule 'numbers': .*did you mean 'number'"):
        perturb(["x"], "en", ["numbers"])
    assert len(RULES) == 6


def test_sentences_may_come_from_a_generator():
    sentences = ["Anna saw 3 dogs.", "We met 12 friends."]
    assert perturb(iter(sentences), "en") == perturb(sentences, "en") != []


@pytest.mark.parametrize("sentences", ["In London, Anna did not win the 3 races.", ["a dog", None]])
def test_one_string_and_missing_sentences_are_errors(sentences: list[str]):
    with pytest.raises(DataError, match="sentences are one string, or some are not text: give a list"):
        perturb(sentences, "en")
