"""``import hf_xsent``: its public names, and what it registers with transformers."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hf_xsent


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", hf_xsent.__all__)
def test_public_name_resolves(name: str) -> None:
    assert getattr(hf_xsent, name).__name__ == name
    assert name in dir(hf_xsent)


def test_type_checkers_see_the_same_names() -> None:
    stub = ast.parse(Path(hf_xsent.__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    assert {name.name: node.module for node in imports for name in node.names} == hf_xsent._MODULES


def test_readme_names_are_public() -> None:
    assert {"DapConfig", "XlmrWithRTLHead", "AlignmentTrainer", "load_bitext", "mine_bitext"} <= {*hf_xsent.__all__}


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'DabConfig'"):
        hf_xsent.DabConfig  # noqa: B018


_LOADED = "print('hf_xsent.models' in sys.modules, 'torch' in sys.modules)"


def test_importing_the_package_registers_its_models(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    """Also in a script that is named as the console script is."""
    model = hf_xsent.DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]))
    model.save_pretrained(tmp_path)
    code = (
        f"import sys; folder, sys.argv = sys.argv[1], ['hf-xsent']; import hf_xsent.cli; {_LOADED}\n"
        "from transformers import AutoModel; print(type(AutoModel.from_pretrained(folder)).__name__)"
    )
    assert _python(code, str(tmp_path)).split() == ["True", "True", "DapForSentenceEmbedding"]


def test_the_console_script_starts_without_models() -> None:
    assert _python(f"import sys, hf_xsent_cli; {_LOADED}") == "False False"
