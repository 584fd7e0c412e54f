from __future__ import annotations

from random import Random

import pytest

from hf_xsent.data.cleaning.filtering import FilterRules, NearDuplicates, PairFilter, number_overlap
from hf_xsent.errors import RecipeError


def test_each_rule_counts_what_it_removed() -> None:
    rules = FilterRules.parse(["min_score=0.5"])
    pairs = PairFilter(rules, "de", "fr")
    long = "Die Hütte liegt am Rand des Gletschers und ist im Sommer offen"
    cases = [
        (long, "La cabane est au bord du glacier et ouverte en été", 0.9, True),
        (f"{long}.", "La cabane est au bord du glacier et ouverte en été.", 0.9, False),  # near_duplicates
        ("Der Weg", "Le chemin", 0.4, False),  # min_score
        ("Im Jahr 1973", "En 1937", 0.8, False),  # min_number_overlap
        ("Kurz", "Une phrase qui est bien trop longue pour un seul mot court", 0.9, False),  # max_length_ratio
        ("Im Jahr 1973", "En 1973", 0.8, True),
    ]
    assert [pairs.accepts(*case[:3]) for case in cases] == [case[3] for case in cases]
    assert pairs.counts.removed == dict.fromkeys(
        ("near_duplicates", "min_score", "min_number_overlap", "max_length_ratio"), 1
    )
    assert (pairs.counts.read, pairs.counts.retained) == (6, 2)


@pytest.mark.parametrize(
    ("source", "target", "overlap"),
    [
        ("1.500 Franken", "1,500 francs", 1.0),
        ("1 500 francs", "1,500 francs", 1.0),
        ("1\u2009500 000 francs", "1.500.000 Franken", 1.0),
        ("1\u202f500,00 €", "€1500", 1.0),
        ("page 12 500 grammes", "500 grams on page 12", 1.0),  # two numbers
        ("im Jahr 1973 500 Hunde", "500 dogs in 1973", 1.0),
        ("12 500", "13 500", 0.5),
        ("1,00,000 रुपये", "100,000 rupees", 1.0),
        ("um 08:30 Uhr", "at 8:30", 1.0),
        ("um 8.50 Uhr", "at 8:50", 1.0),
        ("2,50 Euro", "2.5 euros", 1.0),
        ("12,00 Euro", "12 euros", 1.0),
        ("05.03.2020", "5/3/2020", 1.0),
        ("2,51 Euro", "2.52 euros", 0.0),
        ("১৯৭৩ সালে", "in 1973", 1.0),
        ("3 Hunde", "trois chiens", 1.0),  # a single digit may well be a word
        ("1973 und 1974", "1973", 2 / 3),
        ("1973", "no number", 0.0),
    ],
)
def test_numbers_in_any_script(source: str, target: str, overlap: float) -> None:
    assert number_overlap(source, target) == pytest.approx(overlap)


def test_near_duplicates_and_no_others() -> None:
    seen = NearDuplicates(0.8)
    first = "The committee met on Tuesday to discuss the new rules for mountain huts in the western Alps."
    assert not seen.seen(first, "x")
    assert seen.seen(first.replace("Tuesday", "Monday"), "x")
    assert not seen.seen("Glaciers in the western Alps have lost a third of their length since the new rules.", "x")


def test_pairs_with_nearly_all_common_grams_are_near_duplicates_and_those_with_half_are_not() -> None:
    random = Random(0)
    for _ in range(100):
        words = ["".join(random.choices("abcdefghijklmnop", k=7)) for _ in range(20)]
        seen = NearDuplicates(0.8)
        assert not seen.seen(" ".join(words), "x")
        assert not seen.seen(" ".join([*words[:13], *(word[::-1] for word in words[13:])]), "x")  # 0.5
        assert seen.seen(" ".join([*words, "z"]), "x")  # 0.98
        equal = NearDuplicates(1)
        found = [equal.seen(" ".join(words), target) for target in ("Part 1", "Part 2", "part  1")]
        assert found == [False, False, True]


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("min_scor=1", "cleaning rules: unknown key 'min_scor'; did you mean 'min_score'"),
        ("min_score=high", "cleaning rules: min_score takes a number, not 'high'"),
        ("identical", "cleaning rule identical takes a value"),
        ("exclude=", "cleaning rule exclude takes a value"),  # exclude=$UNSET
        ("near_duplicates=2", "near_duplicates 2.0 is not at least 0.6 and at most 1"),
        ("repeated=true", "unknown key 'repeated'"),  # near_duplicates does this within the last pairs
    ],
)
def test_bad_rules_are_refused(stated: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        FilterRules.parse([stated])
