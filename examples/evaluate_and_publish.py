"""Evaluate a run, export it, describe it by a model card, and upload it to the Hub.

python examples/evaluate_and_publish.py runs/example --tatoeba data/tatoeba --languages de sw --base_model org/encoder
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hf_xsent import evaluate, export_sentence_transformer, publish, write_model_card

parser = argparse.ArgumentParser(description="Evaluate and publish a run.")
parser.add_argument("run", help="The output folder of a run.")
parser.add_argument("--tatoeba", required=True, help="Folder of tatoeba.xxx-eng.* files, or a Hub id.")
parser.add_argument("--languages", nargs="+", required=True)
parser.add_argument("--base_model", required=True, help="Hub id of the starting encoder.")
parser.add_argument("--license", default="apache-2.0")
parser.add_argument("--output", default="exported/example")
parser.add_argument("--repository", help="Upload to this Hub id, org/name.")
options = parser.parse_args()

results = Path(f"{options.output}.json")
languages = {"tatoeba": options.languages}
for report in evaluate(options.run, {"tatoeba": options.tatoeba}, languages=languages, output=results).reports:
    for language, figures in report.languages.items():
        print(f"{language}: {figures['mean']:.1f}")

export_sentence_transformer(options.run, options.output, overwrite=True)
card = write_model_card(
    options.output,
    results=[results],
    license=options.license,
    base_model=options.base_model,
    repository=options.repository,
)
print(f"the model card is in {card}")
if options.repository:
    print(publish(options.output, options.repository, private=True))
