"""Find the files of a model in its folder or on the Hub, and say what a model lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hf_xsent.errors import HfXsentError, ModelError, did_you_mean
from hf_xsent.files import is_local

_CURE = "check name and network, sign in to a private model by 'hf auth login', or give the folder of a saved model"


def hub_file(name: str, file: str, subfolder: str = "", proxies: object = None, **hub: Any) -> Path:
    """Return a file of a Hub id in the cache, after its download if it is not there; the library ignores ``proxies``.

    ``hub`` are the arguments of ``from_pretrained`` that concern the Hub, such as ``revision``.
    """
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(name, file, subfolder=subfolder, **hub))


def read_model_file(name_or_path: str, file: str, read: Callable[[Path], Any], **hub: Any) -> Any:
    """Read a file of a model folder or Hub id; None if it does not exist or, without a network, is not in the cache."""
    from huggingface_hub.errors import EntryNotFoundError

    with loading_errors(name_or_path, f"readable {file}"):
        if Path(name_or_path).is_dir():
            path = Path(name_or_path, hub.get("subfolder", ""), file)
            return read(path) if path.is_file() else None
        try:
            path = hub_file(name_or_path, file, **hub)
        except EntryNotFoundError:
            return None
        return read(path)


@contextmanager
def loading_errors(name_or_path: str, what: str, cure: str = _CURE) -> Iterator[None]:
    """Convert errors of several libraries into one that says what a folder or Hub id lacks, and the ``cure``.

    Damaged files raise many types: tokenizers even raises plain exceptions.
    """
    try:
        yield
    except HfXsentError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        if not isinstance(error, OSError | ValueError) or not reason:
            reason = f"{type(error).__name__} {reason}".rstrip()
        if is_local(name_or_path):
            raise ModelError(f"the model folder {name_or_path!r} has no {what}: {reason}") from error
        path = Path(name_or_path)
        similar = did_you_mean(name_or_path, map(str, path.parent.iterdir())) if path.parent.is_dir() else ""
        message = f"{name_or_path!r} is not a folder, and as a Hub id it has no {what} ({reason})"
        raise ModelError(message + (similar or f": {cure}")) from error
