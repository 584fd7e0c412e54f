"""hf-xsent: cross-lingual sentence encoders from any multilingual encoder and bitext.

Importing it registers every config and model with the Auto classes of transformers.
"""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_MODULES = {name.name: node.module for node in _stub.body if isinstance(node, ast.ImportFrom) for name in node.names}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Load a public name from its module when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'hf_xsent' has no attribute {name!r}")
    return getattr(import_module(str(_MODULES[name])), name)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted([*__all__, "__version__"])


if "hf_xsent_cli" not in sys.modules:  # the console script, which answers --help before torch is loaded
    import_module("hf_xsent.models")
