"""Declare the settings that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_xsent.settings.declare import setting


@dataclass(frozen=True, kw_only=True)
class EncodingSettings:
    """How to encode sentences: the model, and where and how to compute."""

    model: Any = setting(
        None, "Encode with this model: a folder or a Hub id; in Python also any object with encode.", required=True
    )
    pooling: str | None = setting(None, "Pool by cls, mean or max. (default: the model's; mean for a plain encoder)")
    max_length: int | None = setting(None, "Truncate sentences to N tokens. (default: the model's)", at_least=3)
    precision: str = setting(
        "float32",
        "Encode in this precision; auto: bfloat16 if that is faster on this device, which is measured.",
        choices=("float32", "auto", "bfloat16", "float16"),
    )
    device: str | None = setting(
        None, "Compute on this torch device. (default: a GPU per process if available, else the CPU)", local=True
    )


def output_setting(text: str, metavar: str = "FILE") -> Any:
    """Declare where a command writes its results."""
    return setting(None, text, metavar=metavar, required=True, aliases=("o",), local=True)


@dataclass(frozen=True, kw_only=True)
class WorkSettings:
    """Where intermediate results are cached, from which the same command resumes."""

    output: str = output_setting("Write the results to this file.")
    work: str | None = setting(
        None,
        "Cache intermediate results in this folder; the same command resumes from them. (default: OUTPUT.work)",
        metavar="FOLDER",
        local=True,
    )
    engine: str = setting(
        "local", "Compute in this process, or by the workers of a Ray cluster.", choices=("local", "ray"), local=True
    )
    address: str = setting("auto", "Address of the Ray cluster; auto: the running one, local: a new one.", local=True)
    worker_cpus: int = setting(1, "Number of CPU cores of a Ray worker without a GPU.", at_least=1, local=True)

    @property
    def work_folder(self) -> Path:
        """The folder of intermediate results."""
        return Path(self.work or f"{self.output.rstrip('/')}.work")
