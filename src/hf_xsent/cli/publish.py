"""Upload an exported folder to the Hub; the same command resumes an interrupted upload.

hf-xsent publish exported/mine org/mine --private
hf-xsent publish exported/mine org/mine --dry_run
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("folder", help="Upload this folder, written by hf-xsent export.")
    add("repository", help="Hub id of the model: org/name.")
    add("--private", action="store_true", help="Create the repository as private.")
    add("--revision", metavar="BRANCH", help="Upload to this branch; create it if missing. (default: main)")
    add("--message", help="Commit message. (default: Upload NAME with hf-xsent)")
    add("--dry_run", action="store_true", help="Check the folder, list files and sizes, upload nothing.")


def run(arguments: argparse.Namespace) -> None:
    """Check, list, upload."""
    from hf_xsent.publishing.hub import plan_upload, publish

    upload = plan_upload(arguments.folder, arguments.repository)
    print(upload.table(), flush=True)
    if arguments.dry_run:
        print("dry run: nothing was uploaded")
        return
    print(f"published: {publish(upload, arguments.private, arguments.revision, arguments.message)}")
