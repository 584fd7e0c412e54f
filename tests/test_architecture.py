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
GROUND = {"errors", "logs", "compat", "files", "settings"}  # any room may import these
