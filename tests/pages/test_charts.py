"""Charts are well-formed SVG whose marks lie where the numbers say."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent.pages.charts import (
    WIDTH,
    Mark,
    bar_chart,
    point_chart,
    standalone,
)

VALUES = st.integers(-(10**9), 10**9).map(lambda number: number / 1000)


def test_bars_are_as_long_as_their_values():
    svg = ElementTree.fromstring(bar_chart("a <title>", {"x & y": [25.0, None, 100.0], "z": [0.0, 50.0, 75.0]}, "abc"))
    widths = [float(bar.get("width")) for bar in svg.iter("rect")]
    assert len(widths) == 5
    assert widths[1] == pytest.approx(4 * widths[0], abs=0.3) and widths[2] == 0
    assert [bar.get("class") for bar in svg.iter("rect")] == ["s0", "s2", "s0", "s1", "s2"]
    assert svg.get("aria-label") == "a <title>"


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6))
def test_any_points_lie_within_the_picture(points: list[tuple[float, float]]):
    svg = ElementTree.fromstring(point_chart("t", [Mark(abs(x), y, 9, "one") for x, y in points], "minutes"))
    circles = list(svg.iter("circle"))
    assert len(circles) == len(points) and circles[0].get("class") == "s1"
    for circle in circles:
        x, y = float(circle.get("cx")), float(circle.get("cy"))
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


def test_no_points_are_an_empty_chart():
    ElementTree.fromstring(point_chart("t", [], "minutes"))


def test_a_standalone_chart_is_a_file_in_itself():
    text = standalone(bar_chart("120 <pairs>", {"x": [25.0]}, "a"))
    ElementTree.fromstring(text)
    assert "var(" not in text and ".grid { stroke: #dfe3e8; }" in text  # not all programs read CSS variables


def test_names_with_control_characters_give_well_formed_charts():
    name = "a\x00\x1b[31m\ud800\ufffe<b>&\tc"
    charts = [
        bar_chart(name, {name: [1.0]}, [name]),
        point_chart(name, [Mark(1.0, 2.0, 0, name)], name),
    ]
    for chart in charts:
        assert "a[31m<b>&" in "".join(ElementTree.fromstring(chart).itertext())
