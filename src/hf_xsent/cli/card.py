"""Write the model card of an exported folder from its run's recipe, trainer state and evaluation results.

hf-xsent card exported/mine --run runs/mine --results results.json --license apache-2.0
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("folder", help="Write README.md into this folder, written by hf-xsent export.")
    add("--run", dest="trained", required=True, metavar="FOLDER", help="Read recipe and trainer state from this run.")
    add("--results", nargs="+", default=[], metavar="FILE", help="Report these results of hf-xsent evaluate --output.")
    add("--license", help="Licence of the weights: apache-2.0, cc-by-nc-4.0, …")
    add("--name", help="Name of the model. (default: the name of the run's folder)")
    add("--repository", metavar="ORG/NAME", help="Hub id in the card's examples. (default: the name)")
    add("--base_model", metavar="ORG/NAME", help="Hub id of the starting encoder. (default: the recipe's model)")
    add("--languages", nargs="+", metavar="CODE", help="Languages of the model. (default: those of the run's data)")
    add("--datasets", nargs="+", default=[], metavar="ORG/NAME", help="Hub ids of the data sets used in training.")


def run(arguments: argparse.Namespace) -> None:
    """Collect the facts, then write the card."""
    from pathlib import Path

    from hf_xsent.errors import OutputError
    from hf_xsent.publishing.evaluation_tables import read_tables
    from hf_xsent.publishing.model_card import CardFacts, facts_of_run, write_card

    if not (Path(arguments.folder) / "modules.json").is_file():
        raise OutputError(f"{arguments.folder} is not an export: write one with hf-xsent export")
    names = ("name", "license", "base_model", "languages", "repository", "datasets")
    stated = {name: value for name in names if (value := getattr(arguments, name))}
    tables = [table for path in arguments.results for table in read_tables(path)]
    facts = CardFacts(**({"license": ""} | facts_of_run(arguments.trained) | stated | {"tables": tables}))
    print(f"the model card is in {write_card(arguments.folder, facts)}")
