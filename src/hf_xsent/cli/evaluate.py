"""Evaluate a checkpoint, an exported folder or any supported encoder on Tatoeba, BUCC and STS.

hf-xsent evaluate runs/mine --tatoeba data/tatoeba --group 36 --output results.json
hf-xsent evaluate runs/mine --tasks tatoeba,bucc,sts17,sts22 --data benchmarks   # folders benchmarks/tatoeba and so on
hf-xsent evaluate xlm-roberta-base --tasks tatoeba,sts17 --data tatoeba=mteb/tatoeba-bitext-mining sts17=data/sts17
hf-xsent evaluate xlm-roberta-base --tatoeba data/tatoeba --layers 0-12 --pooling mean,cls   # encodes once
hf-xsent evaluate runs/mine --tatoeba data/tatoeba --dim 384 128 64
hf-xsent evaluate runs/a runs/b --tatoeba data/tatoeba   # one table with differences and 95% confidence intervals
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_xsent.cli.flags import add_output, add_shared
from hf_xsent.errors import RecipeError, did_you_mean

if TYPE_CHECKING:
    from hf_xsent.evaluation.report import Report
    from hf_xsent.evaluation.task import EvaluationTask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    models = "Models to evaluate: folders or Hub ids. With several, compare each with the first."
    add("model", nargs="+", help=models)
    add("--tasks", nargs="+", metavar="TASK", help="Tasks: tatoeba, bucc, sts17, sts22. (default: those of --data)")
    data = "TASK=FOLDER or TASK=HUB_ID, or one folder with a folder per task."
    add("--data", nargs="+", default=[], metavar="[TASK=]SOURCE", help=data)
    add_shared(parser, "--tatoeba")
    languages = "Evaluate only these languages: de fr; by task: tatoeba=de,fr bucc=zh-en sts17=ar-ar. (default: all)"
    add("--languages", nargs="+", metavar="[TASK=]CODE", help=languages)
    add(
        "--group",
        metavar="NAME",
        help="Group of Tatoeba languages, instead of --languages: 4, 5, 8, 14, 28, 36 or 112.",
    )
    pooling = "Pool by cls, mean or max, one table each. (default: the model's; mean for a plain encoder)"
    add("--pooling", nargs="+", metavar="POOLING", help=pooling)
    layers = "Use the hidden states of these layers: 8, 0-12 or 0,6,12; 0 is the embeddings. (default: the last)"
    add("--layers", "--layer", nargs="+", metavar="LAYER", help=layers)
    add("--dim", type=int, nargs="+", help="Truncate embeddings to N dimensions, one table each. (default: all)")
    stored = "Write the results to this JSON file; skip tasks whose results it holds already."
    add_output(parser, "FILE", stored, required=False)
    add_shared(parser, "--max_length", "--precision", "--device")


def run(arguments: argparse.Namespace) -> None:
    """Read all test sets, encode each distinct sentence once, print each task's tables when it is done."""
    tasks = _tasks(arguments)
    layers = None if arguments.layers is None else _layers(_names(arguments.layers))

    def show(task: EvaluationTask, reports: list[Report]) -> None:
        print(_text(task, reports, sweep=layers is not None and len(layers) > 1), end="\n\n", flush=True)

    if len(arguments.model) > 1:
        return _compare(arguments, tasks, layers)

    from hf_xsent.api.evaluating import evaluate

    (model,) = arguments.model
    options = _options(arguments, layers)
    evaluate(model, tasks, **options, dims=arguments.dim, output=arguments.output, on_result=show)


def _compare(arguments: argparse.Namespace, tasks: list[EvaluationTask], layers: list[int] | None) -> None:
    """Measure each model with one layer and pooling, then print the table of each task."""
    for flag, values in (("pooling", arguments.pooling), ("layers", layers), ("dim", arguments.dim)):
        if len(values or []) > 1:
            raise RecipeError(f"--{flag} takes one value if several models are compared, not {len(values or [])}")

    from hf_xsent.api.evaluating import open_in_views
    from hf_xsent.evaluation.comparing import compare_models

    measured = partial(open_in_views, **_options(arguments, layers))
    for one in compare_models(arguments.model, measured, tasks, arguments.dim, arguments.output):
        print(one.table(), end="\n\n", flush=True)


def _options(arguments: argparse.Namespace, layers: list[int] | None) -> dict[str, Any]:
    """Return the options for opening models, with their layers and poolings."""
    return {
        "pooling": _names(arguments.pooling) if arguments.pooling else None,
        "layers": layers,
        "max_length": arguments.max_length,
        "precision": arguments.precision,
        "device": arguments.device,
    }


def _text(task: EvaluationTask, reports: list[Report], sweep: bool) -> str:
    from hf_xsent.evaluation.report import published_lines, sweep_table

    tables = [sweep_table(task, reports)] if sweep else [report.table(task) for report in reports]
    return "\n\n".join("\n".join([table, *published_lines(task, reports[0].groups)]) for table in tables)


def _tasks(arguments: argparse.Namespace) -> list[EvaluationTask]:
    """Read and check all test sets, before any model is loaded."""
    from hf_xsent.evaluation.registry import check_task, load_tasks, tatoeba_group

    names = _names(arguments.tasks or [])
    sources = _sources(arguments)
    for name in (*names, *(name for name in sources if name)):
        check_task(name)
    names = names or [name for name in sources if name]
    if not names:
        raise RecipeError("nothing to evaluate: give --tasks and --data, or --tatoeba FOLDER")
    for name in names:
        if name not in sources and "" not in sources:
            raise RecipeError(f"no data for {name}: give --data {name}=FOLDER, or one folder that contains {name}/")
        if name not in sources and not Path(sources[""], name).is_dir():
            raise RecipeError(f"{sources['']} is not a folder that contains {name}/: give --data {name}=FOLDER")
    chosen = _languages(arguments.languages or [], names)
    if arguments.group is not None:
        chosen["tatoeba"] = tatoeba_group(arguments.group)
    return load_tasks({name: sources.get(name) or str(Path(sources[""], name)) for name in names}, chosen)


def _languages(values: Iterable[str], tasks: list[str]) -> dict[str, list[str]]:
    chosen: dict[str, list[str]] = {}
    for value in values:
        task, equals, codes = value.rpartition("=")
        if not equals and len(tasks) > 1:
            raise RecipeError(f"--languages {value} names no task: write {tasks[0]}={value}")
        if equals and task not in tasks:
            known = f"{', '.join(tasks)}{did_you_mean(task, tasks)}"
            raise RecipeError(f"--languages {value}: {task!r} is not among the tasks {known}")
        names = _names([codes])
        if not names:
            raise RecipeError(
                f"--languages {value!r} has no language codes: give some, or omit the flag for all languages"
            )
        chosen.setdefault(task or tasks[0], []).extend(names)
    return chosen


def _sources(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the folder or Hub id of each task; the empty name stands for a folder with one folder per task."""
    from hf_xsent.files import is_local

    sources: dict[str, str] = {"tatoeba": arguments.tatoeba} if arguments.tatoeba else {}
    for one in arguments.data:
        name, equals, source = one.partition("=")
        if not equals or is_local(one):
            name, source = "", one
        if name in sources:
            raise RecipeError(f"--data gives two sources for {name or 'all tasks'}: {sources[name]} and {source}")
        sources[name] = source
    return sources


def _names(values: Iterable[str]) -> list[str]:
    """Split ``a,b`` like ``a b``; return each name once."""
    return list(dict.fromkeys(name for value in values for name in value.split(",") if name))


def _layers(values: list[str]) -> list[int]:
    layers: list[int] = []
    for value in values:
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
        if found is None or (found[2] and int(found[2]) < int(found[1])):
            raise RecipeError(f"--layers takes numbers and ranges such as 8 or 0-12, not {value!r}")
        layers += range(int(found[1]), int(found[2] or found[1]) + 1)
    return list(dict.fromkeys(layers))
