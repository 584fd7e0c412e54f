"""The house rules a machine can check: imports run down only, files stay short, the command line starts fast."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "hf_xsent"
PAGE = ROOT / "docs" / "architecture.md"
MOST_LINES = 350

# A room (file or folder right below hf_xsent) may import itself and these rooms of ours.
GROUND = {"errors", "logs", "compat", "files", "runs", "settings"}  # any room may import these
MAY_IMPORT: dict[str, set[str]] = {
    **dict.fromkeys(GROUND, {"errors", "settings"}),
    "runs": {"errors", "files", "logs", "settings"},
    "tensors": set(),  # fast tensor work: how a batch lies in memory, kernels, gathering
    "pages": set(),  # charts and the shell of report pages: text from numbers
    "objectives": {"tensors"},
    "models": {"tensors", "objectives"},
    "data": set(),
    "mining": {"pages", "data", "models"},
    "documents": {"data", "models", "mining"},
    "words": {"tensors", "data", "models"},  # aligners read words as data has them, with states of models
    "evaluation": {"tensors", "pages", "data", "models", "mining", "words"},
    "publishing": {"pages", "data", "models", "evaluation"},
    "sentence_transformers": {"tensors", "models", "objectives", "evaluation"},
    "training": {"tensors", "data", "models", "objectives", "evaluation", "publishing"},
    "finetuning": {"tensors", "pages", "data", "models", "evaluation", "training"},
    "comparison": {"tensors", "pages", "data", "models", "objectives", "evaluation", "words", "training"},
}
MAY_IMPORT["quickstart"] = {"pages", "data", "models", "evaluation", "publishing", "training"}
MAY_IMPORT = {room: rooms if room in GROUND else rooms | GROUND for room, rooms in MAY_IMPORT.items()}
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


def import_circle(sources: Mapping[str, str], packages: frozenset[str] = frozenset()) -> list[str]:
    """Name the modules of one import circle, the first one again at its end; imports anywhere in a file count."""
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        names = {name for _, name in imported_modules(ast.parse(source), _package_of(module, packages))}
        graph[module] = {name if name in sources else name.rpartition(".")[0] for name in names} & {*sources} - {module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _package_of(module: str, packages: frozenset[str]) -> str:
    return module if module in packages else module.rpartition(".")[0]


def printing_lines(source: str) -> list[int]:
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


RENAMING = {"os": {"replace", "rename", "renames", "link"}, "shutil": {"move", "disk_usage"}}
FILE_WORK = {PACKAGE / "files.py", PACKAGE / "runs" / "claim.py"}
ONLY_THERE = {"hashlib", "filelock"}


def file_work(source: str) -> list[str]:
    """What files.py and runs/claim.py are for, with its line: renaming, free space, hashes, locks, in any spelling."""
    tree = ast.parse(source)
    names = {f"{module}.{name}" for module, functions in RENAMING.items() for name in functions}
    found = [
        f"line {line}: {name}"
        for line, name in imported_modules(tree, "")
        if name in names or name.split(".")[0] in ONLY_THERE
    ]
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        method, owner = node.func.attr, ast.unparse(node.func.value)
        of_a_path = method in ("replace", "rename") and len(node.args) == 1 and not node.keywords  # a str's has two
        if f"{owner}.{method}" in names or of_a_path:
            found.append(f"line {node.lineno}: {owner}.{method}")
    return found


def test_two_files_rename_lock_hash_and_measure_free_space():
    broken = [
        f"{path.relative_to(ROOT)}, {place}: use hf_xsent.files or hf_xsent.runs"
        for path in source_files()
        if path not in FILE_WORK
        for place in file_work(path.read_text("utf-8"))
    ]
    assert not broken, "\n".join(broken)


def test_imports_run_down_only():
    broken = []
    for path in source_files():
        broken += broken_import_rules(path.read_text("utf-8"), module_name(path), path.name == "__init__.py")
    assert not broken, "imports that do not run down:\n" + "\n".join(broken)


def test_every_package_that_is_imported_is_declared():
    """Of those installed here: what another package brings along today it may drop tomorrow."""
    project = (ROOT / "pyproject.toml").read_text("utf-8").partition("[project.scripts]")[0]
    stated = re.findall(r'"([\w.-]+)(?:\[[\w,]+\])?(?:[<>=].*?)?"', project)
    declared = {re.sub("[-_.]+", "-", name).lower() for name in stated}
    installed = packages_distributions()
    broken = []
    for path in source_files():
        for line, name in imported_modules(ast.parse(path.read_text("utf-8")), module_name(path)):
            package = name.split(".")[0]
            if package in sys.stdlib_module_names or package == "hf_xsent":
                continue
            brought = {re.sub("[-_.]+", "-", owner).lower() for owner in installed.get(package, ())}
            if brought and not brought & declared:
                broken.append(f"{path.relative_to(ROOT)}, line {line}: {package} is not in pyproject.toml")
    assert not broken, "\n".join(broken)


def test_no_module_imports_itself_through_others():
    sources = {module_name(path): path.read_text("utf-8") for path in source_files()}
    packages = frozenset(module_name(path) for path in source_files() if path.name == "__init__.py")
    circle = import_circle(sources, packages)
    assert not circle, f"imports that run in a circle: {' <- '.join(circle)}; move code, or pass a narrower type"


def test_the_library_never_prints():
    broken = [
        f"{path.relative_to(ROOT)}, line {line}: print(); the library logs or returns, only the cli prints"
        for path in source_files()
        if path != PACKAGE / "cli.py"
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
        "import sys; import hf_xsent_cli; from hf_xsent.cli import COMMANDS, main; "
        "main(['--help']); main(['pretrain', '--help']); "
        "assert {main([name, '--wrong', '1']) for name in COMMANDS} == {2}; "
        "sys.exit(', '.join({'torch', 'transformers'} & {*sys.modules}) or 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the command line must start without {done.stderr}"


@pytest.mark.parametrize(
    ("module", "source", "told"),
    [
        ("hf_xsent.models.dap", "from hf_xsent.training.trainer import AlignmentTrainer", "training.trainer"),
        ("hf_xsent.models.dap", "def f():\n    import hf_xsent.data.bitext", "line 2: imports hf_xsent.data.bitext"),
        ("hf_xsent.objectives.triplet", "from ..models import backbone", "objectives may import only"),
        ("hf_xsent.data.bitext", "from hf_xsent import DapConfig", "imports hf_xsent.DapConfig"),
        ("hf_xsent.training.trainer", "from hf_xsent.cli import main", "imports hf_xsent.cli"),
        ("hf_xsent.attic.junk", "", "'attic' has no rule"),
    ],
)
def test_a_broken_rule_is_an_error(module: str, source: str, told: str):
    (sentence,) = broken_import_rules(source, module)
    assert module in sentence and told in sentence


def method_files() -> list[tuple[str, list[str]]]:
    """Each method of docs/architecture.md with the files to read."""
    section = PAGE.read_text("utf-8").partition("## The methods against their papers")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ") and ".py" in line]
    return [(name.strip(), re.findall(r"`([\w/]+\.py)`", files)) for name, files in rows]


@pytest.mark.parametrize(("method", "files"), method_files())
def test_a_method_is_read_in_at_most_four_files(method: str, files: list[str]):
    assert 1 <= len(files) <= 4, method
    assert all((PACKAGE / file).is_file() for file in files), method


def test_every_method_of_the_models_is_in_the_docs():
    assert {name for name, _ in method_files()} == {"TR", "DAP", "PPA", "WACSE", "dual pivot", "MEXMA"}
