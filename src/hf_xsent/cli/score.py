"""Score and filter the pairs of a bitext file: cosine, and margin if pools of sentences are given.

hf-xsent score crawled.tsv --model runs/mine --output scored.tsv
hf-xsent score crawled.tsv --model runs/mine --output scored.tsv --source_pool zh.txt --target_pool en.txt
hf-xsent score pairs.tsv --model runs/mine -o clean.tsv --language de --filter min_score=0.7 max_length_ratio=2
"""

from __future__ import annotations

import argparse

from hf_xsent.cli.flags import add_shared, one_source

_PAIRS_TO_IDENTIFY = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add_shared(parser, "pairs")
    add("--model", required=True, help="Encode with this model: a folder or a Hub id.")
    add("--output", "-o", required=True, metavar="FILE", help="Write the scored pairs to this TSV file.")
    add("--source_pool", metavar="FILE", help="Search the neighbours of targets in this file, one sentence per line.")
    add("--target_pool", metavar="FILE", help="Search the neighbours of sources in this file, one sentence per line.")
    add("--work", metavar="FOLDER", help="Cache the pools' embeddings here. (default: OUTPUT.work)")
    margins = ("ratio", "distance")
    add("--margin", default="ratio", choices=margins, help="Compare a cosine with its neighbours' by this margin.")
    rules = "Write only pairs that pass the cleaning rules, report what each removed; RULE=VALUE changes a rule."
    add("--filter", nargs="*", metavar="RULE=VALUE", help=rules)
    add("--target_language", default="en", help="Language code of the target side for --filter, und if unknown.")
    add_shared(parser, "--k", "--language", "--columns", "--pooling", "--max_length", "--device")


def run(arguments: argparse.Namespace) -> None:
    """Load the model, encode the pools if given, score, filter."""
    from itertools import islice
    from pathlib import Path

    from hf_xsent.data.cleaning.filtering import FilterRules, PairFilter, check_language
    from hf_xsent.data.cleaning.rules import CleaningReport
    from hf_xsent.data.readers.formats import check_source, read_pairs
    from hf_xsent.data.readers.sources import source_files
    from hf_xsent.data.sentences import load_sentences
    from hf_xsent.errors import DataError, RecipeError
    from hf_xsent.files import check_writable
    from hf_xsent.logs import quiet_logs
    from hf_xsent.mining.scoring import score_pairs
    from hf_xsent.mining.vectors import VectorStore, identify_model
    from hf_xsent.models.embedder import SentenceEmbedder

    quiet_logs()
    files = [one for one in (arguments.source_pool, arguments.target_pool) if one]
    if len(files) == 1:
        raise RecipeError("margins need both pools: give --source_pool and --target_pool")
    source = one_source(arguments)
    check_writable(arguments.output, [*source_files(source), *files])
    check_source(source)
    pair_filter = None
    if arguments.filter is not None:
        languages = arguments.language, arguments.target_language
        pair_filter = PairFilter(FilterRules.parse(arguments.filter), *languages)
        sample = zip(*islice(read_pairs(source), _PAIRS_TO_IDENTIFY), strict=True)
        for texts, language, name in zip(sample, languages, ("source", "target"), strict=False):
            check_language(texts, language, f"the {name} side of {arguments.pairs}")
    work = Path(arguments.work or f"{arguments.output}.work")
    if files:
        check_writable(work / "sentences" / "lock")
    embedder = SentenceEmbedder.from_pretrained(
        arguments.model, pooling=arguments.pooling, max_length=arguments.max_length, device=arguments.device
    )
    pools = None
    if files:
        identity = identify_model(arguments.model, embedder)
        sides = [load_sentences(file, work / "sentences") for file in files]
        for file, side in zip(files, sides, strict=True):
            if len(side) < arguments.k:
                raise DataError(f"{file} holds {len(side)} sentences, fewer than k = {arguments.k}: lower --k")
        sources, targets = (VectorStore.open(work, side, identity).encode(embedder) for side in sides)
        pools = (sources, targets)
    device = embedder.model.device
    accepts = None if pair_filter is None else pair_filter.accepts
    count = score_pairs(source, arguments.output, embedder, pools, arguments.k, arguments.margin, device, accepts)
    if pair_filter is not None:
        print(CleaningReport({arguments.language: pair_filter.counts}).table())
    print(f"{count:,} scored pairs are in {arguments.output}")
