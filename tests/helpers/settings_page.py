"""docs/settings.md: every recipe key with its values, default, range and help, from the dataclasses that declare it.

python tests/helpers/settings_page.py   # write the page
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hf_xsent.objectives.registry import OBJECTIVES, declared_settings
from hf_xsent.settings.declaring import declared, default_of, metavar_of, range_of
from hf_xsent.settings.model import EncoderSettings, ExtractionSettings, PairSettings
from hf_xsent.training.recipe import (
    HIDDEN_TRAINING_SETTINGS,
    DataSettings,
    RunSettings,
    StartSettings,
    TrainingSettings,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
HEAD = """# Settings

Every key of a training recipe, which is a flag of `hf-xsent pretrain`, too. A method is a choice of objectives
(`objectives: {translation_ranking: {weight: 1.0, temperature: 0.05}}`; a bare number is the weight). On the command
line, `--objectives a=1 b=0.8` chooses them and `--objectives.a.temperature 0.02` sets one setting; `--temperature 0.02`
does the same where only one chosen objective has that setting. Every field of transformers' `TrainingArguments` is a
key as well.

This page is written from the code that reads the settings (`python tests/helpers/settings_page.py`).
"""


def settings_page() -> str:
    parts = [HEAD, _table("Start", [StartSettings])]
    parts.append(_table("Model", [EncoderSettings, PairSettings, ExtractionSettings]))
    parts.append(_table("Data", [DataSettings]))
    parts.append(_table("Run", [RunSettings]))
    parts.append(_table("Training", [TrainingSettings]))
    parts += [_table(f"Objective `{name}`", [declared_settings(name)]) for name in OBJECTIVES]
    return "\n".join(parts)


def _table(title: str, kinds: Iterable[type]) -> str:
    rows = [f"## {title}\n\n| key | values | default | |\n|---|---|---|---|\n"]
    for kind in kinds:
        for name, one in declared(kind).items():
            if name not in HIDDEN_TRAINING_SETTINGS:
                values, default = ", ".join(filter(None, (metavar_of(one), range_of(one)))), default_of(one)
                shown = "" if default is None else f"`{str(default).lower() if isinstance(default, bool) else default}`"
                help_text = str(one.metadata["help"])
                rows.append(f"| `{name}` | {values.replace('|', ' or ')} | {shown} | {help_text} |\n")
    return "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
