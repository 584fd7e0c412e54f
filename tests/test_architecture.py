"""The house rules a machine can check: imports run down only, files stay short, the command line starts fast."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "hf_xsent"
MOST_LINES = 350

# A room (file or folder right below hf_xsent) may import itself and these rooms of ours.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "logs": set(),
    "recomputing": set(),  # what the backward pass makes again: ground floor, as packing
    "packing": {"errors", "recomputing"},  # how a batch lies in memory: ground floor, like errors
    "pages": set(),  # charts and the shell of report pages: text from numbers
    "objectives": {"errors", "packing"},
    "models": {"errors", "recomputing", "packing", "objectives"},
    "data": {"errors"},
    "mining": {"errors", "pages", "data", "models"},
    "documents": {"errors", "data", "models", "mining"},
    "alignment": {"errors", "packing", "data", "models"},  # aligners read words as data has them, with states of models
    "evaluation": {"errors", "packing", "data", "models", "mining"},
    "training": {"errors", "logs", "data", "models", "objectives", "evaluation", "publishing"},
    "finetuning": {"errors", "logs", "data", "models", "objectives", "evaluation", "training"},  # runs as training has
    "publishing": {"errors", "models"},
    "comparison": {
        "errors",
        "logs",
        "packing",
        "pages",
        "data",
        "models",
        "evaluation",
        "training",
    },  # several runs side by side
}
EVERY_ROOM_BELOW_THE_CLI = set(MAY_IMPORT)
MAY_IMPORT["cli"] = EVERY_ROOM_BELOW_THE_CLI
UNIVERSAL = {"__version__"}  # what any room may take from hf_xsent itself


def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that is imported anywhere in a file; ``from a import b`` counts as ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def broken_import_rules(source: str, module: str, is_package: bool = False) -> list[str]:
    """One sentence for each import of ours that does not run down."""
    parts = module.split(".")
    if len(parts) == 1:
        return []  # hf_xsent/__init__.py names what the rooms offer
    room = parts[1]
    if room not in MAY_IMPORT:
        return [f"{module}: the room {room!r} has no rule yet; give it one in tests/test_architecture.py"]
    allowed = MAY_IMPORT[room] | {room}
    package = module if is_package else ".".join(parts[:-1])
    broken = []
    for line, name in imported_modules(ast.parse(source), package):
        target = name.split(".")
        if target[0] != "hf_xsent" or len(target) == 1 or target[1] in allowed | UNIVERSAL:
            continue
        rule = f"{room} may import only {', '.join(sorted(allowed))}"
        broken.append(f"{module}, line {line}: imports {name}, but {rule}")
    return broken


def printing_lines(source: str) -> list[int]:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def test_imports_run_down_only():
    broken = []
    for path in source_files():
        broken += broken_import_rules(path.read_text("utf-8"), module_name(path), path.name == "__init__.py")
    assert not broken, "imports that do not run down:\n" + "\n".join(broken)


def test_the_library_never_prints():
    broken = [
        f"{path.relative_to(ROOT)}, line {line}: print(); the library logs or returns, only the cli prints"
        for path in source_files()
        if PACKAGE / "cli" not in path.parents
        for line in printing_lines(path.read_text("utf-8"))
    ]
    assert not broken, "\n".join(broken)


def test_files_stay_short():
    lengths = {path.relative_to(ROOT): len(path.read_text("utf-8").splitlines()) for path in source_files()}
    long = [f"{path}: {lines} lines, at most {MOST_LINES}" for path, lines in lengths.items() if lines > MOST_LINES]
    assert not long, "files to split:\n" + "\n".join(long)


def test_the_command_line_starts_without_torch():
    """``hf-xsent --help`` and a mistyped flag answer at once, because nothing at the top of the cli imports torch."""
    code = (
        "import sys; sys.argv = ['bin/hf-xsent']; import hf_xsent.cli.main as cli; cli.build_parser(); "
        "sys.exit('torch' in sys.modules and 'torch was imported')"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"hf_xsent.cli.main must import fast and without torch: {done.stderr}"


@pytest.mark.parametrize(
    ("module", "source", "told"),
    [
        ("hf_xsent.models.dap", "from hf_xsent.training.trainer import AlignmentTrainer", "training.trainer"),
        ("hf_xsent.models.dap", "def f():\n    import hf_xsent.data.bitext", "line 2: imports hf_xsent.data.bitext"),
        ("hf_xsent.objectives.triplet", "from ..models import backbone", "objectives may import only"),
        ("hf_xsent.data.bitext", "from hf_xsent import DapConfig", "imports hf_xsent.DapConfig"),
        ("hf_xsent.training.trainer", "from hf_xsent.cli.main import main", "imports hf_xsent.cli.main"),
        ("hf_xsent.attic.junk", "", "'attic' has no rule"),
    ],
)
def test_a_broken_rule_is_told(module: str, source: str, told: str):
    (sentence,) = broken_import_rules(source, module)
    assert module in sentence and told in sentence


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hf_xsent.models.dap", "import torch\nfrom ..objectives import triplet\nfrom .backbone import Backbone"),
        ("hf_xsent.data.bitext", "from hf_xsent import __version__\nfrom hf_xsent.errors import DataError"),
        ("hf_xsent.cli.main", "from hf_xsent.training import trainer"),
    ],
)
def test_a_kept_rule_is_silent(module: str, source: str):
    assert broken_import_rules(source, module) == []
