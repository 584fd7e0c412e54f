"""Add the pages and files of the repository that docs/ links to, such as ../benchmarks/README.md, to the site.

mkdocs loads this file as a hook. On the site, files of docs/ are at the top, others at their path in the repository.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)")


def on_files(files: Any, config: Any) -> None:
    """Add each file that a page links to, and in turn the files that it links to."""
    waiting = [Path(file.abs_src_path) for file in files.documentation_pages()]
    while waiting:
        page = waiting.pop()
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / link).resolve()
            name = _place(target)
            if target.is_file() and target.is_relative_to(ROOT) and files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, abs_src_path=str(target)))
                waiting += [target] * (target.suffix == ".md")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links to where their files are on the site."""
    folder, here = Path(page.file.abs_src_path).parent, os.path.dirname(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        target = (folder / link[0]).resolve()
        return os.path.relpath(_place(target), here or ".") if target.is_file() else link[0]

    return LINK.sub(moved, markdown)


def _place(path: Path) -> str:
    """Return the path of a file on the site."""
    return os.path.relpath(path, DOCS if path.is_relative_to(DOCS) else ROOT)
