"""Check an exported folder on this machine, then upload it to the Hub, without loading torch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, ModelCard, get_token
from huggingface_hub.errors import HfHubHTTPError, HTTPError

from hf_xsent.errors import OutputError
from hf_xsent.files import readable_size
from hf_xsent.publishing.export_folder import is_export
from hf_xsent.publishing.model_card import write_model_card
from hf_xsent.publishing.settings import PublishSettings
from hf_xsent.settings.command import command

logger = logging.getLogger(__name__)

_EXPORT = ("modules.json", "config.json", "model.safetensors", "tokenizer_config.json")
_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"}
_NOT_UPLOADED = {".git", ".cache", ".huggingface"}  # folders of git and of downloads; the Hub refuses the first two
_CARD_FIELDS = {  # what a card must state, and a flag with which publish writes it
    "license": "--license apache-2.0",
    "language": "--languages de sw en",
    "base_model": "--base_model FacebookAI/xlm-roberta-base",
    "pipeline_tag": "--license apache-2.0",
    "library_name": "--license apache-2.0",
}
_REFUSALS = {
    401: "the Hub does not accept your token: sign in with 'hf auth login'",
    403: "your token has no write access: use one with write access to that organization",
    404: "repository or branch not found with your token: check name, --revision and token",
}


@dataclass(frozen=True)
class Upload:
    """The files of an upload and the repository they go to."""

    folder: Path
    repository: str
    files: dict[str, int]  # bytes by path in the folder

    def table(self) -> str:
        """Format the size of each file and of all files."""
        rows = {**self.files, f"{len(self.files)} files": sum(self.files.values())}
        width = max(map(len, rows))
        return "\n".join(f"{name:<{width}}  {readable_size(size):>10}" for name, size in rows.items())


def plan_upload(folder: str | Path, repository: str) -> Upload:
    """List the files of an export; refuse a folder that is incomplete, has pickled files or lacks a complete card."""
    folder = Path(folder)
    missing = [name for name in _EXPORT if not any((folder / file).is_file() for file in (name, f"{name}.index.json"))]
    if not missing and not is_export(folder):
        raise OutputError(f"{folder} is a run, not an export: write one with hf-xsent export {folder} --output FOLDER")
    if missing:
        raise OutputError(f"{folder} is not an export ({missing[0]} is missing): write one with hf-xsent export")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    files = {name: size for name, size in files.items() if not _NOT_UPLOADED & set(Path(name).parts)}
    for name in files:
        if Path(name).suffix in _PICKLES:
            raise OutputError(f"{folder / name} may contain pickled code: publish weights as safetensors only")
    check_card(folder / "README.md")
    return Upload(folder, repository, files)


def check_card(path: Path) -> None:
    """Refuse a model card that is missing, unreadable or incomplete."""
    cure = f"run hf-xsent publish {path.parent} ORG/NAME with"
    if not path.is_file():
        raise OutputError(f"{path} is missing: {cure} --license")
    try:
        fields = ModelCard(path.read_text(encoding="utf-8")).data.to_dict()
    except Exception as error:  # whatever YAML or huggingface_hub raises
        raise OutputError(f"{path} has unreadable metadata: {' '.join(str(error).split())}") from error
    for field, flag in _CARD_FIELDS.items():
        if not fields.get(field):
            raise OutputError(f"{path} states no {field}: {cure} {flag}")


@dataclass(frozen=True)
class Published:
    """The files of an upload, and the address to which they were uploaded; None in a dry run."""

    upload: Upload
    address: str | None

    def __str__(self) -> str:
        end = "dry run: nothing was uploaded" if self.address is None else f"published: {self.address}"
        return f"{self.upload.table()}\n{end}"


@command(PublishSettings)
def publish(settings: PublishSettings) -> Published:
    """Write the card of an exported folder if needed, check the folder, and upload it; the same call resumes.

    ```python
    from hf_xsent import publish

    publish("exported/mine", "org/mine", private=True)
    ```
    """
    card = {name: getattr(settings, name) for name in ("license", "name", "base_model", "languages", "datasets")}
    if any(card.values()) or settings.results or settings.run or not Path(settings.folder, "README.md").is_file():
        card |= {"repository": settings.repository, "name": settings.name or settings.repository.rsplit("/", 1)[-1]}
        write_model_card(settings.folder, run=settings.run, results=settings.results or [], **card)
    upload = plan_upload(settings.folder, settings.repository)
    if settings.dry_run:
        return Published(upload, None)
    return Published(upload, upload_folder(upload, settings.private, settings.revision, settings.message))


def upload_folder(
    upload: Upload, private: bool = False, revision: str | None = None, message: str | None = None
) -> str:
    """Upload the files and return the address; a repeated call resumes and skips files that have arrived."""
    if get_token() is None:
        raise OutputError("you are not signed in: run 'hf auth login', or set HF_TOKEN to a token with write access")
    hub = HfApi()
    with _one_sentence(upload.repository):
        hub.create_repo(upload.repository, private=private, exist_ok=True)
        if hub.model_info(upload.repository).private != private:
            logger.warning("%s exists already and stays %s", upload.repository, "public" if private else "private")
        if revision is not None:
            hub.create_branch(upload.repository, branch=revision, exist_ok=True)
        hub.upload_folder(
            repo_id=upload.repository,
            folder_path=upload.folder,
            ignore_patterns=[f"{start}{name}/*" for name in sorted(_NOT_UPLOADED) for start in ("", "*/")],
            revision=revision,
            commit_message=message or f"Upload {upload.repository.rsplit('/', 1)[-1]} with hf-xsent",
        )
    return f"{hub.endpoint}/{upload.repository}" + ("" if revision is None else f"/tree/{revision}")


@contextmanager
def _one_sentence(repository: str) -> Iterator[None]:
    """Raise errors of the Hub or the network as one sentence, without the request, whose headers contain the token."""
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        reason = _REFUSALS.get(status, f"the Hub returned {status} ({error.server_message or 'no reason given'})")
        raise OutputError(f"{repository} is not published: {reason}") from None
    except (OSError, RuntimeError, ValueError, HTTPError) as error:
        reason = " ".join(str(error).split())
        raise OutputError(f"{repository} is not fully published: {reason} (the same command resumes)") from None
