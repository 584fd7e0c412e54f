"""Write the model card of an exported folder from its run's recipe, trainer state and evaluation results.

hf-xsent card exported/mine --results results.json --license apache-2.0
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("folder", help="Write README.md into this folder, written by hf-xsent export.")
    run_help = "Read recipe and trainer state from this run. (default: what the export stores of its run)"
    add("--run", dest="trained", metavar="FOLDER", help=run_help)
    add("--results", nargs="+", default=[], metavar="FILE", help="Report these results of hf-xsent evaluate --output.")
    add("--license", help="Licence of the weights: apache-2.0, cc-by-nc-4.0, …")
    add("--name", help="Name of the model. (default: the name of the run's folder)")
    add("--repository", metavar="ORG/NAME", help="Hub id in the card's examples. (default: the name)")
    add("--base_model", metavar="ORG/NAME", help="Hub id of the starting encoder. (default: the recipe's model)")
    add("--languages", nargs="+", metavar="CODE", help="Languages of the model. (default: those of the run's data)")
    add("--datasets", nargs="+", default=[], metavar="ORG/NAME", help="Hub ids of the data sets used in training.")


def run(arguments: argparse.Namespace) -> None:
    """Write the card."""
    from hf_xsent.publishing.model_card import write_card

    names = ("license", "name", "base_model", "languages", "repository", "datasets")
    stated = {name: getattr(arguments, name) for name in names}
    path = write_card(arguments.folder, run=arguments.trained, results=arguments.results, **stated)
    print(f"the model card is in {path}")
