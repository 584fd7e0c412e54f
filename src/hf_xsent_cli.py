"""The console script ``hf-xsent``: starts the command line without torch, so that ``--help`` answers at once.

Python runs ``hf_xsent/__init__.py`` before any module below it, and that registers the models, which loads torch. Where
this module is imported first, it does not: commands that use models import (and so register) them by themselves.
"""

from __future__ import annotations

from hf_xsent.cli.main import main, program

__all__ = ["main", "program"]
