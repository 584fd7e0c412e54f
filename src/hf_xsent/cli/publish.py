"""Put an exported folder on the Hub; broken off, the same command goes on.

hf-xsent publish exported/mine org/mine --private
hf-xsent publish exported/mine org/mine --dry_run
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("folder", help="Publish this folder of hf-xsent export.")
    parser.add_argument("repository", help="Publish it under this name: org/name.")
    parser.add_argument("--private", action="store_true", help="Show it to its owners only (when it is created).")
    parser.add_argument("--revision", metavar="BRANCH", help="Put it on this branch, made if need be; default: main.")
    parser.add_argument("--message", help="Describe the commit in these words.")
    parser.add_argument("--dry_run", action="store_true", help="Check and list files and sizes, and send nothing.")


def run(arguments: argparse.Namespace) -> None:
    """Check, list, send."""
    from hf_xsent.publishing.hub import plan_upload, publish

    upload = plan_upload(arguments.folder, arguments.repository)
    print(upload.table(), flush=True)
    if arguments.dry_run:
        print("nothing was sent")
        return
    address = publish(upload, arguments.private, arguments.revision, arguments.message)
    print(f"published: {address}")
