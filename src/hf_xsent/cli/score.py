"""Score the pairs of a bitext file: cosine, and margin where pools of sentences are given.

hf-xsent score crawled.tsv --model runs/mine --output scored.tsv
hf-xsent score crawled.tsv --model runs/mine --output scored.tsv --source_pool zh.txt --target_pool en.txt
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
    parser.add_argument("--columns", nargs=2, metavar=("SOURCE", "TARGET"), help="Name or number the two columns.")
    parser.add_argument("--source_pool", metavar="FILE", help="Seek neighbours of targets among these sentences.")
    parser.add_argument("--target_pool", metavar="FILE", help="Seek neighbours of sources among these sentences.")
    parser.add_argument("--work", metavar="FOLDER", help="Keep the pools' vectors here; default: OUTPUT.work.")
    parser.add_argument("--k", type=int, default=4, help="Take the margin over so many nearest neighbours.")
    parser.add_argument("--margin", default="ratio", choices=("ratio", "distance"), help="Score by this margin.")
    parser.add_argument("--pooling", help="Pool by cls, mean or max; default: as the model states.")
    parser.add_argument("--device", help="Compute on this device; default: the GPU if there is one.")


def run(arguments: argparse.Namespace) -> None:
    """Open the model, encode pools if there are any, score."""
    from pathlib import Path

    from hf_xsent.data.sentences import load_sentences
    from hf_xsent.data.sources import resolve_sources
    from hf_xsent.errors import RecipeError
    from hf_xsent.mining.scoring import score_pairs
    from hf_xsent.mining.vectors import encode_to_shards
    from hf_xsent.models.embedder import SentenceEmbedder

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
    embedder = SentenceEmbedder.from_pretrained(arguments.model, pooling=arguments.pooling, device=arguments.device)
    pools = None
    if all(files):
        work = Path(arguments.work or f"{arguments.output}.work")
        identity = {"model": str(arguments.model), "pooling": embedder.pooling}
        sides = [load_sentences(file, work / "sentences") for file in files]
        vectors = [encode_to_shards(embedder, side, work / "vectors" / side.fingerprint, identity) for side in sides]
        pools = (vectors[0], vectors[1])
    count = score_pairs(sources[0], arguments.output, embedder, pools, arguments.k, arguments.margin)
    print(f"{count:,} scored pairs are in {arguments.output}")
