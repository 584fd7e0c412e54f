from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from hf_xsent.pages.scatter import Panel, write_scatter

NS = "{http://www.w3.org/2000/svg}"


def test_labels_do_not_overlap_and_every_point_names_its_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = [f"word{number}" for number in range(120)]
    groups = [f"language {number % 14}" for number in range(120)]
    write_scatter(tmp_path / "words.svg", [Panel("a title", rng.standard_normal((120, 2)), texts, groups)] * 2)
    svg = ElementTree.parse(tmp_path / "words.svg").getroot()
    width = float(svg.get("viewBox").split()[2])
    legend = [text for text in svg.findall(f"{NS}text")]
    assert len(legend) == 14 and len({(text.get("x"), text.get("y")) for text in legend}) == 14
    assert all(float(text.get("x")) + 50 < width for text in legend)
    for panel in svg.findall(f"{NS}g"):
        points = panel.findall(f"{NS}g")
        assert [point.find(f"{NS}circle/{NS}title").text for point in points] == texts
        labels = [point.find(f"{NS}text") for point in points]
        boxes = [(float(one.get("x")), float(one.get("y")), 4 * len(one.text)) for one in labels if one is not None]
        assert 30 < len(boxes) < 120
        for number, (x, y, wide) in enumerate(boxes):
            assert y > 20 and x > 0 and x + wide < 360
            for x2, y2, wide2 in boxes[:number]:
                assert abs(y - y2) >= 8.9 or x + wide <= x2 or x2 + wide2 <= x
