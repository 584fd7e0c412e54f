"""Tables and documents say the same in text, Markdown and HTML."""

from __future__ import annotations

from xml.etree import ElementTree

from page_reader import Page

from hf_xsent.pages.document import Document, Html, fold
from hf_xsent.pages.tables import Cell, Table


def test_columns_of_a_text_table_line_up():
    table = Table(["name", "x"], [["a", 1.0], ["longer", 22], ["none", None]])
    assert str(table) == "name       x\n------  ----\na       1.00\nlonger    22\nnone        "


def test_names_stay_text_in_markdown():
    table = Table(["<i>x</i>"], [["<script>alert(1)</script>\n`x`|y\\"]])
    assert table.markdown().splitlines() == [
        "| &lt;i&gt;x&lt;/i&gt; |",
        "| --- |",
        "| &lt;script&gt;alert(1)&lt;/script&gt; \\`x\\`\\|y\\\\ |",
    ]


def test_a_table_is_the_same_as_html_and_as_markdown():
    table = Table(["name", "score"], [["a|b <", Cell("1.50 ± 0.10", 1.5)], ["paper", None]], quoted=1)
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


def test_a_document_has_its_text_in_markdown_and_its_charts_in_html_alone():
    chart = Html("<svg></svg>")
    document = Document(
        "A & b", ["What <it> is"], {"Scores": [chart, Table(["x"], [[1]])], "Charts": [chart], "No": []}
    )
    assert document.markdown() == "# A &amp; b\n\nWhat &lt;it&gt; is\n\n## Scores\n\n| x |\n| ---: |\n| 1 |\n"
    page = Page(document.html())
    assert page.tags.count("svg") == 2 and page.tags.count("h2") == 2 and "What <it> is" in page.text


def test_what_a_fold_hides_is_in_the_page():
    assert Page(fold("a <b>", "<p>inside</p>")).words[:2] == ["a <b>", "\n"]
