"""Measure a checkpoint, an exported folder or any supported encoder on Tatoeba, BUCC and STS.

hf-xsent evaluate runs/mine --tatoeba data/tatoeba --group 36 --output results.json
hf-xsent evaluate runs/mine --tasks tatoeba,bucc,sts17,sts22 --data benchmarks   # folders benchmarks/tatoeba and so on
hf-xsent evaluate xlm-roberta-base --tasks tatoeba,sts17 --data tatoeba=mteb/tatoeba-bitext-mining sts17=data/sts17
hf-xsent evaluate xlm-roberta-base --tatoeba data/tatoeba --layers 0-12 --pooling mean,cls   # encodes once
hf-xsent evaluate runs/mine --tatoeba data/tatoeba --dim 384 128 64
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hf_xsent.evaluation.report import Report
    from hf_xsent.evaluation.task import EvaluationTask


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("model", help="Open this model: a folder or a Hub id.")
    parser.add_argument(
        "--tasks",
        nargs="+",
        metavar="TASK",
        help="Measure these: tatoeba, bucc, sts17, sts22; default: those of --data.",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        default=[],
        metavar="[TASK=]SOURCE",
        help="Read a task here, a folder or a Hub id; or one folder that holds a folder for each task.",
    )
    parser.add_argument(
        "--tatoeba", metavar="FOLDER", help="The same as --data tatoeba=FOLDER: tatoeba.xxx-eng.* files, or a Hub id."
    )
    parser.add_argument(
        "--languages",
        nargs="+",
        metavar="[TASK=]CODE",
        help="Measure these only: de fr of one task; of several, tatoeba=de,fr bucc=zh-en sts17=ar-ar,ar-en.",
    )
    parser.add_argument(
        "--group", metavar="NAME", help="Measure a group of Tatoeba: 4, 5, 8, 14, 28, 36 or 112 languages."
    )
    parser.add_argument(
        "--pooling",
        nargs="+",
        metavar="POOLING",
        help="Pool by cls, mean or max; default: as the model states, a plain encoder by mean.",
    )
    parser.add_argument(
        "--layers",
        "--layer",
        nargs="+",
        metavar="LAYER",
        help="Take the states after these layers: 8, or 0-12, or 0,6,12; 0 are the embeddings; default: the last.",
    )
    parser.add_argument("--dim", type=int, nargs="+", help="Keep so many numbers of each vector, one table each.")
    parser.add_argument("--max_length", type=int, help="Cut sentences after this many tokens.")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="Compute in this precision."
    )
    parser.add_argument("--device", help="Compute on this device; default: the GPU if there is one.")
    parser.add_argument(
        "--output", metavar="FILE", help="Write the results to this JSON file; tasks that it holds already are kept."
    )


def run(arguments: argparse.Namespace) -> None:
    """Read all test sets, encode each distinct sentence once, print the tables of each task as it is done."""
    tasks = _tasks(arguments)
    layers = None if arguments.layers is None else _layers(_names(arguments.layers))

    import torch

    from hf_xsent.evaluation.runner import describe, evaluate_tasks
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.models.sentence_encoder import View

    embedder = SentenceEmbedder.from_pretrained(
        arguments.model,
        max_length=arguments.max_length,
        dtype=getattr(torch, arguments.dtype),
        device=arguments.device,
    )
    views = [
        View(layer, pooling)
        for pooling in _names(arguments.pooling or [embedder.pooling])
        for layer in ([embedder.view.layer] if layers is None else layers)
    ]
    done = evaluate_tasks(embedder, tasks, describe(embedder, arguments.model), views, arguments.dim, arguments.output)
    for task, reports in done:
        print(_text(task, reports, sweep=layers is not None and len(layers) > 1), end="\n\n", flush=True)


def _text(task: EvaluationTask, reports: list[Report], sweep: bool) -> str:
    from hf_xsent.evaluation.report import published_lines, sweep_table

    tables = [sweep_table(task, reports)] if sweep else [report.table(task) for report in reports]
    return "\n\n".join("\n".join([table, *published_lines(task, reports[0].groups)]) for table in tables)


def _tasks(arguments: argparse.Namespace) -> list[EvaluationTask]:
    """All records, read and checked before any model is opened."""
    from hf_xsent.errors import RecipeError
    from hf_xsent.evaluation.registry import check_task, load_tasks, tatoeba_group

    names = _names(arguments.tasks or [])
    sources = _sources(arguments)
    for name in (*names, *(name for name in sources if name)):
        check_task(name)
    names = names or [name for name in sources if name]
    if not names:
        raise RecipeError("nothing to measure: name --tasks and --data, or --tatoeba FOLDER")
    for name in names:
        if name not in sources and "" not in sources:
            raise RecipeError(f"where is {name}? Give --data {name}=FOLDER, or one folder that holds a folder {name}")
    chosen = _languages(arguments.languages or [], names)
    if arguments.group is not None:
        chosen["tatoeba"] = tatoeba_group(arguments.group)
    return load_tasks({name: sources.get(name) or str(Path(sources[""], name)) for name in names}, chosen)


def _languages(values: Iterable[str], tasks: list[str]) -> dict[str, list[str]]:
    from hf_xsent.errors import RecipeError, nearest

    chosen: dict[str, list[str]] = {}
    for value in values:
        task, equals, codes = value.rpartition("=")
        if not equals and len(tasks) > 1:
            raise RecipeError(f"--languages {value}: of which task? Write {tasks[0]}={value}")
        if equals and task not in tasks:
            hint = nearest(task, tasks)
            raise RecipeError(f"--languages {value}: {task!r} is none of the tasks {', '.join(tasks)}{hint}")
        names = _names([codes])
        if not names:
            raise RecipeError(f"--languages {value!r} names none: write their codes, or leave it out for all")
        chosen.setdefault(task or tasks[0], []).extend(names)
    return chosen


def _sources(arguments: argparse.Namespace) -> dict[str, str]:
    """Where each task is read; the empty name is for the folder that holds all others."""
    from hf_xsent.errors import RecipeError
    from hf_xsent.files import is_local

    sources: dict[str, str] = {"tatoeba": arguments.tatoeba} if arguments.tatoeba else {}
    for one in arguments.data:
        name, equals, source = one.partition("=")
        if not equals or is_local(one):
            name, source = "", one
        if name in sources:
            raise RecipeError(f"--data names two sources for {name or 'all tasks'}: {sources[name]} and {source}")
        sources[name] = source
    return sources


def _names(values: Iterable[str]) -> list[str]:
    """From ``a b`` and ``a,b`` alike, each once."""
    return list(dict.fromkeys(name for value in values for name in value.split(",") if name))


def _layers(values: list[str]) -> list[int]:
    from hf_xsent.errors import RecipeError

    layers: list[int] = []
    for value in values:
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
        if found is None or (found[2] and int(found[2]) < int(found[1])):
            raise RecipeError(f"--layers takes numbers and ranges such as 8 or 0-12, not {value!r}")
        layers += range(int(found[1]), int(found[2] or found[1]) + 1)
    return list(dict.fromkeys(layers))
