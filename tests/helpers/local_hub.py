"""A Hub on this machine: the part of the Hub's HTTP protocol that huggingface_hub uploads and downloads models with.

Repositories with branches, sign-in by token, upload modes, Git LFS (in parts, too), commits, and files by revision with
the headers that the client's cache goes by. Everything is kept in memory; ``fail_uploads_after`` breaks a transfer.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import os
import re
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from forks import Fork

TOKEN = "hf_a_token_of_the_local_hub"
PART = 100_000  # bytes of an upload's part


@dataclass
class Repository:
    private: bool
    branches: dict[str, str] = field(default_factory=dict)  # name to commit
    commits: dict[str, dict[str, str]] = field(default_factory=dict)  # commit to files: path to sha256
    messages: list[str] = field(default_factory=list)

    def files(self, revision: str) -> tuple[str, dict[str, str]] | None:
        commit = self.branches.get(revision, revision)
        return (commit, self.commits[commit]) if commit in self.commits else None


class LocalHub:
    """Start with ``with LocalHub() as hub``; clients find it at ``hub.url``."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}
        self.large: set[str] = set()  # those that came through LFS
        self.parts: dict[str, dict[int, bytes]] = {}
        self.requests: list[str] = []
        self.received = 0  # bytes of large files
        self.fail_uploads_after: int | None = None
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> LocalHub:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def text(self, repository: str, path: str, revision: str = "main") -> str:
        return self.content(repository, path, revision).decode("utf-8")

    def content(self, repository: str, path: str, revision: str = "main") -> bytes:
        found = self.repositories[repository].files(revision)
        assert found is not None
        return self.blobs[found[1][path]]


class _Handler(BaseHTTPRequestHandler):
    hub: LocalHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Silent."""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def _answer(self, method: str) -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append(f"{method} {path}")
        length = self.headers.get("Content-Length")
        self.body = self.rfile.read(int(length)) if length else self._chunked()
        for pattern, verb, answer in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and verb in (method, "GET" if method == "HEAD" else None):
                return answer(self, *(unquote(part) for part in match.groups() if part is not None))
        self._send(404, {"error": f"no such page: {path}"})

    def _chunked(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return b""
        body = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _send(self, status: int, content: Any = b"", **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if not any(name.lower() == "content_length" for name in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @property
    def _signed_in(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def _repository(self, name: str, writing: bool = False) -> Repository | None:
        """None, and the answer is given: unknown, or private or to be written to by a stranger."""
        found = self.hub.repositories.get(name)
        if found is None or ((writing or found.private) and not self._signed_in):
            self._send(404 if self._signed_in else 401, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
            return None
        return found

    # Repositories

    def who_am_i(self) -> None:
        if not self._signed_in:
            return self._send(401, {"error": "Invalid credentials"})
        self._send(200, {"type": "user", "name": "me", "orgs": [{"name": "org"}], "auth": {"type": "access_token"}})

    def create(self) -> None:
        if not self._signed_in:
            return self._send(401, {"error": "Invalid username or password."})
        asked = json.loads(self.body)
        name = f"{asked['organization']}/{asked['name']}"
        url = f"{self.hub.url}/{name}"
        if name in self.hub.repositories:
            return self._send(409, {"error": "You already created this model repo", "url": url})
        repository = Repository(private=asked.get("visibility") == "private" or bool(asked.get("private")))
        repository.branches["main"] = self._commit(repository, {}, "initial commit")
        self.hub.repositories[name] = repository
        self._send(200, {"url": url, "name": name})

    def branch(self, name: str, branch: str) -> None:
        repository = self._repository(name, writing=True)
        if repository is None:
            return
        if branch in repository.branches:
            return self._send(409, {"error": "Reference already exists"})
        repository.branches[branch] = repository.branches["main"]
        self._send(200, {})

    def info(self, name: str, revision: str = "main") -> None:
        repository = self._repository(name)
        if repository is None:
            return
        found = repository.files(revision)
        if found is None:
            return self._send(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        files = [{"rfilename": path} for path in sorted(found[1])]
        self._send(
            200, {"id": name, "modelId": name, "sha": found[0], "private": repository.private, "siblings": files}
        )

    def tree(self, name: str, revision: str, _folder: str | None = None) -> None:
        repository = self._repository(name)
        found = repository and repository.files(revision)
        if not found:
            return repository and self._send(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        self._send(200, [self._file(path, sha) for path, sha in sorted(found[1].items())])

    def _file(self, path: str, sha: str) -> dict[str, Any]:
        size = len(self.hub.blobs[sha])
        large = {"lfs": {"oid": sha, "size": size, "pointerSize": 130}} if sha in self.hub.large else {}
        return {"type": "file", "path": path, "size": size, "oid": sha[:40], **large}

    def validate(self) -> None:
        """What the Hub demands of a card's metadata, as far as it says so."""
        asked = json.loads(self.body)
        block = re.match(r"---\n(.*?)\n---\n", asked["content"], re.DOTALL)
        said = yaml.safe_load(block[1]) if block else {}
        errors = [] if block else ["there is no metadata"]
        for name, pattern in _METADATA.items():
            values = said.get(name, [])
            for value in values if isinstance(values, list) else [values]:
                if not isinstance(value, str) or not re.fullmatch(pattern, value):
                    errors.append(f'"{name}" must match {pattern}: {value!r}')
        for model in said.get("model-index", []):
            for result in model["results"]:
                if not {"task", "dataset", "metrics"} <= set(result) or not {"name", "type"} <= set(result["dataset"]):
                    errors.append('"model-index" lacks task, dataset or metrics')
        self._send(400 if errors else 200, {"errors": [{"message": error} for error in errors], "warnings": []})

    # Uploads

    def preupload(self, name: str, revision: str) -> None:
        repository = self._repository(name, writing=True)
        if repository is None:
            return
        present = repository.files(revision)
        if present is None:
            return self._send(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        files = []
        for file in json.loads(self.body)["files"]:
            large = file["path"].endswith((".safetensors", ".onnx", ".data")) or file["size"] > 10_000_000
            sha = present[1].get(file["path"])
            mode = "lfs" if large else "regular"
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False, "oid": sha and sha[:40]})
        self._send(200, {"files": files})

    def lfs_batch(self, name: str) -> None:
        if self._repository(name, writing=True) is None:
            return
        objects = []
        for blob in json.loads(self.body)["objects"]:
            if blob["oid"] in self.hub.blobs:
                objects.append(blob)
                continue
            upload = f"{self.hub.url}/lfs/{blob['oid']}"
            count = -(-blob["size"] // PART)
            header = {"chunk_size": str(PART)} | {str(i + 1): f"{upload}/{i + 1}" for i in range(count)}
            objects.append(blob | {"actions": {"upload": {"href": upload, "header": header}}})
        self._send(200, {"transfer": "multipart", "objects": objects})

    def part(self, oid: str, number: str) -> None:
        """Storage takes no token: its address was given to someone signed in."""
        if self.hub.fail_uploads_after is not None and self.hub.received >= self.hub.fail_uploads_after:
            return self._send(403, b"the line is down")
        self.hub.received += len(self.body)
        self.hub.parts.setdefault(oid, {})[int(number)] = self.body
        self._send(200, ETag=f'"{hashlib.md5(self.body).hexdigest()}"')

    def complete(self, oid: str) -> None:
        whole = b"".join(part for _, part in sorted(self.hub.parts.pop(oid).items()))
        if hashlib.sha256(whole).hexdigest() != oid:
            return self._send(422, {"error": "these are other bytes"})
        self.hub.blobs[oid] = whole
        self.hub.large.add(oid)
        self._send(200, {})

    def commit(self, name: str, revision: str) -> None:
        repository = self._repository(name, writing=True)
        if repository is None:
            return
        lines = [json.loads(line) for line in self.body.splitlines()]
        files = dict(repository.commits[repository.branches[revision]])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                content = base64.b64decode(value["content"])
                files[value["path"]] = hashlib.sha256(content).hexdigest()
                self.hub.blobs[files[value["path"]]] = content
            elif line["key"] == "lfsFile":
                if value["oid"] not in self.hub.blobs:
                    return self._send(422, {"error": f"{value['path']} was never uploaded"})
                files[value["path"]] = value["oid"]
            elif line["key"] == "deletedFile":
                files.pop(value["path"])
        message = next(line["value"]["summary"] for line in lines if line["key"] == "header")
        commit = repository.branches[revision] = self._commit(repository, files, message)
        self._send(200, {"commitUrl": f"{self.hub.url}/{name}/commit/{commit}", "commitOid": commit, "success": True})

    @staticmethod
    def _commit(repository: Repository, files: dict[str, str], message: str) -> str:
        commit = hashlib.sha1(f"{len(repository.commits)} {files}".encode()).hexdigest()
        repository.commits[commit] = files
        repository.messages.append(message)
        return commit

    # Downloads

    def resolve(self, name: str, revision: str, path: str) -> None:
        repository = self._repository(name)
        if repository is None:
            return
        found = repository.files(revision)
        if found is None:
            return self._send(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        commit, files = found
        if path not in files:
            return self._send(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        content = self.hub.blobs[files[path]]
        headers = {"ETag": f'"{files[path]}"', "X_Repo_Commit": commit, "Accept_Ranges": "bytes"}
        if files[path] in self.hub.large:
            headers |= {"X_Linked_ETag": f'"{files[path]}"', "X_Linked_Size": str(len(content))}
        first = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if first:
            start = int(first[1])
            headers["Content_Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            return self._send(206, content[start:], **headers)
        self._send(200, content, **headers)


_METADATA = {
    "license": r"(apache-2\.0|mit|cc-by(-nc)?(-sa)?-[34]\.0|other)",
    "language": r"[a-z]{2,3}",
    "base_model": r"[\w.-]+/[\w.-]+",
    "datasets": r"[\w.-]+/[\w.-]+",
    "pipeline_tag": r"sentence-similarity|feature-extraction",
    "library_name": r"sentence-transformers|transformers",
    "tags": r"[\w:./-]+",
}
_NAME = r"([\w.-]+/[\w.-]+)"
_ROUTES = [
    (r"/api/whoami-v2", "GET", _Handler.who_am_i),
    (r"/api/repos/create", "POST", _Handler.create),
    (r"/api/validate-yaml", "POST", _Handler.validate),
    (rf"/api/models/{_NAME}", "GET", _Handler.info),
    (rf"/api/models/{_NAME}/revision/([^/]+)", "GET", _Handler.info),
    (rf"/api/models/{_NAME}/branch/([^/]+)", "POST", _Handler.branch),
    (rf"/api/models/{_NAME}/tree/([^/]+)(/.*)?", "GET", lambda self, *found: self.tree(*found)),
    (rf"/api/models/{_NAME}/preupload/([^/]+)", "POST", _Handler.preupload),
    (rf"/api/models/{_NAME}/commit/([^/]+)", "POST", _Handler.commit),
    (rf"/{_NAME}\.git/info/lfs/objects/batch", "POST", _Handler.lfs_batch),
    (r"/lfs/(\w+)/(\d+)", "PUT", _Handler.part),
    (r"/lfs/(\w+)", "POST", _Handler.complete),
    (rf"/{_NAME}/resolve/([^/]+)/(.+)", "GET", _Handler.resolve),
]


def environment_of(hub: LocalHub, home: Path, token: str | None = TOKEN) -> dict[str, str]:
    """Return the variables of a process whose Hub is this one."""
    prefixes = ("HF_", "HUGGING")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)} | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home / f"home of {token}"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_XET": "1",  # the LFS way, which the local Hub speaks
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
    }
    return environment | ({} if token is None else {"HF_TOKEN": token})


def command_at(
    hub: LocalHub, arguments: Sequence[str], folder: Path, token: str | None = TOKEN
) -> subprocess.CompletedProcess[str]:
    """Run an hf-xsent command in a fork whose Hub is this one."""
    output, errors = (folder / f"{name} of a command" for name in ("output", "errors"))
    for file in (output, errors):
        file.write_text("", "utf-8")
    fork = Fork(_command, arguments, str(errors), log=output, environment=environment_of(hub, folder, token))
    return subprocess.CompletedProcess(arguments, fork.wait(300), output.read_text("utf-8"), errors.read_text("utf-8"))


def _command(arguments: Sequence[str], errors: str) -> int:
    """Run the console script; the constants of huggingface_hub, which is imported, are those of this environment."""
    import huggingface_hub.constants

    from hf_xsent_cli import main

    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
    importlib.reload(huggingface_hub.constants)
    return main([*arguments])
