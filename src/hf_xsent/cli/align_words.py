"""Link the words of sentence pairs, as training with word alignment (WACSE) needs it.

hf-xsent align-words pairs.tsv --model xlm-roberta-base -o pairs.jsonl   # then: hf-xsent pretrain --data de=pairs.jsonl
hf-xsent align-words pairs.tsv --aligner statistical -o pairs.links      # then: … --data de=pairs.tsv --links de=…
hf-xsent align-words pairs.tsv --links other.txt --link_words spaces -o pairs.jsonl   # the links of another tool
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("pairs", help="Read pairs here: TSV, Moses pairs, TMX, JSONL or Parquet.")
    parser.add_argument(
        "--output", "-o", required=True, metavar="FILE", help="Write JSONL (.jsonl) with the pairs, or Pharaoh lines."
    )
    parser.add_argument(
        "--aligner",
        default="embedding",
        choices=("embedding", "statistical", "span"),
        help="Link by an encoder's states, by the statistics of the pairs, or by a WSPAlign checkpoint.",
    )
    parser.add_argument("--model", help="Use this encoder or checkpoint: a folder or a Hub id.")
    parser.add_argument("--layer", type=int, help="Compare states of this layer; default: six tenths of the way up.")
    parser.add_argument(
        "--method", default="itermax", choices=("argmax", "itermax"), help="Link in one round or, for more links, two."
    )
    parser.add_argument("--threshold", type=float, default=0.9, help="Keep links of at least this score (span).")
    parser.add_argument("--links", metavar="FILE", help="Take these links, Pharaoh lines or JSONL, and only convert.")
    parser.add_argument(
        "--link_words",
        default="script",
        choices=("script", "spaces"),
        help="Take --links as counting our words (script), or words between spaces.",
    )
    parser.add_argument(
        "--language", default="und", help="Name the language of the source side, for files that need it."
    )
    parser.add_argument("--columns", nargs=2, metavar=("SOURCE", "TARGET"), help="Name or number the two columns.")
    parser.add_argument("--work", metavar="FOLDER", help="Keep finished parts here, to go on; default: OUTPUT.work.")
    parser.add_argument("--processes", type=int, default=1, help="Align in so many processes.")
    parser.add_argument("--device", help="Compute on this device; default: the GPU if there is one.")


def run(arguments: argparse.Namespace) -> None:
    """Align, or convert; say how many pairs have links."""
    from hf_xsent.alignment.aligners import AlignerSettings
    from hf_xsent.alignment.pipeline import align_file, convert_links
    from hf_xsent.data.readers.sources import resolve_sources
    from hf_xsent.errors import RecipeError

    columns = None
    if arguments.columns:
        left, right = (int(one) if one.isdecimal() else one for one in arguments.columns)
        columns = (left, right)
    if arguments.processes < 1:
        raise RecipeError(f"--processes {arguments.processes} is not positive")
    named = {arguments.language: arguments.pairs}
    links = {arguments.language: arguments.links} if arguments.links else None
    sources = resolve_sources(named, columns=columns, links=links, link_words=arguments.link_words)[arguments.language]
    if len(sources) > 1:
        raise RecipeError(f"{arguments.pairs} are {len(sources)} files: align one at a time")
    if arguments.links:
        linked = convert_links(sources[0], arguments.output)
    else:
        settings = AlignerSettings(
            arguments.aligner, arguments.model, arguments.layer, arguments.method, arguments.threshold
        )
        settings.check()
        linked = align_file(
            sources[0], arguments.output, settings, arguments.work, arguments.processes, arguments.device
        )
    print(f"{linked:,} pairs with links are in {arguments.output}")
