"""Charts are well-formed SVG whose marks lie where the numbers say."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent.pages.charts import (
    WIDTH,
    Mark,
    WordMap,
    bar_chart,
    curve_chart,
    histogram,
    point_chart,
    standalone,
    word_maps,
)

VALUES = st.floats(-1e6, 1e6, allow_nan=False)


def test_bars_are_as_long_as_their_values():
    svg = ElementTree.fromstring(bar_chart("a <title>", {"x & y": [25.0, None, 100.0], "z": [0.0, 50.0, 75.0]}, "abc"))
    widths = [float(bar.get("width")) for bar in svg.iter("rect")]
    assert len(widths) == 5
    assert widths[1] == pytest.approx(4 * widths[0], abs=0.3) and widths[2] == 0
    assert [bar.get("class") for bar in svg.iter("rect")] == ["s0", "s2", "s0", "s1", "s2"]
    assert svg.get("aria-label") == "a <title>"


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6))
def test_any_points_lie_within_the_picture(points: list[tuple[float, float]]):
    svg = ElementTree.fromstring(curve_chart("t", {"one": (9, points)}, "step"))
    line = svg.find("polyline")
    assert line.get("class") == "curve s1"
    for point in line.get("points").split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= WIDTH and 0 <= y <= float(svg.get("viewBox").split()[3])


def test_names_of_points_that_lie_together_do_not_lie_on_each_other():
    marks = [Mark(10.0, 50.0 + number / 100, number, f"method {number}") for number in range(6)]
    svg = ElementTree.fromstring(point_chart("t", marks, "minutes"))
    places = [(float(text.get("x")), float(text.get("y"))) for text in svg.iter("text") if text.get("class") == "name"]
    assert len(places) == 6
    assert all(
        abs(x - other_x) > 40 or abs(y - other_y) > 11
        for number, (x, y) in enumerate(places)
        for other_x, other_y in places[:number]
    )


def test_labels_in_a_map_of_words_do_not_overlap_and_every_point_names_its_text() -> None:
    rng = np.random.default_rng(0)
    texts = [f"word{number}" for number in range(120)]
    groups = [f"language {number % 14}" for number in range(120)]
    svg = ElementTree.fromstring(
        word_maps("words", [WordMap("a title", rng.standard_normal((120, 2)), texts, groups)] * 2)
    )
    width = float(svg.get("viewBox").split()[2])
    legend, maps = svg.findall("g[@class]/text"), [part for part in svg.findall("g") if part.get("transform")]
    assert len(legend) == 14 and len({(text.get("x"), text.get("y")) for text in legend}) == 14
    assert all(float(text.get("x")) + 50 < width for text in legend) and len(maps) == 2
    for drawn in maps:
        points = drawn.findall("g")
        assert [point.find("circle/title").text for point in points] == texts
        labels = [label for point in points if (label := point.find("text")) is not None]
        boxes = [(float(label.get("x")), float(label.get("y")), 4 * len(label.text)) for label in labels]
        assert 30 < len(boxes) < 120
        for number, (x, y, wide) in enumerate(boxes):
            assert y > 20 and x > 0 and x + wide < 360
            for x2, y2, wide2 in boxes[:number]:
                assert abs(y - y2) >= 8.9 or x + wide <= x2 or x2 + wide2 <= x


def test_no_points_are_an_empty_chart():
    ElementTree.fromstring(point_chart("t", [], "minutes"))
    ElementTree.fromstring(curve_chart("t", {}, "step"))


def test_a_histogram_is_a_file_in_itself():
    text = standalone(histogram("120 <pairs>", [1, 5, 2], [0.0, 1.0, 2.0, 3.0], threshold=1.5))
    svg = ElementTree.fromstring(text)
    ns = "{http://www.w3.org/2000/svg}"
    heights = [float(bar.get("height")) for bar in svg.iter(f"{ns}rect") if bar.get("class") == "s0"]
    assert heights[1] == pytest.approx(5 * heights[0], abs=0.3)
    assert [line.get("class") for line in svg.iter(f"{ns}line")].count("threshold") == 1
    assert "var(" not in text and ".grid { stroke: #dfe3e8; }" in text  # not all programs read CSS variables


def test_names_with_control_characters_give_well_formed_charts():
    name = "a\x00\x1b[31m\ud800\ufffe<b>&\tc"
    charts = [
        word_maps(name, [WordMap(name, np.zeros((1, 2)), [name], [name])]),
        bar_chart(name, {name: [1.0]}, [name]),
        curve_chart(name, {name: (0, [(0.0, 1.0), (1.0, 2.0)])}, name, named=True),
        point_chart(name, [Mark(1.0, 2.0, 0, name)], name),
        histogram(name, [1, 2], [0.0, 0.5, 1.0]),
    ]
    for chart in charts:
        assert "a[31m<b>&" in "".join(ElementTree.fromstring(chart).itertext())
