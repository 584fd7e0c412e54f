"""Score the pairs of a bitext file, and filter them: cosine, and margin where pools of sentences are given.

hf-xsent score crawled.tsv --model runs/mine --output scored.tsv
hf-xsent score crawled.tsv --model runs/mine --output scored.tsv --source_pool zh.txt --target_pool en.txt
hf-xsent score pairs.tsv --model runs/mine --output clean.tsv --language de --filter min_score=0.7 max_length_ratio=2
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("pairs", help="Read pairs here: TSV, Moses pairs, TMX, JSONL or Parquet.")
    parser.add_argument("--model", required=True, help="Encode with this model: a folder or a Hub id.")
    parser.add_argument("--output", "-o", required=True, metavar="FILE", help="Write the scored pairs to this TSV.")
    parser.add_argument(
        "--language", default="und", help="Name the language of the source side, for files that need it."
    )
    parser.add_argument(
        "--target_language", default="en", help="Name the language of the target side, for --filter; und for any."
    )
    parser.add_argument(
        "--filter",
        nargs="*",
        metavar="RULE=VALUE",
        help="Write only pairs that pass the rules of documents/filtering.py, and report what each rule removed; "
        "RULE=VALUE changes one, null switches it off.",
    )
    parser.add_argument("--columns", nargs=2, metavar=("SOURCE", "TARGET"), help="Name or number the two columns.")
    parser.add_argument("--source_pool", metavar="FILE", help="Seek neighbours of targets among these sentences.")
    parser.add_argument("--target_pool", metavar="FILE", help="Seek neighbours of sources among these sentences.")
    parser.add_argument("--work", metavar="FOLDER", help="Keep the pools' vectors here; default: OUTPUT.work.")
    parser.add_argument("--max_length", type=int, help="Cut sentences after this many tokens.")
    parser.add_argument("--k", type=int, default=4, help="Take the margin over so many nearest neighbours.")
    parser.add_argument("--margin", default="ratio", choices=("ratio", "distance"), help="Score by this margin.")
    parser.add_argument("--pooling", help="Pool by cls, mean or max; default: as the model states.")
    parser.add_argument("--device", help="Compute on this device; default: the GPU if there is one.")


def run(arguments: argparse.Namespace) -> None:
    """Open the model, encode pools if there are any, score, filter."""
    from itertools import islice
    from pathlib import Path

    from hf_xsent.data.cleaning import CleaningReport
    from hf_xsent.data.outputs import check_writable
    from hf_xsent.data.readers import check_source, read_pairs
    from hf_xsent.data.sentences import load_sentences
    from hf_xsent.data.sources import resolve_sources, source_files
    from hf_xsent.documents.filtering import FilterRules, PairFilter, check_language
    from hf_xsent.errors import DataError, RecipeError
    from hf_xsent.logs import quiet_logs
    from hf_xsent.mining.scoring import score_pairs
    from hf_xsent.mining.vectors import VectorStore, identify_model
    from hf_xsent.models.embedder import SentenceEmbedder

    quiet_logs()
    files = [arguments.source_pool, arguments.target_pool]
    if any(files) and not all(files):
        raise RecipeError("margins need both pools: give --source_pool and --target_pool")
    columns = None
    if arguments.columns:
        left, right = (int(one) if one.isdecimal() else one for one in arguments.columns)
        columns = (left, right)
    sources = resolve_sources([f"{arguments.language}={arguments.pairs}"], columns=columns)[arguments.language]
    if len(sources) > 1:
        raise RecipeError(f"{arguments.pairs} are {len(sources)} files: score one at a time")
    check_writable(arguments.output, [*source_files(sources[0]), *filter(None, files)])
    check_source(sources[0])
    kept = None
    if arguments.filter is not None:
        languages = arguments.language, arguments.target_language
        kept = PairFilter(FilterRules.parse(arguments.filter), *languages)
        sample = list(zip(*islice(read_pairs(sources[0]), 10_000), strict=True))
        for texts, language, name in zip(sample, languages, ("source", "target"), strict=False):
            check_language(texts, language, f"the {name} side of {arguments.pairs}")
    work = Path(arguments.work or f"{arguments.output}.work")
    if all(files):
        check_writable(work / "sentences" / "lock")
    embedder = SentenceEmbedder.from_pretrained(
        arguments.model, pooling=arguments.pooling, max_length=arguments.max_length, device=arguments.device
    )
    pools = None
    if all(files):
        identity = identify_model(arguments.model, embedder)
        sides = [load_sentences(file, work / "sentences") for file in files]
        for file, side in zip(files, sides, strict=True):
            if len(side) < arguments.k:
                raise DataError(f"{file} holds {len(side)} sentences, fewer than k = {arguments.k}: lower k")
        source, target = (VectorStore.open(work, side, identity).encode(embedder) for side in sides)
        pools = (source, target)
    device = embedder.model.device
    keeps = None if kept is None else kept.keeps
    count = score_pairs(sources[0], arguments.output, embedder, pools, arguments.k, arguments.margin, device, keeps)
    if kept is not None:
        print(CleaningReport({arguments.language: kept.counts}).table())
    print(f"{count:,} scored pairs are in {arguments.output}")
