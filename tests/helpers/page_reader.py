"""Reads a page as a strict reader would: every tag closed in order, nothing asked of a network."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

EMPTY = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Text, tags, links and SVG pictures of a page; a tag that is closed wrongly is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.words: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"never closed: {self._open}"
        self.svgs = [
            ElementTree.fromstring("<svg" + part.partition("</svg>")[0] + "</svg>") for part in text.split("<svg")[1:]
        ]

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in EMPTY:
            self._open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-3:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        self.words.append(data)
