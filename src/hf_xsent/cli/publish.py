"""Write the model card of an exported folder and upload the folder to the Hub; the same command resumes.

hf-xsent publish exported/mine org/mine --results results.json --license apache-2.0 --dry_run
hf-xsent publish exported/mine org/mine --private

The card is written only if it is missing or a flag of the card is given, so that an edited card is not overwritten.
"""

from __future__ import annotations

import argparse
from pathlib import Path

_CARD_FLAGS = ("license", "name", "base_model", "languages", "datasets", "results", "trained")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("folder", help="Upload this folder, written by hf-xsent export.")
    add("repository", help="Hub id of the model: org/name.")
    add("--private", action="store_true", help="Create the repository as private.")
    add("--revision", metavar="BRANCH", help="Upload to this branch; create it if missing. (default: main)")
    add("--message", help="Commit message. (default: Upload NAME with hf-xsent)")
    add("--dry_run", action="store_true", help="Write the card, check the folder, list files; upload nothing.")
    card = parser.add_argument_group("model card")
    run = "Read recipe and trainer state from this run. (default: what the export stores of its run)"
    results = "Report these results of hf-xsent evaluate --output. (default: none)"
    languages = "Languages of the model. (default: those of the run's data)"
    datasets = "Hub ids of the data sets used in training. (default: none)"
    card.add_argument("--license", help="Licence of the weights: apache-2.0, cc-by-nc-4.0, … (default: none)")
    card.add_argument("--results", nargs="+", metavar="FILE", help=results)
    card.add_argument("--base_model", metavar="ORG/NAME", help="Hub id of the encoder. (default: the recipe's model)")
    card.add_argument("--languages", nargs="+", metavar="CODE", help=languages)
    card.add_argument("--datasets", nargs="+", metavar="ORG/NAME", help=datasets)
    card.add_argument("--name", help="Name of the model. (default: that of the repository)")
    card.add_argument("--run", dest="trained", metavar="FOLDER", help=run)


def run(arguments: argparse.Namespace) -> None:
    """Write the card, check, list, upload."""
    from hf_xsent.publishing.hub import check_repository, plan_upload, publish
    from hf_xsent.publishing.model_card import write_model_card

    check_repository(arguments.repository)
    stated = {name: getattr(arguments, name) for name in _CARD_FLAGS}
    if any(stated.values()) or not (Path(arguments.folder) / "README.md").is_file():
        trained, results = stated.pop("trained"), stated.pop("results") or []
        stated |= {"repository": arguments.repository, "name": arguments.name or arguments.repository.split("/")[1]}
        print(f"card: {write_model_card(arguments.folder, run=trained, results=results, **stated)}")
    upload = plan_upload(arguments.folder, arguments.repository)
    print(upload.table(), flush=True)
    if arguments.dry_run:
        print("dry run: nothing was uploaded")
        return
    print(f"published: {publish(upload, arguments.private, arguments.revision, arguments.message)}")
