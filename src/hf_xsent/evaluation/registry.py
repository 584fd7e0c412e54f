"""Look up evaluation tasks by name, and load their records."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from hf_xsent.data.benchmarks.collection import store_collection
from hf_xsent.data.languages import language_of_tag
from hf_xsent.data.readers.in_memory import is_empty, is_in_memory, refuse_empty, settings_as_files
from hf_xsent.data.readers.sources import IN_MEMORY, cache_folder
from hf_xsent.errors import RecipeError, did_you_mean, shortened
from hf_xsent.evaluation.answer_retrieval import AnswerRetrievalTask
from hf_xsent.evaluation.language_probe import LanguageProbeTask
from hf_xsent.evaluation.mining_f1 import BuccTask
from hf_xsent.evaluation.mixed_pool import MixedPoolTask
from hf_xsent.evaluation.pairs import PairsTask
from hf_xsent.evaluation.retention import RetentionTask
from hf_xsent.evaluation.retrieval import RetrievalTask
from hf_xsent.evaluation.settings import TaskSettings
from hf_xsent.evaluation.similarity import Sts17Task, Sts22Task
from hf_xsent.evaluation.task import EvaluationTask
from hf_xsent.evaluation.translation_retrieval import TatoebaTask
from hf_xsent.evaluation.word_alignment import WordAlignmentTask
from hf_xsent.evaluation.xsim import XsimTask
from hf_xsent.files import digest, is_hub_id
from hf_xsent.settings.convert import convert
from hf_xsent.settings.read import check_known, read_settings

TASKS: dict[str, type[EvaluationTask]] = {
    task.name: task
    for task in (
        MixedPoolTask,
        LanguageProbeTask,
        XsimTask,
        AnswerRetrievalTask,
        RetrievalTask,
        TatoebaTask,
        BuccTask,
        Sts17Task,
        Sts22Task,
        RetentionTask,
        PairsTask,
        WordAlignmentTask,
    )
}


def load_task(name: str, options: Mapping[str, Any], cache_dir: str | PathLike[str] | None = None) -> EvaluationTask:
    """Load a task by its options: ``data``, ``languages`` and those of its ``load``."""
    if name == PairsTask.name and isinstance(options, Mapping):
        options = settings_as_files(options, {"data": "test"}, cache_dir)
    elif name == RetrievalTask.name and isinstance(options, Mapping) and isinstance(options.get("data"), Mapping):
        options = {**options, "data": [str(store_collection(options["data"], cache_folder(cache_dir)))]}
    given = {key: value for key, value in vars(check_options(name, options)).items() if value is not None}
    kind, data = TASKS[name], given.pop("data")
    if len(data) > 1 and kind is not PairsTask:
        raise RecipeError(f"tasks.{name}.data takes one folder or Hub id, not {', '.join(data)}")
    if "cache_dir" in inspect.signature(kind.load).parameters:
        given["cache_dir"] = cache_dir
    task = kind.load(data if kind is PairsTask else data[0], **given)
    return replace(task, data=_data_name(task, data))


def _data_name(task: EvaluationTask, sources: Sequence[str]) -> str:
    """Return the Hub's id of data from there, or equal to it (known_data.json), else the names of files and folders."""
    places = [source.partition("=")[2] or source for source in sources]
    known = json.loads((files("hf_xsent.evaluation") / "known_data.json").read_text(encoding="utf-8")).get(task.name)
    if known is not None and not is_hub_id(places[0], owner=True):
        hashes = {digest(line + "\n" for line in task.texts(test_set))[:8] for test_set in task.sets}
        if hashes <= {*known["sets"].values()}:
            return str(known["name"])
    places = [place for place in places if Path(place).parent.name != IN_MEMORY]
    return ", ".join(map(_place_name, places))


def _place_name(place: str) -> str:
    """Return a Hub id, or the names of files without their folders, of two files or of a prefix of two."""
    if is_hub_id(place, owner=True) and not any(Path(place).parent.glob(f"{Path(place).name}.*")):
        return place
    return ",".join(Path(part).name for part in place.split(","))


def check_options(name: str, options: Any) -> TaskSettings:
    """Check the name of a task, and the names and types of its options."""
    if name not in TASKS:
        of_folder = [task for task, kind in TASKS.items() if name in kind.folders]
        hint = f"; the data {name} is for {' or '.join(of_folder)}" if of_folder else did_you_mean(name, TASKS)
        if name in ("corpus", "queries", "qrels"):
            hint = "; give a collection as {'retrieval': collection}"
        raise RecipeError(f"unknown task {name!r}: tasks are {', '.join(TASKS)}{hint}")
    if not isinstance(options, Mapping):
        raise RecipeError(f"tasks.{name} takes options such as {{data: FOLDER}}, not {shortened(options)}")
    known = ["data", *inspect.signature(TASKS[name].load).parameters]
    try:
        check_known(options, [key for key in known if key not in ("source", "cache_dir")], "")
        settings = read_settings(TaskSettings, options)
    except RecipeError as error:
        raise RecipeError(f"tasks.{name}: {error}") from error
    if not settings.data:
        raise RecipeError(f"tasks.{name}.data is missing: add its files, or give --tasks.{name}.data")
    return settings


def task_options(name: str, source: Any) -> dict[str, Any]:
    """Return the options of a task, for which its data alone may stand: a folder, pairs, or a collection.

    An empty list or mapping is no data.
    """
    is_data = not isinstance(source, Mapping) or is_in_memory(source)
    if not is_data and name in (PairsTask.name, RetrievalTask.name):
        known = {"data", *inspect.signature(TASKS[name].load).parameters}
        is_data = not known & {*source} and (
            name == RetrievalTask.name or all(language_of_tag(str(key)) for key in source)
        )
    options = {"data": source} if is_data else {**source}
    return {key: value for key, value in options.items() if key != "data" or not is_empty(value)}


def load_tasks(tasks: Any, languages: Any = None, pairs: Any = None, columns: Any = None) -> list[EvaluationTask]:
    """Load a mapping from tasks to folders, Hub ids or options, words such as ``tatoeba=FOLDER``, or loaded tasks.

    A word without a name is a folder with a folder per task. ``pairs`` are the data of the task of this name, in files
    or in memory, and ``columns`` the two that have their sentences; ``tasks`` may be pairs in memory, too.
    ``languages`` are a mapping from tasks to codes, or words such as ``tatoeba=de,fr`` or, for a single task, ``de``.
    """
    tasks = [tasks] if isinstance(tasks, EvaluationTask | str | os.PathLike) else tasks
    are_loaded = {isinstance(task, EvaluationTask) for task in tasks} if isinstance(tasks, Sequence) else set()
    if True in are_loaded:
        if False in are_loaded:
            raise RecipeError("tasks are names with their data, or loaded tasks: load all of them by load_tasks")
        if languages or columns:
            raise RecipeError("languages and columns are for tasks by name: give them to load_tasks instead")
        return _distinct([*tasks, *([] if pairs is None else load_tasks(None, pairs=pairs))])
    if tasks is not None and not isinstance(tasks, Iterable):
        raise RecipeError(f"tasks are names with their data, or loaded tasks, not {shortened(tasks)}")
    if is_in_memory(tasks):
        tasks = {PairsTask.name: {"data": tasks}}
    sources: dict[str, Any] = {**tasks} if isinstance(tasks, Mapping) else {**_sources(tasks or ())}
    if pairs is not None:
        refuse_empty({"pairs": pairs})
        options = task_options(PairsTask.name, sources[PairsTask.name]) if PairsTask.name in sources else {}
        if "data" in options:
            raise RecipeError(f"the task {PairsTask.name} is given twice: evaluate its sets in separate calls")
        sources[PairsTask.name] = {**options, "data": pairs}
    if columns is not None and PairsTask.name not in sources:
        raise RecipeError("columns are those of pairs, but there are no pairs: give --pairs, or drop columns")
    if not (names := [*sources]):
        raise RecipeError("tasks is missing: give --tasks or --pairs")
    selected = _languages(languages, names)
    if unknown := [name for name in selected if name not in names]:
        known = f"{', '.join(names)}{did_you_mean(unknown[0], names)}"
        raise RecipeError(f"languages are given for {unknown[0]!r}, which is not among the tasks {known}")
    loaded = []
    for name, source in sources.items():
        options = task_options(name, source) | ({"languages": selected[name]} if name in selected else {})
        of_pairs = {"columns": columns} if columns is not None and name == PairsTask.name else {}
        loaded.append(load_task(name, options | of_pairs))
    return loaded


def _distinct(tasks: list[EvaluationTask]) -> list[EvaluationTask]:
    """Return tasks of different names; raise an error if one is given twice."""
    names = [task.name for task in tasks]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise RecipeError(f"the task {repeated[0]} is given twice: evaluate its sets in separate calls")
    return tasks


def _sources(words: Iterable[str | PathLike[str]]) -> dict[str, str]:
    """Return the folder or Hub id of each task."""
    sources: dict[str, str] = {}
    for word in (os.fspath(word) for word in words):
        name, equals, source = word.partition("=")
        added = {name: source} if equals else find_tasks(word)
        if repeated := [name for name in added if name in sources]:
            both = f"{sources[repeated[0]]} and {added[repeated[0]]}"
            raise RecipeError(f"the task {repeated[0]} is given twice, {both}: evaluate them in separate calls")
        sources |= added
    return sources


def find_tasks(folder: str | PathLike[str]) -> dict[str, str]:
    """Return the place of each task whose records are in this folder."""
    folder = os.path.expanduser(folder)
    places = {name: task.find(folder) for name, task in TASKS.items()}
    found = {name: place for name, place in places.items() if place is not None}
    if not found:
        folders = ", ".join(dict.fromkeys(place for task in TASKS.values() for place in task.folders))
        raise RecipeError(
            f"{folder} is not a folder that contains {folders}: write TASK=FOLDER, or give pairs as --pairs"
        )
    return found


def _languages(wanted: Any, tasks: Sequence[str]) -> dict[str, list[str]]:
    """Return the languages of each task."""
    languages: dict[str, list[str]] = {}
    if isinstance(wanted, Mapping):
        wanted = {task: codes for task, codes in wanted.items() if codes is not None}
    elif isinstance(wanted, Iterable) and not isinstance(wanted, str):
        wanted = [*wanted]
    wanted = convert("languages", wanted, list[str] | dict[str, list[str]] | None) or ()
    words = [f"{task}={','.join(codes)}" for task, codes in wanted.items()] if isinstance(wanted, dict) else wanted
    for word in words:
        task, equals, codes = word.rpartition("=")
        if not equals and len(tasks) > 1:
            raise RecipeError(f"--languages {word} names no task: write {tasks[0]}={word}")
        languages.setdefault(task or tasks[0], []).extend(code for code in codes.split(",") if code)
    return {task: list(dict.fromkeys(codes)) for task, codes in languages.items()}
