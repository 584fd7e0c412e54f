"""Write the model card of an exported folder from its run's recipe, trainer state and evaluation results.

hf-xsent card exported/mine --run runs/mine --results results.json --license apache-2.0
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("folder", help="Write README.md into this folder of hf-xsent export.")
    parser.add_argument(
        "--run", dest="trained", required=True, metavar="FOLDER", help="Read recipe and training from this run."
    )
    parser.add_argument(
        "--results", nargs="+", default=[], metavar="FILE", help="Report these results of hf-xsent evaluate --output."
    )
    parser.add_argument("--license", help="State this licence of the weights: apache-2.0, cc-by-nc-4.0, …")
    parser.add_argument("--name", help="Call the model so; default: as the run's folder.")
    parser.add_argument(
        "--repository", metavar="ORG/NAME", help="Show the examples with this Hub id; default: the name."
    )
    parser.add_argument("--base_model", metavar="ORG/NAME", help="Name the encoder it started from, if by a folder.")
    parser.add_argument("--languages", nargs="+", metavar="CODE", help="State these languages; default: the run's.")
    parser.add_argument("--datasets", nargs="+", default=[], metavar="ORG/NAME", help="Name the Hub's data sets used.")


def run(arguments: argparse.Namespace) -> None:
    """Gather, render, write."""
    from pathlib import Path

    from hf_xsent.errors import OutputError
    from hf_xsent.publishing.evaluation_tables import read_tables
    from hf_xsent.publishing.model_card import CardFacts, facts_of_run, write_card

    if not (Path(arguments.folder) / "modules.json").is_file():
        raise OutputError(f"{arguments.folder} is no export: write one with hf-xsent export")
    stated = {
        name: value
        for name in ("name", "license", "base_model", "languages", "repository", "datasets")
        if (value := getattr(arguments, name))
    }
    tables = [table for path in arguments.results for table in read_tables(path)]
    facts = CardFacts(**({"license": ""} | facts_of_run(arguments.trained) | stated | {"tables": tables}))
    print(f"the model card is in {write_card(arguments.folder, facts)}")
