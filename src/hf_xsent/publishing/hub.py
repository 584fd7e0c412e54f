"""Put an exported folder on the Hub: everything is checked before the first byte leaves this machine. Free of torch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError
from huggingface_hub.utils import validate_repo_id

from hf_xsent.errors import OutputError
from hf_xsent.files import readable_size
from hf_xsent.publishing.card_fields import check_card

logger = logging.getLogger(__name__)

_EXPORT = ("modules.json", "config.json", "model.safetensors", "tokenizer_config.json")
_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"}
_NOT_SENT = {".git", ".cache", ".huggingface"}  # folders that huggingface_hub leaves out
_REFUSALS = {
    401: "the Hub does not accept your token: sign in anew with 'hf auth login'",
    403: "your token may not write there: use one with write access to that organization",
    404: "the Hub knows no such repository or branch for your token: check name, revision and token",
}


@dataclass(frozen=True)
class Upload:
    """What would be sent where."""

    folder: Path
    repository: str
    files: dict[str, int]  # path in the folder to bytes

    def table(self) -> str:
        """Each file with its size, and all together."""
        rows = {**self.files, f"{len(self.files)} files": sum(self.files.values())}
        width = max(map(len, rows))
        return "\n".join(f"{name:<{width}}  {readable_size(size):>10}" for name, size in rows.items())


def plan_upload(folder: str | Path, repository: str) -> Upload:
    """The files of an export that is fit to be published; anything amiss is told in one sentence."""
    folder = Path(folder)
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise OutputError(f"{repository!r} does not say whose it is: name the model as org/name")
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise OutputError(f"{repository!r} is no name for the Hub: {str(error).split('. ')[0]}") from error
    missing = [name for name in _EXPORT if not (folder / name).is_file()]
    if missing:
        raise OutputError(f"{folder} is no export ({missing[0]} is missing): write one with hf-xsent export")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    files = {name: size for name, size in files.items() if not _NOT_SENT & set(Path(name).parts)}
    for name in files:
        if Path(name).suffix in _PICKLES:
            raise OutputError(f"{folder / name} may hold pickled code: publish weights as safetensors alone")
    check_card(folder / "README.md")
    return Upload(folder, repository, files)


def publish(upload: Upload, private: bool = False, revision: str | None = None, message: str | None = None) -> str:
    """Send it, and tell its address. Broken off, the same call goes on: what has arrived is not sent again."""
    if get_token() is None:
        raise OutputError("you are not signed in: run 'hf auth login', or set HF_TOKEN to a token that may write")
    hub = HfApi()
    with _one_sentence(upload.repository):
        hub.create_repo(upload.repository, private=private, exist_ok=True)
        if hub.model_info(upload.repository).private != private:
            state = "private" if private is False else "public"
            logger.warning("%s exists already and stays %s", upload.repository, state)
        if revision is not None:
            hub.create_branch(upload.repository, branch=revision, exist_ok=True)
        hub.upload_folder(
            repo_id=upload.repository,
            folder_path=upload.folder,
            revision=revision,
            commit_message=message or f"Upload {upload.repository.rsplit('/', 1)[-1]} with hf-xsent",
        )
    return f"{hub.endpoint}/{upload.repository}" + ("" if revision is None else f"/tree/{revision}")


@contextmanager
def _one_sentence(repository: str) -> Iterator[None]:
    """Errors of the Hub and of the way there; never with the request, whose headers hold the token."""
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        reason = _REFUSALS.get(status, f"the Hub answered {status} ({error.server_message or 'no reason given'})")
        raise OutputError(f"{repository} is not published: {reason}") from None
    except (OSError, RuntimeError, ValueError, HTTPError) as error:
        raise OutputError(
            f"{repository} is not published: {' '.join(str(error).split())} (run the same command to go on)"
        ) from None
