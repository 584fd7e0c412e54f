"""Publishing from a folder to a Hub and back, over HTTP, as foreigns do it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_hub import PART, TOKEN, LocalHub
from transformers import AutoModel

from hf_xsent import SentenceEmbedder, publish
from hf_xsent.errors import OutputError
from hf_xsent.publishing.hub import plan_upload
from hf_xsent.runs.run import RUN_FACTS
from sentence_transformers import SentenceTransformer

# The reader has neither our package nor a token.
_READ = """
import json, sys
sys.modules["hf_xsent"] = None
import numpy as np, torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

sentences = ["Der Hund schläft im Garten.", "The dog sleeps in the garden."]
theirs = SentenceTransformer("org/dap-xlmr", device="cpu", revision=REVISION).encode(sentences)
plain = AutoModel.from_pretrained("org/dap-xlmr", revision=REVISION).eval()
batch = AutoTokenizer.from_pretrained("org/dap-xlmr", revision=REVISION)(sentences, padding=True, return_tensors="pt")
with torch.no_grad():
    states = plain(**batch).last_hidden_state
mask = batch["attention_mask"].unsqueeze(-1)
print(json.dumps([theirs.tolist(), ((states * mask).sum(1) / mask.sum(1)).tolist()]))
"""


def _refused(folder: Path) -> str:
    with pytest.raises(OutputError) as refused:
        plan_upload(folder)
    return str(refused.value)


@pytest.mark.slow
def test_a_model_goes_to_the_hub_and_comes_back(exported: Path, hub: LocalHub, at_the_hub) -> None:
    done = at_the_hub(("publish", str(exported), "org/dap-xlmr"))
    assert done.returncode == 0, (done.stderr, hub.requests)
    assert done.stdout.rstrip().endswith(f"published: {hub.url}/org/dap-xlmr")
    assert TOKEN not in done.stdout + done.stderr
    files = hub.repositories["org/dap-xlmr"].files("main")[1]
    assert set(files) == {path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()}
    assert hub.received == (exported / "model.safetensors").stat().st_size
    read = at_the_hub(_READ.replace("REVISION", "None"), token=None)
    assert read.returncode == 0, read.stderr
    sentences = ["Der Hund schläft im Garten.", "The dog sleeps in the garden."]
    ours = SentenceEmbedder.from_pretrained(str(exported), device="cpu").encode(sentences)
    for theirs in json.loads(read.stdout.splitlines()[-1]):
        np.testing.assert_allclose(np.array(theirs), ours, atol=1e-5)


def test_exactly_the_planned_files_are_uploaded(exported: Path, hub: LocalHub, at_the_hub) -> None:
    planned = plan_upload(exported)
    for name in (".cache/huggingface/x.lock", ".git/HEAD"):
        (exported / name).parent.mkdir(parents=True, exist_ok=True)
        (exported / name).write_text("local", "utf-8")
    assert plan_upload(exported) == planned
    done = at_the_hub(("publish", str(exported), "org/dap-xlmr"))
    assert done.returncode == 0, (done.stderr, hub.requests)
    assert set(hub.repositories["org/dap-xlmr"].files("main")[1]) == set(planned)


def test_a_model_that_cannot_be_opened_is_one_sentence_with_a_cure(exported: Path, hub: LocalHub, at_the_hub) -> None:
    weights = exported / "model.safetensors"
    assert at_the_hub(("publish", str(exported), "org/private", "--private")).returncode == 0
    assert at_the_hub(("publish", str(exported), "org/pickled")).returncode == 0
    repository = hub.repositories["org/pickled"]
    files = repository.commits[repository.branches["main"]]
    files["pytorch_model.bin"] = files.pop(weights.name)
    done = at_the_hub(
        "from hf_xsent import SentenceEmbedder\n"
        "from hf_xsent.errors import ModelError\n"
        "for name in ('org/none', 'org/private', 'org/pickled'):\n"
        "    try:\n"
        "        SentenceEmbedder.from_pretrained(name)\n"
        "    except ModelError as error:\n"
        "        print(error)\n",
        token=None,
    )
    unknown, private, pickled = done.stdout.splitlines()
    for line in (unknown, private):
        assert "no readable config.json" in line and line.endswith("or give the folder of a saved model")
    assert "no readable weights (model.safetensors)" in pickled and pickled.endswith("and give that folder")


def test_private_models_and_branches(exported: Path, hub: LocalHub, at_the_hub) -> None:
    done = at_the_hub(("publish", str(exported), "org/dap-xlmr", "--private", "--revision", "v1"))
    assert done.returncode == 0, (done.stderr, hub.requests)
    repository = hub.repositories["org/dap-xlmr"]
    assert repository.private and repository.files("main")[1] == {}
    assert "model.safetensors" in repository.files("v1")[1]
    download = "from huggingface_hub import snapshot_download; snapshot_download('org/dap-xlmr', revision='v1')"
    assert at_the_hub(download).returncode == 0
    assert "RepositoryNotFound" in at_the_hub(download, token=None).stderr
    again = at_the_hub(("publish", str(exported), "org/dap-xlmr"))
    assert "org/dap-xlmr exists already and stays private" in again.stderr


def test_an_interrupted_upload_resumes(exported: Path, hub: LocalHub, at_the_hub) -> None:
    """Large files that have arrived are not sent again, and the repository shows nothing before all have."""
    (exported / "onnx").mkdir()
    (exported / "onnx" / "model.onnx").write_bytes(b"\x08" * (PART * 3))
    first = (exported / "model.safetensors").stat().st_size
    hub.fail_uploads_after = PART
    failed = at_the_hub(("publish", str(exported), "org/dap-xlmr"))
    assert failed.returncode == 2 and TOKEN not in failed.stdout + failed.stderr
    assert failed.stderr.startswith("hf-xsent: org/dap-xlmr is not fully published: ")
    assert failed.stderr.rstrip().endswith("(the same command resumes)") and failed.stderr.count("\n") == 1
    assert hub.repositories["org/dap-xlmr"].files("main")[1] == {}
    arrived = {sha: len(blob) for sha, blob in hub.blobs.items()}
    hub.fail_uploads_after, hub.received = None, 0
    done = at_the_hub(("publish", str(exported), "org/dap-xlmr"))
    assert done.returncode == 0, (done.stderr, hub.requests)
    assert hub.received == first + PART * 3 - sum(arrived.values())
    hub.received = 0
    assert at_the_hub(("publish", str(exported), "org/dap-xlmr")).returncode == 0
    assert hub.received == 0


def test_a_second_model_leaves_no_file_of_the_first(exported: Path, hub: LocalHub, at_the_hub) -> None:
    """An ONNX graph of old weights beside new ones would be opened by whoever asks for ONNX."""
    (exported / "onnx").mkdir()
    (exported / "onnx" / "model.onnx").write_bytes(b"\x08")
    own = {"1_image.svg", "adapters/adapter_model.safetensors"}
    (exported / "adapters").mkdir()
    for name in own:
        (exported / name).write_text("of the user", "utf-8")
    assert at_the_hub(("publish", str(exported), "org/dap-xlmr")).returncode == 0
    (exported / "onnx" / "model.onnx").unlink()
    for name in own:
        (exported / name).unlink()
    done = at_the_hub(("publish", str(exported), "org/dap-xlmr"))
    assert done.returncode == 0, (done.stderr, hub.requests)
    files = hub.repositories["org/dap-xlmr"].files("main")[1]
    assert "onnx/model.onnx" not in files and {*own, "model.safetensors"} <= files.keys()


def test_a_dry_run_lists_files_and_uploads_nothing(exported: Path, hub: LocalHub, at_the_hub) -> None:
    done = at_the_hub(("publish", str(exported), "org/dap-xlmr", "--dry_run"), token=None)
    assert done.returncode == 0 and hub.requests == []
    assert "1_Pooling/config.json" in done.stdout and "nothing was uploaded" in done.stdout
    size = (exported / "model.safetensors").stat().st_size
    assert f"{size / 1000:.1f} kB" in done.stdout


def test_missing_and_foreign_tokens_are_refused(exported: Path, hub: LocalHub, at_the_hub) -> None:
    command = ("publish", str(exported), "org/dap-xlmr")
    without_token = at_the_hub(command, token=None)
    assert without_token.returncode == 2 and hub.requests == []
    assert without_token.stderr.startswith("hf-xsent: you are not signed in: run 'hf auth login', or set HF_TOKEN")
    foreign = at_the_hub(command, token="hf_of_another_user")
    assert foreign.returncode == 2 and "hf_of_another_user" not in foreign.stderr
    assert "401" in foreign.stderr and foreign.stderr.count("\n") == 1


def test_an_unreachable_hub_is_one_sentence(exported: Path, hub: LocalHub, at_the_hub) -> None:
    hub.__exit__()
    done = at_the_hub(("publish", str(exported), "org/dap-xlmr"))
    assert done.returncode == 2 and "org/dap-xlmr is not fully published: " in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1


def test_what_must_not_be_published_is_refused(
    exported: Path, encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "thesis").mkdir()
    assert "is not an export: write one" in _refused(tmp_path / "thesis")
    SentenceTransformer(str(encoder_folders["bert"]), device="cpu").save_pretrained(str(tmp_path / "other"))
    assert "is not an export: write one" in _refused(tmp_path / "other")
    for name in ("tokenizer.json", "model.safetensors", "training.json"):
        (exported / name).rename(tmp_path / name)
        assert re.search(rf"has no {name[:5]}.*: export the model again", _refused(exported))
        (tmp_path / name).rename(exported / name)
    for name in ("pytorch_model.bin", "1_Pooling/extra.pkl"):
        (exported / name).write_bytes(b"\x80\x04.")
        assert f"{exported / name} may contain pickled code" in _refused(exported)
        (exported / name).unlink()
    (exported / "openvino").mkdir()
    (exported / "openvino" / "openvino_model.bin").write_bytes(b"weights")
    assert {"README.md", "openvino/openvino_model.bin"} <= plan_upload(exported).keys()


def test_a_tokenizer_in_python_is_published(exported_phobert: Path) -> None:
    facts: Any = {"license": "mit", "base_model": "org/phobert", "languages": ["vi"]}
    published = publish(str(exported_phobert), "org/mine", dry_run=True, **facts)
    assert {"vocab.txt", "bpe.codes"} <= published.files.keys() and "tokenizer.json" not in published.files
    card = published.card.read_text("utf-8")
    assert "vLLM" in card and "text-embeddings-inference" not in card  # which reads tokenizer.json


def test_an_export_of_several_files_of_weights_is_published(exported: Path, tmp_path: Path) -> None:
    AutoModel.from_pretrained(exported).save_pretrained(tmp_path / "large", max_shard_size="50KB")
    for name in ("README.md", RUN_FACTS):
        shutil.copy(exported / name, tmp_path / "large" / name)
    planned = plan_upload(tmp_path / "large")
    assert "model.safetensors" not in planned and {"model.safetensors.index.json", "tokenizer.json"} <= planned.keys()


@pytest.mark.parametrize("field", ["license", "language", "base_model"])
def test_an_incomplete_card_is_refused(exported: Path, field: str) -> None:
    from huggingface_hub import ModelCard

    card = ModelCard((exported / "README.md").read_text("utf-8"))
    card.data.pop(field)
    (exported / "README.md").write_text(str(card), "utf-8")
    assert f"README.md states no {field}: publish it with " in _refused(exported)
    (exported / "README.md").write_text("---\nlicense: [\n---\n", "utf-8")
    assert "has unreadable metadata" in _refused(exported)


@pytest.mark.slow
def test_a_model_pushed_from_python_opens_without_our_code(hub, at_the_hub, encoder_folders: dict[str, Path]) -> None:
    """`model.push_to_hub` uploads a plain encoder; after importing hf_xsent, AutoModel gives our class."""
    folder = str(encoder_folders["bert"])
    push = (
        "import sys; from hf_xsent import XlmrWithRTLHead\n"
        "ranking = {'translation_ranking': 1.0}\n"
        f"model = XlmrWithRTLHead.from_pretrained({folder!r}, objectives=ranking, pooling='max')\n"
        "from huggingface_hub import create_repo, list_repo_files, upload_file\n"
        "create_repo('org/pushed')\n"
        "earlier = {'heads.safetensors', 'training.json', 'README.md', 'onnx/model.onnx', 'notes.txt'}\n"
        "card = b'---\\nlicense: mit\\n---\\n'\n"
        "for name in earlier: upload_file(path_or_fileobj=card, path_in_repo=name, repo_id='org/pushed')\n"
        "model.push_to_hub('org/pushed')\n"
        "assert earlier & {*list_repo_files('org/pushed')} == {'notes.txt'}\n"
        "model.push_to_hub('org/pushed', revision='next')\n"
        "assert 'config.json' in list_repo_files('org/pushed', revision='next')\n"
        "from transformers import AutoModel\n"
        "opened = AutoModel.from_pretrained('org/pushed')\n"
        "assert abs(opened.encode(['Where?']) - model.encode(['Where?'])).max() < 1e-5\n"
        "print(type(opened).__name__, opened.config.pooling)"
    )
    done = at_the_hub(push)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["DapForSentenceEmbedding", "max"]
    plain = at_the_hub(
        "from transformers import AutoModel; print(type(AutoModel.from_pretrained('org/pushed')).__name__)"
    )
    assert plain.returncode == 0 and plain.stdout.split() == ["BertModel"], plain.stderr
    assert "MISSING" not in plain.stderr and "UNEXPECTED" not in plain.stderr
