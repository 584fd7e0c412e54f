"""Publish exports."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from hf_xsent.publishing import hub


def publish(
    folder: str | PathLike[str],
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
) -> str:
    """Check an exported folder, upload it to the Hub and return its address; the same call resumes.

    ```python
    from hf_xsent import publish

    publish("exported/mine", "org/mine", private=True)
    ```
    """
    return hub.publish(hub.plan_upload(Path(folder), repository), private, revision, message)
