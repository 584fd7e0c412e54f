"""Evaluate a run, export it, describe it by a model card, and upload it to the Hub.

python examples/evaluate_and_publish.py runs/example org/mine --tatoeba data/tatoeba --languages de \
  --base_model org/encoder
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hf_xsent import evaluate, export_sentence_transformer, publish

parser = argparse.ArgumentParser(description="Evaluate and publish a run.")
parser.add_argument("run", help="The output folder of a run.")
parser.add_argument("repository", help="Hub id of the model, org/name.")
parser.add_argument("--tatoeba", required=True, help="Folder of tatoeba.xxx-eng.* files, or a Hub id.")
parser.add_argument("--languages", nargs="+", required=True)
parser.add_argument("--base_model", required=True, help="Hub id of the starting encoder.")
parser.add_argument("--license", default="apache-2.0")
parser.add_argument("--output", default="exported/example")
parser.add_argument("--upload", action="store_true", help="Upload; else only write the card and check the folder.")
options = parser.parse_args()

results = Path(f"{options.output}.json")
languages = {"tatoeba": options.languages}
for report in evaluate(options.run, {"tatoeba": options.tatoeba}, languages=languages, output=results).reports:
    for language, figures in report.languages.items():
        print(f"{language}: {figures['mean']:.1f}")

export_sentence_transformer(options.run, options.output, overwrite=True)
facts = {"results": [results], "license": options.license, "base_model": options.base_model}
print(publish(options.output, options.repository, **facts, private=True, dry_run=not options.upload))
