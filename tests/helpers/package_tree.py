"""The tree of docs/architecture.md: every file of the package with the first line of its docstring.

python tests/helpers/package_tree.py   # write it into the page
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "src" / "hf_xsent"
BEGIN, END = "<!-- tree: written by tests/helpers/package_tree.py -->\n```text\n", "```\n<!-- end of tree -->"


def package_tree(folder: Path = PACKAGE, depth: int = 0) -> str:
    lines = [_line(folder, "__init__.py", f"{folder.name}/", depth)]
    for path in sorted(folder.iterdir(), key=lambda one: (one.is_dir(), one.name)):
        if path.is_dir() and (path / "__init__.py").is_file():
            lines.append(package_tree(path, depth + 1))
        elif path.suffix == ".py" and path.name != "__init__.py":
            lines.append(_line(folder, path.name, path.name, depth + 1))
    return "".join(lines)


def _line(folder: Path, file: str, name: str, depth: int) -> str:
    docstring = ast.get_docstring(ast.parse((folder / file).read_text(encoding="utf-8"))) or ""
    return f"{'  ' * depth + name:<38}{docstring.splitlines()[0]}".rstrip() + "\n"


def tree_in_the_page() -> str:
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(before + BEGIN + package_tree() + END + after, encoding="utf-8")
