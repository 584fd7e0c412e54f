"""Start the console script ``hf-xsent`` without torch, so that ``--help`` is fast.

``hf_xsent/__init__.py`` imports and registers the models, which loads torch, unless this module was imported first.
Commands that use models import them when they run.
"""

from __future__ import annotations

from hf_xsent.cli import main, program

__all__ = ["main", "program"]
