from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forks import Fork

from hf_xsent.cli import COMMANDS, load_command, main, names_of_flags, settings_class
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.objectives.registry import OBJECTIVES, objective_class
from hf_xsent.settings.declare import settings_of
from hf_xsent.training.recipe import recipe_settings


def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path: Path):
    command = ["pretrain", "--model", "x", "--data", "de=none.tsv", "--output_dir", str(tmp_path / "run")]
    done = Fork(main, command, log=tmp_path / "log.txt")
    assert done.wait() == 2
    assert done.output.strip().splitlines()[-1].startswith("hf-xsent: ")
    assert "Traceback" not in done.output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["align-documents", "a.txt", "b.txt", "a.txt", "--model", "m", "-o", "o"], "'a.txt'.*in quotes.*books/\\*"),
        (["score", "a.txt", "nowhere", "--model", "m", "-o", "o"], "unexpected argument 'nowhere'"),
        (["evaluate", "m", "--languags", "de"], "unknown flag --languags; did you mean 'languages'"),
        (["pretrain", "--leraning_rate", "1"], "unknown flag --leraning_rate; did you mean 'learning_rate'"),
        (["pretrain", "-x", "1"], "unknown flag --x"),
        (["pretrain", "--sources", "x"], "unknown flag --sources\n"),
        (["pretrain", "mixed-small", "tr-small"], "'mixed-small' is a second recipe: give one"),
        (["mine", "a.txt", "b.txt"], "output is missing: give --output"),
        (["mine", "a.txt", "b.txt", "--k", "three"], "--k takes a whole number, not 'three'"),
        (["mime"], "unknown command 'mime'; did you mean 'mine'"),
    ],
)
def test_mistakes_in_arguments_are_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("A dog.\n")
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert re.search(message, said) and said.count("\n") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_setting_of_a_command_is_a_known_flag(name: str):
    names = {*load_command(name).fields}
    if name == "pretrain":
        names = {
            *recipe_settings(),
            *(key for kind in OBJECTIVES for key in settings_of(objective_class(kind).Settings)),
        }
    assert len(names) > 3 and not names - names_of_flags(settings_class(name))


@pytest.fixture
def tatoeba(tmp_path: Path, pairs: list[tuple[str, str]]) -> Path:
    folder = tmp_path / "tatoeba"
    folder.mkdir()
    (folder / "tatoeba.deu-eng.deu").write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
    (folder / "tatoeba.deu-eng.eng").write_text("".join(f"{target}\n" for _, target in pairs), encoding="utf-8")
    return folder


def _refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("encoded again")


def test_several_models_are_compared_in_one_table(
    encoder_folders: dict[str, Path],
    tatoeba: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    models, output = [str(encoder_folders[name]) for name in ("bert", "xlm-roberta")], tmp_path / "compared.json"
    flags = ["--tasks", f"tatoeba={tatoeba}", "--device", "cpu", "--output", str(output)]
    assert main(["evaluate", *models, *flags]) == 0
    table = capsys.readouterr().out
    assert table.count("Tatoeba") == 1 and "95% interval" in table and "mean of all" in table
    content = json.loads(output.read_text("utf-8"))
    assert [run["settings"]["model"] for run in content["runs"]] == models
    with monkeypatch.context() as patched:  # a second run encodes nothing; a further model alone is measured
        patched.setattr(SentenceEmbedder, "encode_views", _refuse)
        assert main(["evaluate", *models, *flags]) == 0
        assert capsys.readouterr().out == table and json.loads(output.read_text("utf-8")) == content
        assert main(["evaluate", *models[::-1], *flags]) == 0
    assert main(["evaluate", *models, *flags, "--dim", "2"]) == 0  # the reports of other settings stay
    assert len(json.loads(output.read_text("utf-8"))["runs"]) == 4
    figures = [run["groups"]["all"]["mean"] for run in content["runs"]]
    assert content["runs"][1]["differences"]["all"]["mean"][0] == pytest.approx(figures[1] - figures[0], abs=1e-3)


def test_truncated_embeddings_are_evaluated_and_exported(
    encoder_folders: dict[str, Path], tatoeba: Path, tmp_path: Path
):
    encoder = encoder_folders["bert"]

    def runs(model: Path, *flags: str) -> list[dict[str, Any]]:
        file = tmp_path / f"results of {model.name} {flags}.json"
        common = ["--tasks", f"tatoeba={tatoeba}", "--device", "cpu", "--output", str(file)]
        assert main(["evaluate", str(model), *common, *flags]) == 0
        return json.loads(file.read_text("utf-8"))["runs"]

    whole, cut = runs(encoder, "--dim", "32", "2")
    assert [run["settings"]["dim"] for run in (whole, cut)] == [32, 2]
    assert cut["languages"] != whole["languages"]
    assert whole["languages"] == runs(encoder)[0]["languages"]
    assert main(["export", str(encoder), "--output", str(tmp_path / "cut"), "--dim", "2"]) == 0
    assert runs(tmp_path / "cut")[0]["languages"] == cut["languages"]
    assert main(["export", str(encoder), "--output", str(tmp_path / "wide"), "--dim", "33"]) == 2
    assert not (tmp_path / "wide").exists()


def test_a_folder_where_no_export_can_be_written_is_one_sentence(
    encoder_folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    assert main(["export", str(encoder_folders["bert"]), "-o", str(tmp_path / "file" / "export")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith(f"hf-xsent: {tmp_path / 'file'} is a file, not a folder")


def test_mined_pairs_have_the_same_cosine_in_score(encoder_folders: dict[str, Path], tmp_path: Path):
    """As a user does: mine two files, then score the pairs."""
    (tmp_path / "de.txt").write_text(
        "Die Katze trinkt Milch.\nDas Haus ist alt.\nEin Hund rennt.\nIch lese.\nWir essen.\n"
    )
    (tmp_path / "en.txt").write_text("The house is old.\nA dog runs.\nThe cat drinks milk.\nI read.\nWe eat.\n")
    files = [str(tmp_path / name) for name in ("de.txt", "en.txt")]
    model = ["--model", str(encoder_folders["bert"]), "--pooling", "mean"]
    assert main(["mine", *files, *model, "-o", str(tmp_path / "pairs.tsv")]) == 0
    assert main(["score", str(tmp_path / "pairs.tsv"), *model, "-o", str(tmp_path / "scored.tsv")]) == 0
    mined, scored = (
        [line.split("\t") for line in (tmp_path / name).read_text().splitlines()[1:]]
        for name in ("pairs.tsv", "scored.tsv")
    )
    assert len(mined) == len(scored) > 0
    for row, other in zip(mined, scored, strict=True):
        assert float(row[1]) == pytest.approx(float(other[0]), abs=1e-3)
        assert row[-2:] == other[-2:]


@pytest.fixture
def benchmarks(tatoeba: Path, pairs: list[tuple[str, str]]) -> Path:
    """A folder that holds a folder for each task."""
    (tatoeba.parent / "sts17").mkdir()
    for kind, lines in (("input", [f"{a}\t{b}" for a, b in pairs]), ("gs", [str(i % 5) for i in range(len(pairs))])):
        path = tatoeba.parent / "sts17" / f"STS.{kind}.track5.en-en.txt"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tatoeba.parent


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], "tasks is missing: give --tasks"),
        (["--tasks", "sts=x"], "unknown task 'sts'"),
        (["--suite", "{folder}/sts17"], "is not a folder that contains mixed_pool, ntrex"),
        (["--tasks", "sts17={folder}/sts17", "--languages", "en-em"], "has no 'en-em', only"),
        (["--suite", "{folder}", "--languages", "de"], "names no task: write "),
        (["--suite", "{folder}", "--layers", "3-1"], "--layers takes numbers and ranges"),
        (["--suite", "{folder}"], "'none' is not a folder"),
    ],
)
def test_evaluate_refuses_bad_input_before_it_loads_a_model(
    benchmarks: Path, capsys: pytest.CaptureFixture[str], flags: list[str], expected: str
):
    assert main(["evaluate", "none", *(flag.format(folder=benchmarks) for flag in flags)]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert len(error.strip().splitlines()) == 1


def test_evaluate_looks_up_every_model_before_it_loads_any(
    benchmarks: Path,
    encoder_folders: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(SentenceEmbedder, "from_pretrained", _refuse)
    assert main(["evaluate", str(encoder_folders["bert"]), "exportet", "--suite", str(benchmarks)]) == 2
    assert "'exportet' is not a folder" in capsys.readouterr().err


_LEAVING = """
import atexit, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
if sys.argv[1] == "several":
    import torch
    import torch.distributed as dist
else:
    import hf_xsent_cli  # without torch
from hf_xsent.cli import leave

def print_gloo_threads():
    print("gloo:", any("gloo" in name.read_text() for name in Path("/proc/self/task").glob("*/comm")))

atexit.register(print_gloo_threads)
ThreadPoolExecutor().submit(lambda: (time.sleep(0.5), print("upload ended")))
if sys.argv[1] == "several":
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    print_gloo_threads()
    cycle = [model]  # as a trainer is
    cycle.append(cycle)
    del model, cycle
leave(3)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc lists the threads by name")
@pytest.mark.parametrize(("processes", "said"), [("one", ""), ("several", "gloo: True\n")])
def test_one_of_several_processes_ends_the_threads_of_its_group_before_python_ends(processes: str, said: str):
    done = subprocess.run([sys.executable, "-c", _LEAVING, processes], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, said + "upload ended\ngloo: False\n"), done.stderr


@pytest.mark.parametrize("command", ["mine {0} {0} -o out --model m", "align-documents {0} {0} -o out --model m"])
def test_names_that_are_too_long_are_refused_in_one_sentence(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command.format("x" * 300).split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hf-xsent: ") and len(line) < 700


@pytest.mark.parametrize("arguments", [[], ["--version"], ["pretrain", "--help"]])
def test_a_closed_pipe_ends_the_output_without_a_traceback(arguments: list[str]) -> None:
    """As in ``hf-xsent pretrain --help | head``."""
    reader, writer = os.pipe()
    os.close(reader)
    program = ["-c", "import sys; from hf_xsent_cli import program; program(sys.argv[1:])"]
    done = subprocess.run([sys.executable, *program, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
