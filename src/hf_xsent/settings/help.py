"""Write the help of a command from its settings class."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Mapping
from dataclasses import Field
from typing import Any

from hf_xsent.errors import without_dashes
from hf_xsent.settings.declare import help_of, metavar_of, positional_names, settings_of

_COLUMN, _WIDTH = 26, 110


def command_help(name: str, kind: Any) -> str:
    """Return usage, description and one entry per setting."""
    groups: Mapping[str, tuple[type, ...]] = getattr(kind, "help_groups", {"": (kind,)})
    fields = {title: _fields(kinds) for title, kinds in groups.items()}
    shown = [f"{_word(group[name])} " for group in fields.values() for name in positional_names(group)]
    usage = f"usage: hf-xsent {name} {''.join(shown)}[RECIPE] [--flag value …]"
    text = f"{usage}\n\n{inspect.cleandoc(kind.__doc__)}\n"
    for title, group in fields.items():
        words = positional_names(group)
        entries = [_entry(_word(group[name]), group[name]) for name in words]
        entries += [
            _entry(f"{_flags(name, field)} {metavar_of(field)}", field)
            for name, field in group.items()
            if name not in words
        ]
        text += f"\n{title or 'settings'}:\n{''.join(entries)}"
    return text


def parameters_help(fields: Mapping[str, Field[Any]]) -> str:
    """Return what ``help()`` says of each parameter of a function."""
    layout = textwrap.TextWrapper(_WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
    explained = {
        name: help_of(field).replace("%%", "%") for name, field in fields.items() if field.metadata.get("help")
    }
    return "\n".join(
        ["Parameters:", *(layout.fill(f"{name}: {without_dashes(explained[name])}") for name in explained)]
    )


def topic_help(groups: Mapping[str, tuple[type, ...]]) -> str:
    """Return the entries of further settings, whose flags begin with the name of their group."""
    text = ""
    for prefix, kinds in groups.items():
        entries = [_entry(f"--{prefix}{key} {metavar_of(field)}", field) for key, field in _fields(kinds).items()]
        text += f"{prefix.rstrip('.')}:\n{''.join(entries)}\n"
    return text


def _fields(kinds: tuple[type, ...]) -> dict[str, Field[Any]]:
    fields = {name: field for kind in kinds for name, field in settings_of(kind).items()}
    return {name: field for name, field in fields.items() if field.metadata.get("shown", True)}


def _word(field: Field[Any]) -> str:
    return f"{field.name.upper()}{' …' * ('list' in str(field.type))}"


def _flags(name: str, field: Field[Any]) -> str:
    aliases = [f"{'-' if len(alias) == 1 else '--'}{alias}" for alias in field.metadata.get("aliases", ())]
    return ", ".join([f"--{name}", *aliases])


def _entry(head: str, field: Field[Any]) -> str:
    width = min(_WIDTH, shutil.get_terminal_size().columns) - 2
    lines = textwrap.wrap(help_of(field), max(30, width - _COLUMN)) or [""]
    first = f"  {head}".ljust(_COLUMN)
    rows = [f"{first}{lines[0]}"] if first.endswith(" ") else [first, " " * _COLUMN + lines[0]]
    return "\n".join([*rows, *(" " * _COLUMN + line for line in lines[1:])]) + "\n"
