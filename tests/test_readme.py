"""What the README shows must run as it stands there, with small stand-ins for model and data."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from hf_xsent.cli.main import build_parser

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_python_lines_run(encoder_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    sides = {
        language: [f"{word} {number} {word} na {number + 1}" for number in range(40)]
        for language, word in (("de", "Hund"), ("sw", "mbwa"), ("en", "the dog"))
    }
    pairs = zip(sides["de"], sides["en"], strict=True)
    with gzip.open("pairs.de-en.tsv.gz", "wt", encoding="utf-8") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in pairs)
    for language in ("sw", "en"):
        Path(f"OPUS.sw-en.{language}").write_text("".join(f"{line}\n" for line in sides[language]), encoding="utf-8")

    code = re.search(r"```python\n(.*?)```", README, re.DOTALL).group(1)
    stand_ins = {
        "xlm-roberta-base": str(encoder_folders["xlm-roberta"]),
        "train_dev_split(100)": "train_dev_split(5)",
        "max_steps=1000": "max_steps=2",
        "eval_steps=100": "eval_steps=1",
        "save_steps=100": "save_steps=1",
    }
    for written, stand_in in stand_ins.items():
        assert written in code
        code = code.replace(written, stand_in)
    scope: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), scope)
    assert scope["vectors"].shape[0] == 2


def test_every_command_and_flag_it_names_exists():
    parser = build_parser()
    commands = re.findall(r"^hf-xsent (\w+) (.*)$", README, re.MULTILINE)
    assert commands
    helps = {name: sub.format_help() for name, sub in parser._subparsers._group_actions[0].choices.items()}
    for command, rest in commands:
        for flag in re.findall(r"(--\w+)", rest):
            assert flag in helps[command], f"README: hf-xsent {command} has no {flag}"
