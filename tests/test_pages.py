"""Links and anchors of all pages lead somewhere, on GitHub and on the docs site, and the site lists all pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from cli_pages import FOLDER, cli_pages

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "trainer_scripts/README.md")]
PAGES += [*sorted((ROOT / "benchmarks").rglob("*.md")), *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def _prose(page: Path) -> str:
    return FENCE.sub("", page.read_text("utf-8"))


def _anchors(page: Path) -> set[str]:
    """Return the anchors of headings that GitHub and mkdocs name equally."""
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"^#+ (.+)$", _prose(page), re.M)]
    plain = [re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles]
    return {re.sub(r"\s", "-", title) for title in plain} & {
        re.sub(r"[\s-]+", "-", title) for title in plain if title.isascii()
    }


def broken_links(page: Path) -> list[str]:
    broken = []
    for target, anchor in LINK.findall(_prose(page)):
        path = (page.parent / target) if target else page
        if ":" in target:
            continue
        if not path.exists() or (anchor and anchor not in _anchors(path)):
            broken.append(f"{target}#{anchor}" if anchor else target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_wrong_file_or_anchor_is_found(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# A title, in full\n\n```bash\n# no title\n```\n", "utf-8")
    good = "[a](other.md) [b](other.md#a-title-in-full) [c](https://example.org/x) [d](#here)\n\n## Here\n"
    page.write_text(good + "[e](none.md) [f](other.md#no-title) [g](#there)\n", "utf-8")
    assert broken_links(page) == ["none.md", "other.md#no-title", "#there"]


def _nav(entries: list[object]) -> list[str]:
    pages: list[str] = []
    for entry in entries:
        inner = [] if isinstance(entry, str) else [name for part in entry.values() for name in _nav(part)]  # type: ignore
        pages += [entry] if isinstance(entry, str) else inner
    return pages


def test_the_site_lists_every_page_once() -> None:
    listed = _nav(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert len(set(listed)) == len(listed)
    assert pages == {name for name in listed if (DOCS / name).exists()}
    assert all((DOCS / name).exists() or (ROOT / name).exists() for name in listed)


def test_the_start_page_links_to_every_page_but_those_of_commands() -> None:
    linked = {target for target, _ in LINK.findall(_prose(DOCS / "index.md"))}
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page.parent != FOLDER}
    assert pages - {"index.md"} <= linked


def test_the_table_of_commands_links_to_the_help_of_each() -> None:
    linked = {target for target, _ in LINK.findall(_prose(DOCS / "commands.md"))}
    assert {f"cli/{name}" for name in cli_pages()} <= linked


def _words(page: str) -> str:
    """Drop line breaks, and the metavar that argparse repeats before Python 3.13: ``--output FILE, -o FILE``."""
    return re.sub(r"(--\w+) (\w+), (-\w \2)", r"\1, \3", " ".join(page.split()))


def test_the_help_pages_are_true() -> None:
    pages = cli_pages()
    assert {page.name for page in FOLDER.glob("*.md")} == set(pages), "run python tests/helpers/cli_pages.py"
    for name, text in pages.items():
        assert _words((FOLDER / name).read_text("utf-8")) == _words(text), "run python tests/helpers/cli_pages.py"
