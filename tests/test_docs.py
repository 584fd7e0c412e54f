"""Every fenced command and Python block of README and docs runs as written, with small stand-ins.

Blocks of a page run in order in one folder, Python with the names of the blocks before, `hf-xsent` lines in this
process, other lines in a shell. A block that cannot run has ``<!-- not run: REASON -->`` before it in the page, and is
counted here.
"""

from __future__ import annotations

import gzip
import json
import lzma
import re
import shlex
import shutil
import subprocess
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from study_file import start_runs_as_forks
from transformers import AutoTokenizer

import hf_xsent
from hf_xsent import DapForSentenceEmbedding, export_sentence_transformer
from hf_xsent.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN = {  # reason: blocks that say so
    "install": 2,  # pip and the quickstart, which CI runs
    "make": 1,  # make quickstart and make test are what CI runs
    "hours": 7,  # tests/comparison runs smaller studies, training/test_further_stage.py smaller stages
    "layers": 1,  # layer 8 of tr-wtr-small.yaml; the tests' encoders have fewer
    "network": 2,
    "hardware": 5,  # GPUs, a Ray cluster, an idle machine
    "duckdb": 1,  # tests/mining/test_parquet.py reads the vectors with it
    "hub": 1,
    "runtimes": 11,  # other programs; make test-runtimes runs all that can be installed
    "onnx": 3,  # an extra; tests/publishing/test_onnx.py runs them where it is installed
    "mteb": 1,  # another library
}
STAND_INS = {
    "xlm-roberta-base": "encoder",
    "intfloat/multilingual-e5-small": "encoder",
    "data=pairs, output_dir": (
        "data=pairs, max_steps=2, per_device_train_batch_size=4, clean=False, use_cpu=True, output_dir"
    ),
    "mixed-small --model": "mixed-small --max_steps 2 --per_device_train_batch_size 4 --clean false --model",
    "mixed-small-questions --model": (
        "mixed-small-questions --max_steps 2 --per_device_train_batch_size 4 --clean false --model"
    ),
    "--max_length 192 --output": "--max_length 24 --output",
    'budget={"steps": 200}': 'budget={"steps": 1}',
    '"rules": {"exclude": "gold.tsv"}': (
        '"rules": {"exclude": "few.tsv"}, "dev_pairs": 0, "clean": False, "use_cpu": True'
    ),
    'rules={"exclude": "gold.tsv"}, output_dir': (
        'rules={"exclude": "few.tsv"}, max_steps=2, per_device_train_batch_size=4, clean=False, '
        "use_cpu=True, output_dir"
    ),
    "--rules.exclude gold.tsv": "--rules.exclude few.tsv",
    "max_steps=1000, per_device_train_batch_size=64": "max_steps=2, per_device_train_batch_size=4",
    "max_steps=1000": "max_steps=2",
    "--max_steps 40 --per_device_train_batch_size 32": (
        "--max_steps 2 --per_device_train_batch_size 4 --dev_pairs 4 --clean false"
    ),
    "--max_steps 1000": "--max_steps 2 --per_device_train_batch_size 4 --dev_pairs 4 --clean false",
    "--eval_steps 100 --save_steps 100": "--eval_steps 1 --save_steps 1",
    "pretrain tr-small": "pretrain tr-small --max_steps 2 --per_device_train_batch_size 4 --clean false",
    "data/tatoeba --languages 36": "data/tatoeba --languages de",
    "--target_language fr --filter min_score=0.5": "--target_language en --filter min_score=-1",
    "--layers 0-12": "--layers 0-2",
}


STUDY = """
model: encoder
data: {de: pairs.tsv}
budget: {steps: 1}
methods: {none: {train: false}}
tasks: {pairs: {data: {de: pairs.tsv}}}
"""


@dataclass
class Block:
    page: str
    line: int
    language: str
    code: str
    not_run: str | None


def blocks(path: Path) -> list[Block]:
    text = path.read_text("utf-8")
    fences = re.finditer(r"(?:<!-- not run: (\w+) -->\n)?^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        Block(str(path.relative_to(ROOT)), text[: fence.start()].count("\n") + 1, fence[2], fence[3], fence[1])
        for fence in fences
        if fence[2] in ("bash", "python")
    ]


@pytest.fixture
def prepared(
    encoder_folders: dict[str, Path], pairs: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Write the small files that the pages name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    start_runs_as_forks(monkeypatch)
    shutil.copytree(encoder_folders["xlm-roberta-mlm"], "encoder")
    shutil.copytree(ROOT / "trainer_scripts", "trainer_scripts")
    table = "".join(f"{source}\t{target}\n" for source, target in pairs)
    for name in ("pairs.tsv", "crawled.tsv", "gold.tsv"):
        Path(name).write_text(table, "utf-8")
    Path("few.tsv").write_text("".join(table.splitlines(keepends=True)[:2]), "utf-8")
    Path("faq.tsv").write_text(f"question\tanswer\n{table}", "utf-8")
    with gzip.open("pairs.de-en.tsv.gz", "wt", encoding="utf-8") as file:
        file.write(table)
    Path("books").mkdir()
    for folder in ("", "books/"):
        for side, language in enumerate(("de", "fr")):
            Path(f"{folder}book.{language}.txt").write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
    Path("train").mkdir()
    with lzma.open("train/de-en.tsv.xz", "wt", encoding="utf-8") as file:
        file.write(table)
    for name in (
        "data/ntrex",
        "data/tatoeba",
        "data/bucc",
        "data/sts17",
        "data/sts22",
    ):
        Path(name).mkdir(parents=True)
    Path("articles").mkdir()
    tatoeba = [f"data/tatoeba/tatoeba.{code}-eng" for code in ("deu", "swh")]
    for side, names in enumerate(
        (
            ["pairs.sw", "news.de.txt", "news.sw.txt", "news.zh.txt", "articles/fares.de.txt"],
            ["pairs.en", "news.en.txt"],
        )
    ):
        names += [f"{name}.{'eng' if side else name[-7:-4]}" for name in tatoeba]
        for name in names:
            Path(name).write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
    for side, language in enumerate(("de", "en")):
        Path(f"data/ntrex/{language}.txt").write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
    for side, language in enumerate(("zh", "en")):
        numbered = "".join(f"{language}-{number:09}\t{pair[side]}\n" for number, pair in enumerate(pairs))
        Path(f"data/bucc/zh-en.training.{language}").write_text(numbered, "utf-8")
    gold = "".join(f"zh-{number:09}\ten-{number:09}\n" for number in range(len(pairs)))
    Path("data/bucc/zh-en.training.gold").write_text(gold, "utf-8")
    Path("data/sts17/STS.input.track1.ar-ar.txt").write_text(table, "utf-8")
    Path("data/sts17/STS.gs.track1.ar-ar.txt").write_text("".join(f"{n % 6}\n" for n in range(len(pairs))))
    rated = ({"sentence1": source, "sentence2": target, "score": n % 4} for n, (source, target) in enumerate(pairs))
    Path("data/sts22/de-en.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in rated), "utf-8")
    Path("collection").mkdir()
    for file, side in (("queries", 0), ("corpus", 1)):
        numbered = ({"_id": str(number), "text": pair[side]} for number, pair in enumerate(pairs))
        Path(f"collection/{file}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in numbered), "utf-8")
    Path("collection/qrels.tsv").write_text("".join(f"{number}\t{number}\t1\n" for number in range(len(pairs))))
    Path("study.yaml").write_text(STUDY, "utf-8")
    return tmp_path


def _run(block: Block, names: dict[str, Any]) -> None:
    code = block.code
    for written, stand_in in STAND_INS.items():
        code = code.replace(written, stand_in)
    where = f"{block.page}, line {block.line}"
    if block.language == "python":
        exec(compile(code, where, "exec"), names)
        return
    for command in re.sub(r"\\\n\s*", "", code).splitlines():
        words = shlex.split(command, comments=True)
        if words[:1] == ["hf-xsent"]:
            try:
                assert main(words[1:]) == 0, f"{where}: {command}"
            except SystemExit as ended:  # argparse: --version, or a mistyped flag
                assert ended.code == 0, f"{where}: {command}"
        elif words:
            subprocess.run(["bash", "-ec", command], check=True)


def _ready(page: str) -> None:
    """Write the folders of pages that a page continues."""
    if page in (
        "docs/mine_bitext.md",
        "docs/at_scale.md",
        "docs/from_documents.md",
        "docs/choose_a_method.md",
        "docs/evaluation.md",
    ):
        model = DapForSentenceEmbedding.from_backbone("encoder", pooling="mean", max_length=64).eval()
        export_sentence_transformer(model, "exported", AutoTokenizer.from_pretrained("encoder"), verify=False)
    if page in ("docs/publish.md", "docs/evaluation.md", "docs/search.md"):
        command = (
            "pretrain --model encoder --data de=pairs.tsv --objectives translation_ranking=1 --output_dir runs/mine "
        )
        assert main(shlex.split(command + "--max_steps 1 --dev_pairs 0 --clean false --pooling mean")) == 0


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path)], ids=lambda path: path.stem)
def test_every_block_runs(path: Path, prepared: Path) -> None:
    _ready(str(path.relative_to(ROOT)))
    names: dict[str, Any] = {}
    for block in blocks(path):
        if block.not_run is None:
            _run(block, names)


EXAMPLES = (  # public names whose docstrings have an example, in an order in which each finds the files that it reads
    "load_bitext", "pretrain", "AlignmentTrainer", "export_sentence_transformer", "evaluate", "publish",
    "TaskEvaluator", "AlignmentLoss", "mine_files", "mine_negatives", "score_pairs",
    "align_words",
    "align_documents", "align_document_files", "trim_vocabulary", "finetune",
)  # fmt: skip
# A Hub, extras, and hours; their tests run smaller ones.
NOT_RUN_EXAMPLES = ("export_onnx", "export_gguf", "check_runtimes", "compare")
EXAMPLE_STAND_INS = {
    '"runs/mine"': '"runs/example"',
    '"runs/de", max_steps=1000': '"runs/example", max_steps=2, dev_pairs=4, clean=False, use_cpu=True',
    "max_steps=1000": "max_steps=1, use_cpu=True",
    "max_steps=100,": "max_steps=1, use_cpu=True,",
    "pairs.jsonl": "pairs.links.jsonl",
    "threshold=1.06": "threshold=-1.0",
    "xlm-roberta-base": "encoder",
}


def _example(name: str) -> str:
    fence = re.search(r"```python\n(.*?)```", getattr(hf_xsent, name).__doc__ or "", re.DOTALL)
    assert fence, f"{name} has no example"
    return textwrap.dedent("    " * (not fence[1].startswith(" ")) + fence[1])


@pytest.mark.slow
def test_every_example_in_a_docstring_runs(prepared: Path) -> None:
    labels = ("entailment", "neutral", "contradiction")
    Path("multinli.tsv").write_text("".join(f"Ein Hund.\tA dog {n}.\t{labels[n % 3]}\n" for n in range(6)), "utf-8")
    for name in EXAMPLES:
        code = _example(name).replace('"runs/mine", max_steps', '"runs/other", max_steps')
        for written, stand_in in EXAMPLE_STAND_INS.items():
            code = code.replace(written, stand_in)
        if name == "publish":
            assert (
                main(["evaluate", "runs/example", "--tasks", "tatoeba=data/tatoeba", "--output", "results.json"]) == 0
            )
        exec(compile(code, f"the example of {name}", "exec"), {})


def test_every_call_of_the_command_line_has_an_example() -> None:
    for name in NOT_RUN_EXAMPLES:
        compile(_example(name), name, "exec")
    with_examples = {name for name in hf_xsent.__all__ if "```python" in (getattr(hf_xsent, name).__doc__ or "")}
    assert with_examples == {*EXAMPLES, *NOT_RUN_EXAMPLES}
    page = (ROOT / "docs" / "api" / "index.md").read_text("utf-8")
    for name in with_examples:
        assert f".{name}\n" in page, name


def test_what_is_not_run_is_counted() -> None:
    marked = Counter(block.not_run for path in PAGES for block in blocks(path) if block.not_run)
    assert dict(marked) == NOT_RUN


def test_every_fence_says_its_language() -> None:
    """A fence without a language would not run."""
    for path in PAGES:
        fences = re.findall(r"^```(.*)$", path.read_text("utf-8"), re.MULTILINE)
        assert len(fences) % 2 == 0 and all(fences[::2]) and not any(fences[1::2]), path
