"""Dual pivot over a frozen encoder: with pairs and without, beside the layers as they are and the published figures.

  OMP_WAIT_POLICY=PASSIVE python benchmarks/dual_pivot_study.py --model ENCODER --train train --dev dev \
    --tatoeba tatoeba --bucc bucc --work runs/dual_pivot

Pivots are de-en, ar-en and ar-de, whose pairs share an English sentence. Steps, learning rate and λ are
chosen by accuracy on dev pairs, never on the test sets. Every sentence is encoded once; what is done is kept in --work,
so that the same line goes on after a stop. Another measure, STS for instance, is a function from an encoder to named
figures that joins ``measures`` below.
"""

from __future__ import annotations

import argparse
import logging
import lzma
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

PUBLISHED = {  # tables 2 and 3: Tatoeba 36, 112 and BUCC zh-en
    "best layer": (54.3, 39.6, 59.0),
    "unsupervised de-en": (74.2, 56.0, 76.5),
    "unsupervised ar-en": (73.4, 55.3, 77.1),
    "unsupervised ar-de": (71.5, 53.3, None),
    "supervised de-en": (80.4, 62.4, 85.8),
    "supervised ar-en": (79.6, 61.1, 85.6),
    "supervised ar-de": (74.1, 56.0, None),
}
STEPS, RATES, LAMBDAS = (200, 1000), (1e-3, 1e-4), (1.0, 10.0)


def write_bitext(folder: Path, train: Path, limit: int) -> dict[str, Path]:
    """de-en and ar-en, cut to ``limit`` random pairs, and ar-de through the English they share."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {pivot: folder / f"{pivot}.tsv" for pivot in ("de-en", "ar-en", "ar-de")}
    if not files["ar-de"].is_file():
        by_english: list[dict[str, str]] = []
        for language in ("de", "ar"):
            with lzma.open(train / f"{language}-en.tsv.xz", "rt", encoding="utf-8") as file:
                pairs = [line.rstrip("\n").split("\t")[:2] for line in file]
            random.Random(0).shuffle(pairs)
            by_english.append({english.casefold().strip(): foreign for foreign, english in pairs})
            text = "".join(f"{foreign}\t{english}\n" for foreign, english in pairs[:limit])
            files[f"{language}-en"].write_text(text, encoding="utf-8")
        german, arabic = by_english
        shared = [(arabic[english], german[english]) for english in german if english in arabic]
        files["ar-de"].write_text("".join(f"{one}\t{other}\n" for one, other in shared), encoding="utf-8")
    return files


def main() -> None:
    """Choose on dev, measure on the test sets, print and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "train", "dev", "tatoeba", "work"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--bucc")
    parser.add_argument("--sts17")
    parser.add_argument("--pairs", type=int, default=20_000, help="Train on so many pairs of de-en and of ar-en.")
    parser.add_argument("--dev_pairs", type=int, default=100, help="Choose by so many dev pairs a language.")
    parser.add_argument("--tatoeba_pairs", type=int, help="Measure so many pairs a language; default: all.")
    parser.add_argument("--group", default="112", help="Measure this group of Tatoeba.")
    parser.add_argument("--output", default="benchmarks/results/dual_pivot_study.json")
    options = parser.parse_args()

    from hf_xsent.data.benchmarks import load_tatoeba, tatoeba_groups
    from hf_xsent.data.bitext import load_bitext
    from hf_xsent.data.bucc import load_bucc
    from hf_xsent.data.sides import Sides
    from hf_xsent.evaluation.report import render_table, write_json
    from hf_xsent.evaluation.retrieval import retrieval_by_language
    from hf_xsent.evaluation.similarity import Sts17Task
    from hf_xsent.logs import quiet_logs
    from hf_xsent.models.encodes import SupportsEncode
    from hf_xsent.models.loading import load_tokenizer
    from hf_xsent.training.pivot_study import (
        SUPERVISED,
        UNSUPERVISED,
        PivotStudy,
        Variant,
        bucc_measure,
        layer_baselines,
        sts_measure,
        tatoeba_measure,
    )

    torch.set_num_threads(1)
    quiet_logs()
    logging.getLogger("hf_xsent.training.pivot_study").setLevel(logging.INFO)
    work = Path(options.work)
    bitexts = write_bitext(work / "bitext", Path(options.train), options.pairs)
    texts = {
        name: Sides.of_bitext(load_bitext([str(path)], cleaning=None, cache_dir=work / "cache")).texts.popitem()[1]
        for name, path in bitexts.items()
    }
    dev = load_bitext(
        f"{options.dev}/{{language}}-en.tsv", cleaning=None, cache_dir=work / "cache", max_pairs=options.dev_pairs
    )
    sets = [
        replace(one, sources=one.sources[: options.tatoeba_pairs], targets=one.targets[: options.tatoeba_pairs])
        for one in load_tatoeba(options.tatoeba, tatoeba_groups()[options.group])
    ]

    def of_dev(model: SupportsEncode) -> dict[str, float]:
        found = retrieval_by_language(model, {language: dev.pairs(language) for language in dev.languages}, False)
        return {"dev": statistics.mean(one.mean for one in found.values())}

    def study(**measures: Any) -> PivotStudy:
        return PivotStudy(options.model, load_tokenizer(options.model), work, Sides(texts), measures, work / "features")

    by_dev = study(dev=of_dev)
    chosen = {}
    for way, settings in (("supervised", SUPERVISED), ("unsupervised", UNSUPERVISED)):
        variants = [
            Variant(
                f"{way}{f', λ {weight:g}' if way == 'unsupervised' else ''}, {steps} steps, learning rate {rate:g}",
                {**settings, "objectives": {**settings["objectives"], **({"cycle": weight} if weight else {})}},
                ["de-en"],
                arguments={"max_steps": steps, "learning_rate": rate},
            )
            for weight in (LAMBDAS if way == "unsupervised" else (None,))
            for steps in STEPS
            for rate in RATES
        ]
        figures = by_dev.run(variants)
        chosen[way] = max(variants, key=lambda one: figures[one.name]["dev"])
    baselines = layer_baselines(by_dev.layers)
    layers = by_dev.run(baselines)
    best_layer = max(baselines, key=lambda one: layers[one.name]["dev"])

    measures: dict[str, Any] = {"dev": of_dev, "tatoeba": tatoeba_measure(sets, ("36", "112"))}
    if options.bucc:
        measures["bucc"] = bucc_measure([load_bucc(options.bucc, "zh-en", "dev")])
    if options.sts17:
        measures["sts17"] = sts_measure(Sts17Task.load(options.sts17))
    rows = {"average of the layers": baselines[-1], f"best layer: {best_layer.name}": best_layer}
    for way, variant in chosen.items():
        rows |= {f"{way} {pivot}": replace(variant, languages=[pivot]) for pivot in bitexts}
        if "layers" in best_layer.settings:
            alone = {**variant.settings, "layers": best_layer.settings["layers"], "layer_mix": False}
            rows[f"{way} de-en, {best_layer.name} alone"] = replace(variant, settings=alone)
    test = study(**measures)
    measured = {label: next(iter(test.run([variant]).values())) for label, variant in rows.items()}
    names = sorted({name for figures in measured.values() for name in figures})
    table = [
        [
            label,
            *[figures.get(name, "") for name in names],
            *[p or "" for p in PUBLISHED.get(label.split(":")[0], ("",) * 3)],
        ]
        for label, figures in measured.items()
    ]
    print(render_table(["", *names, "published 36", "112", "BUCC zh-en"], table))
    write_json(
        options.output,
        {
            "pairs": {name: len(both[0]) for name, both in texts.items()},
            "tatoeba_pairs": options.tatoeba_pairs or "all",
            "chosen": {way: variant.name for way, variant in chosen.items()},
            "measured": measured,
            "layers_on_dev": layers,
        },
    )


if __name__ == "__main__":
    main()
