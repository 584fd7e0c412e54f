"""Analyse dual pivot on an encoder: many extractions, trained and measured on features that are encoded once.

hf-xsent dual-pivot baselines --model ENCODER --tatoeba data/tatoeba --output_dir runs/pivot
hf-xsent dual-pivot ablations --model ENCODER --data de=pairs.tsv --tatoeba data/tatoeba --output_dir runs/pivot
hf-xsent dual-pivot layers … --plot layers.svg      # single layers, with pairs, without and as they are
hf-xsent dual-pivot pairs … --data "train/{language}-en.tsv.xz"   # the first 1, 2, 4, 8, 16 languages
hf-xsent dual-pivot thresholds … --bucc data/bucc --bucc_pairs de-en fr-en ru-en zh-en

What is trained and measured stays in the output folder: say the same again after a stop. To train one extraction, use
hf-xsent pretrain --method dual-pivot.
"""

from __future__ import annotations

import argparse

ANALYSES = ("baselines", "ablations", "layers", "pairs", "thresholds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("analysis", choices=ANALYSES, help="Choose what is compared.")
    parser.add_argument("--model", required=True, help="Freeze this encoder: a folder or a Hub id.")
    parser.add_argument("--output_dir", required=True, help="Keep features, models and results here.")
    parser.add_argument("--data", nargs="+", help="Train on this bitext, as pretrain's --data; the pivots come first.")
    parser.add_argument("--max_pairs", type=int, help="Read at most this many pairs a language.")
    parser.add_argument("--tatoeba", metavar="FOLDER", help="Measure retrieval here: a folder or a Hub id.")
    parser.add_argument("--group", default="36", help="Measure this group of Tatoeba's languages.")
    parser.add_argument("--bucc", metavar="FOLDER", help="Measure bitext mining on the files of this folder.")
    parser.add_argument("--bucc_pairs", nargs="+", default=["zh-en"], help="Mine these; the pivots' pair comes first.")
    parser.add_argument("--bucc_split", default="training", help="Mine this split; its gold pairs choose thresholds.")
    parser.add_argument("--sts17", metavar="FOLDER", help="Measure similarity here: a folder of STS 2017 or a Hub id.")
    parser.add_argument("--every", type=int, default=4, help="Take every so many layers.")
    parser.add_argument("--max_steps", type=int, default=2000, help="Train each extraction for so many steps.")
    parser.add_argument("--learning_rate", type=float, default=1e-3, help="Train with this constant rate.")
    parser.add_argument("--seed", type=int, default=42, help="Seed of weights, order and random negatives.")
    parser.add_argument("--max_length", type=int, default=128, help="Cut sentences after this many tokens.")
    parser.add_argument("--plot", metavar="FILE", help="Draw the accuracy of each layer into this SVG.")


def run(arguments: argparse.Namespace) -> None:
    """Train and measure what is missing, print the table."""
    from pathlib import Path

    from hf_xsent.data.benchmarks import load_tatoeba
    from hf_xsent.data.bitext import load_bitext
    from hf_xsent.data.bucc import load_bucc
    from hf_xsent.data.sides import Sides
    from hf_xsent.errors import RecipeError
    from hf_xsent.evaluation.registry import tatoeba_group
    from hf_xsent.evaluation.report import render_table
    from hf_xsent.evaluation.similarity import Sts17Task
    from hf_xsent.files import check_writable, write_json
    from hf_xsent.logs import quiet_logs
    from hf_xsent.models.loading import load_tokenizer
    from hf_xsent.pages.charts import curve_chart, standalone
    from hf_xsent.training import pivot_study as studies

    quiet_logs()
    languages = tatoeba_group(arguments.group)
    measures = {}
    if arguments.tatoeba:
        sets = load_tatoeba(arguments.tatoeba, languages)
        measures[f"Tatoeba {arguments.group}"] = studies.tatoeba_measure(sets)
    if arguments.bucc:
        bucc = [load_bucc(arguments.bucc, pair, arguments.bucc_split) for pair in arguments.bucc_pairs]
        measures[f"BUCC {' '.join(arguments.bucc_pairs)} {arguments.bucc_split}"] = studies.bucc_measure(bucc)
    if arguments.sts17:
        measures["STS 2017"] = studies.sts_measure(Sts17Task.load(arguments.sts17))
    if not measures or (arguments.analysis == "thresholds" and not arguments.bucc):
        raise RecipeError("there is nothing to measure: give --bucc for thresholds, --tatoeba or --sts17 for all else")
    if arguments.every < 1:
        raise RecipeError(f"--every {arguments.every} is not positive: 1 takes each layer")
    if arguments.plot and arguments.analysis != "layers":
        raise RecipeError("--plot draws the analysis of layers")
    for output in filter(None, (arguments.plot, f"{arguments.output_dir}/{arguments.analysis}.json")):
        check_writable(output)
    if arguments.analysis != "baselines" and not arguments.data:
        raise RecipeError("no bitext to train on: give --data, such as de=pairs.tsv")
    train = None
    if arguments.data and arguments.analysis != "baselines":
        train = Sides.of_bitext(load_bitext(arguments.data, max_pairs=arguments.max_pairs))
    study = studies.PivotStudy(
        arguments.model,
        load_tokenizer(arguments.model),
        arguments.output_dir,
        train,
        measures,
        max_length=arguments.max_length,
        max_steps=arguments.max_steps,
        learning_rate=arguments.learning_rate,
        seed=arguments.seed,
    )
    baselines = studies.layer_baselines(study.layers, arguments.every)
    variants = {
        "baselines": lambda: baselines,
        "ablations": lambda: [baselines[-1], *studies.ablations()],
        "layers": lambda: [*baselines[:-1], *studies.single_layers(study.layers, arguments.every)],
        "pairs": lambda: studies.numbers_of_pairs([] if train is None else [*train.texts]),
        "thresholds": lambda: [studies.Variant(way, settings) for way, settings in studies.WAYS.items()],
    }[arguments.analysis]()
    results = study.run(variants)
    names = list(dict.fromkeys(name for figures in results.values() for name in figures))
    print(render_table(["", *names], [[label, *[some[name] for name in names]] for label, some in results.items()]))
    write_json(Path(arguments.output_dir) / f"{arguments.analysis}.json", {"results": results})
    if arguments.plot:
        lines = studies.lines_of_layers(results, names[0])
        curves = {name: (number, sorted(line.items())) for number, (name, line) in enumerate(lines.items())}
        Path(arguments.plot).write_text(
            standalone(curve_chart(names[0], curves, "layer", named=True)), encoding="utf-8"
        )
