"""Measure document alignment: quality on gold alignments, and time and memory of the search as documents grow.

  python benchmarks/document_alignment.py quality --data text_berg --models trained=runs/tr as_is=encoder
  python benchmarks/document_alignment.py whole --data de-en.tsv --models trained=runs/tr --sizes 10000
  python benchmarks/document_alignment.py growth --sizes 1000 3000 10000 30000 --dense 1000 3000

Quality: strict and lax precision, recall and F1, counted like vecalign's scorer, with and without skipped sentences;
the weights were fitted on files 001 and 002. Whole: encoding and alignment of the first pairs of a TSV file, where 1 of
10 pairs is joined with the next and 1 of 20 is on one side only. Growth: synthetic embeddings of 384 numbers, 8 of 10
sentences are aligned one to one, the others are joined or skipped; compared with a dense dynamic program in numpy over
all cells, with the same beads. Each run is a separate process. Results are written to --output.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from bead_scores import document_alignment_scores

FITTED_ON = ("001", "002")
WIDTH = 384


def read_alignment(path: Path) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Read one bead per line in vecalign's format, ``[source numbers]:[target numbers]`` from 0."""
    beads = []
    for line in filter(str.strip, path.read_text("utf-8").splitlines()):
        source, target = (tuple(map(int, re.findall(r"\d+", side))) for side in re.findall(r"\[(.*?)\]", line)[:2])
        beads.append((source, target))
    return beads


def quality(options: argparse.Namespace) -> dict[str, Any]:
    """Align all files with each model."""
    from hf_xsent.documents.alignment import align_documents

    folder = Path(options.data)
    names = sorted(path.name for path in (folder / "gold").iterdir())
    gold = {name: read_alignment(folder / "gold" / name) for name in names}
    results: dict[str, Any] = {}
    for named_model in options.models:
        label, _, path = named_model.partition("=")
        model = opened(path, options)
        found = {}
        for name in names:
            texts = [(folder / code / name).read_text("utf-8").removesuffix("\n") for code in options.languages]
            sides = [[line.strip() for line in text.split("\n")] for text in texts]
            found[name] = [(spans.source, spans.target) for spans in align_documents(*sides, model)]
        groups = {
            "fitted on": [n for n in names if n in FITTED_ON],
            "others": [n for n in names if n not in FITTED_ON],
            "all": names,
        }
        for group, some in groups.items():
            paired = {name: [bead for bead in found[name] if all(bead)] for name in some}
            for kind, beads in (("with skips", found), ("pairs only", paired)):
                scores = document_alignment_scores([beads[name] for name in some], [gold[name] for name in some])
                figures = {key: round(value, 2) for key, value in asdict(scores).items()}
                results.setdefault(label, {}).setdefault(group, {})[kind] = figures
                print(label, group, kind, figures, flush=True)
    return results


def opened(path: str, options: argparse.Namespace) -> Any:
    """Open a model in --dtype."""
    import torch

    from hf_xsent.documents.alignment import MAX_LENGTH
    from hf_xsent.models.encoder import Encoder

    model = Encoder(path, pooling=options.pooling, least_max_length=MAX_LENGTH)
    model.model.to(getattr(torch, options.dtype))
    return model


def whole(options: argparse.Namespace) -> dict[str, Any]:
    """Encode and align two documents of real sentences; measure CPU seconds of both."""
    from hf_xsent.data.readers.formats import read_pairs
    from hf_xsent.data.readers.sources import BitextSource
    from hf_xsent.documents.alignment import align_documents

    random = np.random.default_rng(0)
    results: dict[str, Any] = {}
    for size in options.sizes:
        sides: tuple[list[str], list[str]] = ([], [])
        gold, joined = set(), 0
        for pair in read_pairs(BitextSource(options.languages[0], options.data, options.languages[1])):
            kind = random.choice(5, p=[0.85, 0.05, 0.05, 0.025, 0.025])
            if kind > 2 and not joined:  # on one side only
                sides[kind - 3].append(pair[kind - 3])
            else:
                for side, text in enumerate(pair):
                    if joined == side + 1:
                        sides[side][-1] += f" {text}"
                    else:
                        sides[side].append(text)
                gold.add((len(sides[0]) - 1, len(sides[1]) - 1))
                joined = 0 if joined else int(kind)
            if len(sides[0]) >= size and not joined:
                break
        for named_model in options.models:
            label, _, path = named_model.partition("=")
            model = Timed(opened(path, options))
            cpu = time.process_time()
            found = align_documents(*sides, model)
            cpu = time.process_time() - cpu
            linked = {(i, j) for spans in found for i in spans.source for j in spans.target}
            right = len(gold & linked)
            figures = {
                "sentences": [len(side) for side in sides],
                "encoded_texts": model.texts,
                "encoding_cpu_seconds": round(model.seconds, 1),
                "search_cpu_seconds": round(cpu - model.seconds, 1),
                "links_found": round(100 * right / len(gold), 2),
            }
            results.setdefault(label, {})[str(size)] = figures
            print(label, figures, flush=True)
    return results


class Timed:
    """A model that counts the texts it encodes and their CPU seconds."""

    def __init__(self, model: Any) -> None:
        self.model, self.texts, self.seconds = model, 0, 0.0

    def encode(self, sentences: Any) -> Any:
        """Encode."""
        started = time.process_time()
        vectors = self.model.encode(sentences)
        self.texts, self.seconds = self.texts + len(sentences), self.seconds + time.process_time() - started
        return vectors


def synthetic(count: int) -> tuple[Any, Any, set[Any]]:
    """Generate two documents of about ``count`` sentences, and their beads."""
    from hf_xsent.documents.spans import EncodedDocument

    random = np.random.default_rng(0)
    topic = 0.8 * random.standard_normal(WIDTH)
    sides: tuple[list[Any], list[Any]] = ([], [])
    gold = set()
    while len(sides[0]) < count:
        sizes = ((1, 1), (1, 2), (2, 1), (1, 0), (0, 1))[random.choice(5, p=[0.8, 0.07, 0.07, 0.03, 0.03])]
        meanings, lengths = random.standard_normal((max(sizes), WIDTH)), random.integers(20, 200, max(sizes))
        bead = []
        for side, size in zip(sides, sizes, strict=True):
            parts = [slice(None)] if size == 1 else [slice(place, place + 1) for place in range(size)]
            bead.append(tuple(range(len(side), len(side) + size)))
            for part in parts[:size]:
                meaning = np.average(meanings[part], axis=0, weights=lengths[part])
                vector = topic + meaning + 0.5 * random.standard_normal(WIDTH)
                side.append((vector.astype(np.float32), lengths[part].sum()))
        gold.add(tuple(bead))
    built = [
        EncodedDocument(
            np.array([v for v, _ in side]), np.array([n for _, n in side], np.float32), np.zeros(len(side), np.int64)
        )
        for side in sides
    ]
    return built[0], built[1], gold


def one_run(kind: str, count: int) -> dict[str, Any]:
    """Search once; measure seconds, memory added to the peak, and strict precision and recall."""
    import resource

    from hf_xsent.documents import search as searching
    from hf_xsent.documents.anchors import find_anchors
    from hf_xsent.documents.beads import Weights

    source, target, gold = synthetic(count)
    if kind == "dense":
        everything = np.zeros(len(source) + 1, np.int64), np.full(len(source) + 1, len(target))
        searching.band = lambda *_: everything
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, cpu = time.perf_counter(), time.process_time()
    beads = searching.search(source, target, find_anchors(source, target), Weights())
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    right = len({(tuple(one), tuple(other)) for one, other in beads} & gold)
    return {
        "sentences": [len(source), len(target)],
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "mib_added": round(memory),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "strict_precision": round(100 * right / len(beads), 2),
        "strict_recall": round(100 * right / len(gold), 2),
    }


def growth(options: argparse.Namespace) -> dict[str, Any]:
    """Run each size in a separate process."""
    results: dict[str, Any] = {}
    for kind, sizes in (("hf-xsent", options.sizes), ("dense", options.dense)):
        for size in sizes:
            command = [sys.executable, __file__, "run", kind, str(size)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results.setdefault(kind, {})[str(size)] = json.loads(done.stdout)
            print(kind, size, done.stdout.strip(), flush=True)
    return results


def main() -> None:
    """Measure, print and store the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("quality", "whole", "growth", "run"))
    parser.add_argument("run", nargs="*")
    parser.add_argument("--data")
    parser.add_argument("--languages", nargs=2, default=("de", "fr"))
    parser.add_argument("--models", nargs="+", default=[])
    parser.add_argument("--pooling", default="mean")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 3000, 10_000, 30_000])
    parser.add_argument("--dense", type=int, nargs="*", default=[1000, 3000])
    parser.add_argument("--output", default="benchmarks/results/document_alignment.json")
    options = parser.parse_args()
    if options.what == "run":
        print(json.dumps(one_run(options.run[0], int(options.run[1]))))
        return
    path = Path(options.output)
    results = json.loads(path.read_text()) if path.is_file() else {}
    results[options.what] = {"quality": quality, "whole": whole, "growth": growth}[options.what](options)
    path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
