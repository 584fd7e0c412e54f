"""Check an exported folder on this machine, then upload it to the Hub."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HTTPError

from hf_xsent.errors import OutputError, did_you_mean
from hf_xsent.files import readable_size
from hf_xsent.models.saved_form import OF_EXPORTS
from hf_xsent.pages.tables import Table
from hf_xsent.publishing.export_folder import check_export, has_fast_tokenizer
from hf_xsent.publishing.model_card import (
    NOT_ON_THE_HUB,
    add_facts,
    card_metadata,
    compose_card,
    hub_language,
    is_generated,
    listed,
    write_card,
)
from hf_xsent.publishing.runtimes import OPENVINO, resource
from hf_xsent.publishing.settings import HUB_ID, PublishSettings
from hf_xsent.runs.run import RUN_FACTS
from hf_xsent.settings.command import command

logger = logging.getLogger(__name__)

_REQUIRED = ("config.json", "model*.safetensors", RUN_FACTS)  # a copy by SentenceTransformer lacks it
_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib"}
_NOT_UPLOADED = {".git", ".cache"}  # folders of git and of downloads, which huggingface_hub skips
_CARD_FIELDS = {  # what a card must state, and the flag with which publish writes it
    "license": "--license apache-2.0",
    "language": "--languages de sw en",
    "base_model": "--base_model ORG/ENCODER",
}


@dataclass(frozen=True)
class Published:
    """The bytes of each file of an upload, and the address to which they were uploaded; None in a dry run."""

    files: dict[str, int]
    address: str | None
    card: Path

    def __str__(self) -> str:
        sizes = {**self.files, f"{len(self.files)} files": sum(self.files.values())}
        table = Table(["file", "size"], [[name, readable_size(size)] for name, size in sizes.items()])
        dry_run = f"dry run: nothing was uploaded; the card is {self.card}"
        return f"{table}\n{dry_run if self.address is None else f'published: {self.address}'}"


@command(PublishSettings)
def publish(settings: PublishSettings) -> Published:
    """Write the card of an exported folder, check the folder, and upload it; the same call resumes.

    What a call states is stored in the folder; a card that was edited is not changed.
    ``results`` are files written by ``evaluate``, of this folder or of the one that it was exported from.

    ```python
    from hf_xsent import publish

    facts = {"license": "apache-2.0", "base_model": "org/encoder"}
    publish("exported-mine", "org/mine", results=["results.json"], **facts, dry_run=True)
    ```
    """
    _check_files(settings.folder)
    stated = {name: getattr(settings, name) for name in ("license", "name", "base_model", "languages", "datasets")}
    path = Path(settings.folder, "README.md")
    if not path.is_file() or is_generated(path.read_text(encoding="utf-8")):
        facts = add_facts(settings.folder, settings.results, stated)
        card = compose_card(settings.folder, facts, settings.repository)
        check_card(card, path)
        write_card(settings.folder, facts, card)
    elif any(value is not None for value in stated.values()) or settings.results:
        raise OutputError(
            f"{path} was edited, or is not from this command, and is not changed: edit it, or move it away, publish "
            "again, and copy your text into the new card"
        )
    sizes = plan_upload(settings.folder)
    return Published(sizes, None if settings.dry_run else _upload(settings), path)


def _check_files(folder: str | Path) -> None:
    """Refuse a folder that is not an export, or lacks one of its files."""
    check_export(folder)
    for pattern in (*_REQUIRED, "tokenizer.json") if has_fast_tokenizer(folder) else _REQUIRED:
        if not any(Path(folder).glob(pattern)):
            raise OutputError(f"{folder} has no {pattern}: export the model again")


def plan_upload(folder: str | Path) -> dict[str, int]:
    """Return the size of each file of an export; refuse one with missing or pickled files or an incomplete card."""
    folder = Path(folder)
    _check_files(folder)
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    sizes = {name.as_posix(): path.stat().st_size for name, path in paths.items() if not _NOT_UPLOADED & {*name.parts}}
    for name in sizes:
        if Path(name).suffix in _PICKLES and Path(name) != Path(OPENVINO).with_suffix(".bin"):
            raise OutputError(f"{folder / name} may contain pickled code: publish weights as safetensors only")
    check_card((folder / "README.md").read_text(encoding="utf-8"), folder / "README.md")
    return sizes


def check_card(text: str, path: Path) -> None:
    """Refuse a model card, which is or will be at this path, that is incomplete or has values that the Hub refuses."""
    fields = card_metadata(text, path)
    started = {"base_model"} if NOT_ON_THE_HUB in text else set()
    if missing := [field for field in _CARD_FIELDS if not fields.get(field) and field not in started]:
        flags = " and ".join(_CARD_FIELDS[field] for field in missing)
        raise OutputError(f"{path} states no {' and no '.join(missing)}: publish it with {flags}")
    known = resource("licenses.txt").split()
    for name in listed(fields["license"]):
        if name not in known:
            hint = did_you_mean(str(name).lower(), known) or "; give the id of one that it has, or other"
            raise OutputError(f"{path}: the Hub has no licence {name!r}{hint}")
    for code in listed(fields["language"]):
        if (name := hub_language(str(code))) != code and not re.fullmatch("[a-z]{2,3}", str(code)):
            raise OutputError(f"{path}: the Hub has no language {code!r}: write {name}")
    for name in listed(fields.get("base_model")):
        if not re.fullmatch(HUB_ID, str(name)):
            raise OutputError(f"{path}: base_model {name!r} is not ORG/NAME: give its id on the Hub by --base_model")


def _upload(settings: PublishSettings) -> str:
    """Upload the folder and return the address; a repeated call resumes and skips files that have arrived."""
    if get_token() is None:
        raise OutputError("you are not signed in: run 'hf auth login', or set HF_TOKEN to a token with write access")
    hub, repository, revision = HfApi(), settings.repository, settings.revision
    try:
        hub.create_repo(repository, private=settings.private, exist_ok=True)
        if hub.model_info(repository).private != settings.private:
            logger.warning("%s exists already and stays %s", repository, "public" if settings.private else "private")
        if revision is not None:
            hub.create_branch(repository, branch=revision, exist_ok=True)
        hub.upload_folder(
            repo_id=repository,
            folder_path=settings.folder,
            revision=revision,
            delete_patterns=OF_EXPORTS,  # those of an earlier model that this folder lacks
            commit_message=f"Upload {repository.rsplit('/', 1)[-1]} with hf-xsent",
        )
    except (OSError, RuntimeError, ValueError, HTTPError) as error:  # of the Hub or the network, often in several lines
        reason = " ".join(str(error).split())
        raise OutputError(f"{repository} is not fully published: {reason} (the same command resumes)") from None
    return f"{hub.endpoint}/{repository}" + ("" if revision is None else f"/tree/{revision}")
