"""Mine hard negatives: for each pair, the nearest sentences of both languages that are not its translations.

hf-xsent mine-negatives "train/{language}-en.tsv.xz" --model runs/mine --output negatives
hf-xsent pretrain --data "negatives/{language}.jsonl" --hard_negatives 2 …
torchrun --nproc_per_node 8 --no-python hf-xsent mine-negatives …   # share encoding and search among processes

Interrupted? The same command resumes: embeddings and neighbours are cached in the work folder.
"""

from __future__ import annotations

import argparse

from hf_xsent.cli.flags import add_shared


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("data", nargs="+", help="Sentence pairs by language, given as to hf-xsent pretrain --data.")
    add("--model", required=True, help="Encode with this model: a folder or a Hub id.")
    add("--output", "-o", required=True, metavar="FOLDER", help="Write LANGUAGE.jsonl with all pairs into this folder.")
    add("--work", metavar="FOLDER", help="Cache embeddings and neighbours here. (default: OUTPUT.work)")
    add("--target_language", default="en", help="Language code of the pairs' target side.")
    add("--negatives", type=int, default=4, help="Write at most N negatives of each side of a pair, nearest first.")
    add("--neighbours", type=int, default=32, help="Choose among the N nearest sentences.")
    dropped = "Drop sentences that score above this share of the pair: they may be other translations."
    add("--max_share", type=float, default=0.95, help=dropped)
    scores = "Score by the cosine relative to the neighbours' (ratio) or by the cosine (absolute)."
    add("--margin", default="ratio", choices=("ratio", "absolute"), help=scores)
    pool = "Search the targets of all N languages, not only the pair's: nearer negatives, in about N times the time."
    add("--all_targets", action="store_true", help=pool)
    add("--memory_mib", type=int, default=512, help="Memory of a block of cosines, in MiB.")
    stored = "Store embeddings in this precision."
    add("--vectors", dest="vector_dtype", choices=("float32", "float16"), default="float32", help=stored)
    add_shared(parser, "--columns", "--pooling", "--max_length", "--precision", "--device")


def run(arguments: argparse.Namespace) -> None:
    """Load the model, mine, print the number of negatives of each language."""
    import os
    from dataclasses import asdict, fields, replace

    from hf_xsent.data.bitext import check_source, resolve_sources
    from hf_xsent.data.readers.columns import parse_columns
    from hf_xsent.evaluation.report import render_table
    from hf_xsent.logs import quiet_logs
    from hf_xsent.mining.negatives import NegativeSettings, mine_negatives
    from hf_xsent.mining.shards import Processes, default_device
    from hf_xsent.mining.vectors import identify_model
    from hf_xsent.models.embedder import SentenceEmbedder

    quiet_logs()
    stated = {one.name: getattr(arguments, one.name) for one in fields(NegativeSettings) if one.name != "device"}
    settings = NegativeSettings(**stated)
    sources = resolve_sources(
        arguments.data, target_language=arguments.target_language, columns=parse_columns(arguments.columns)
    )
    for source in (one for some in sources.values() for one in some):
        check_source(source)
    device = arguments.device or default_device(int(os.environ.get("LOCAL_RANK", 0)))
    embedder = SentenceEmbedder.from_pretrained(
        arguments.model,
        pooling=arguments.pooling,
        max_length=arguments.max_length,
        precision=arguments.precision,
        device=device,
    )
    counts = mine_negatives(
        sources,
        arguments.output,
        embedder,
        identify_model(arguments.model, embedder),
        arguments.work or f"{arguments.output.rstrip('/')}.work",
        replace(settings, device=str(embedder.model.device)),
        Processes(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))),
    )
    if counts:
        rows: list[list[object]] = [[language, *asdict(count).values()] for language, count in counts.items()]
        header = ["language", "pairs", "source negatives", "target negatives", "pairs without any"]
        print(render_table(header, rows))
        print(f"the pairs with their negatives are in {arguments.output}")
