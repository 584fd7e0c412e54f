"""Charts are well-formed SVG whose marks lie where the numbers say."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent.pages.charts import WIDTH, Mark, bar_chart, curve_chart, histogram, point_chart, standalone, ticks
from hf_xsent.pages.html import Cell, Table
from hf_xsent.pages.scatter import Panel, write_scatter

VALUES = st.floats(-1e6, 1e6, allow_nan=False)


def test_bars_are_as_long_as_their_values():
    svg = ElementTree.fromstring(bar_chart("a <title>", {"x & y": [25.0, None, 100.0], "z": [0.0, 50.0, 75.0]}, "abc"))
    widths = [float(bar.get("width")) for bar in svg.iter("rect")]
    assert len(widths) == 5
    assert widths[1] == pytest.approx(4 * widths[0], abs=0.3) and widths[2] == 0
    assert [bar.get("class") for bar in svg.iter("rect")] == ["s0", "s2", "s0", "s1", "s2"]
    assert svg.get("aria-label") == "a <title>"


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6), st.booleans())
def test_any_points_lie_within_the_picture(points: list[tuple[float, float]], from_zero: bool):
    svg = ElementTree.fromstring(curve_chart("t", {"one": (9, points)}, "step", from_zero))
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
        abs(one[0] - other[0]) > 40 or abs(one[1] - other[1]) > 11
        for number, one in enumerate(places)
        for other in places[:number]
    )


def test_names_at_the_ends_of_curves_do_not_lie_on_each_other():
    curves = {f"curve {number}": (number, [(0, 0), (10, 5 + number / 100)]) for number in range(6)}
    svg = ElementTree.fromstring(curve_chart("ends", curves, "step", named=True))
    places = [(float(text.get("x")), float(text.get("y"))) for text in svg.iter("text") if text.get("class") == "name"]
    assert len(places) == 6
    for number, (x, y) in enumerate(places):
        assert all(abs(y - other_y) >= 13 or abs(x - other_x) >= 50 for other_x, other_y in places[:number])


def test_no_points_are_an_empty_chart():
    ElementTree.fromstring(point_chart("t", [], "minutes"))
    ElementTree.fromstring(curve_chart("t", {}, "step"))


def test_a_histogram_is_a_file_of_its_own(tmp_path: Path):
    text = standalone(histogram("120 <pairs>", [1, 5, 2], [0.0, 1.0, 2.0, 3.0], threshold=1.5))
    svg = ElementTree.fromstring(text)
    ns = "{http://www.w3.org/2000/svg}"
    heights = [float(bar.get("height")) for bar in svg.iter(f"{ns}rect") if bar.get("class") == "s0"]
    assert heights[1] == pytest.approx(5 * heights[0], abs=0.3)
    assert [line.get("class") for line in svg.iter(f"{ns}line")].count("threshold") == 1
    assert "var(" not in text and ".grid { stroke: #dfe3e8; }" in text  # not all programs know CSS variables


@given(VALUES, st.floats(1e-6, 1e6))
def test_ticks_are_few_round_and_within(low: float, span: float):
    high = low + span
    if high - low < 1e-9 * max(abs(low), 1):
        return
    some = ticks(low, high)
    assert 1 <= len(some) <= 12
    assert all(low - span * 1e-6 <= value <= high + span * 1e-6 for value in some)
    assert all(math.isfinite(value) for value in some)


def test_names_with_control_characters_give_well_formed_charts(tmp_path: Path):
    name = "a\x00\x1b[31m\ud800\ufffe<b>&\tc"
    charts = [
        bar_chart(name, {name: [1.0]}, [name]),
        curve_chart(name, {name: (0, [(0.0, 1.0), (1.0, 2.0)])}, name, named=True),
        point_chart(name, [Mark(1.0, 2.0, 0, name)], name),
        histogram(name, [1, 2], [0.0, 0.5, 1.0]),
    ]
    for chart in charts:
        assert "a[31m<b>&" in "".join(ElementTree.fromstring(chart).itertext())
    write_scatter(tmp_path / "s.svg", [Panel(name, np.zeros((1, 2)), [name], [name])])
    assert "a[31m<b>&" in "".join(ElementTree.parse(tmp_path / "s.svg").getroot().itertext())


def test_names_stay_text_in_markdown():
    table = Table(["<i>x</i>"], [[Cell("<script>alert(1)</script>\n`x`|y\\")]])
    assert table.markdown().splitlines() == [
        "| &lt;i&gt;x&lt;/i&gt; |",
        "| --- |",
        "| &lt;script&gt;alert(1)&lt;/script&gt; \\`x\\`\\|y\\\\ |",
    ]


def test_a_table_is_the_same_as_html_and_as_markdown():
    table = Table(["name", "score"], [[Cell("a|b <"), Cell("1.50 ± 0.10", 1.5)], [Cell("paper"), Cell("")]], quoted=1)
    assert table.markdown().splitlines() == [
        "| name | score |",
        "| --- | ---: |",
        "| a\\|b &lt; | 1.50 ± 0.10 |",
        "| paper |  |",
    ]
    html = ElementTree.fromstring(table.html())
    rows = html.findall(".//tbody/tr")
    assert [row.get("class") for row in rows] == [None, "quoted"]
    assert rows[0][0].text == "a|b <" and rows[0][1].get("data-number") == "1.5"
    assert rows[1][1].get("data-number") is None
    assert html.find("table").get("class") == "sortable"
