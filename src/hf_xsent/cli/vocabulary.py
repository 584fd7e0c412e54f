"""List the word pieces of a bitext's target side, so that the RTL head of DAP projects onto no others.

hf-xsent vocabulary --model xlm-roberta-base --data train/{language}-en.tsv.xz --output english.json
hf-xsent pretrain dap.yaml --rtl_vocabulary english.json
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("--model", required=True, help="Take the word pieces of this encoder's tokenizer.")
    parser.add_argument(
        "--data", required=True, nargs="+", help="Read these pairs, given as to hf-xsent pretrain: de=pairs.tsv …"
    )
    parser.add_argument("--target_language", default="en", help="Name the language of the target side.")
    parser.add_argument(
        "--side", choices=("target", "source"), default="target", help="List the pieces of this side of the pairs."
    )
    parser.add_argument("--cache_dir", help="Keep the cleaned, memory-mapped bitext here.")
    parser.add_argument("--output", required=True, metavar="FILE", help="Write the list to this JSON file.")


def run(arguments: argparse.Namespace) -> None:
    """Read, count, write."""
    from hf_xsent.data.bitext import load_bitext
    from hf_xsent.models.loading import load_tokenizer
    from hf_xsent.models.vocabulary import RestrictedVocabulary

    tokenizer = load_tokenizer(arguments.model)
    bitext = load_bitext(arguments.data, target_language=arguments.target_language, cache_dir=arguments.cache_dir)
    vocabulary = RestrictedVocabulary.of(bitext.sentences(arguments.side), tokenizer)
    vocabulary.write(arguments.output)
    print(f"{len(vocabulary.ids)} of {len(tokenizer)} word pieces occur; written to {arguments.output}")
