"""Mine translations from text of two languages, and train on them.

python examples/mine_and_train.py news.sw.txt news.en.txt --language sw --model intfloat/multilingual-e5-small
"""

from __future__ import annotations

import argparse

from hf_xsent import mine_files, pretrain, score_pairs

parser = argparse.ArgumentParser(description="Mine pairs, filter them, train on them.")
parser.add_argument("source", help="Sentences of one language, one per line.")
parser.add_argument("target", help="Sentences of the other language, one per line.")
parser.add_argument("--language", required=True, help="Language code of the source.")
parser.add_argument("--target_language", default="en")
parser.add_argument("--model", default="intfloat/multilingual-e5-small")
parser.add_argument("--output", default="runs/mined")
parser.add_argument("--threshold", type=float, default=1.06, help="Minimum margin of a mined pair.")
parser.add_argument("--min_score", type=float, default=0.7, help="Minimum cosine of a pair to train on.")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--dev_pairs", type=int, default=100)
options = parser.parse_args()

mined = mine_files(
    options.source, options.target, f"{options.output}/mined.tsv", options.model, threshold=options.threshold
)
print(mined)

scored = score_pairs(
    f"{options.output}/mined.tsv",
    f"{options.output}/clean.tsv",
    options.model,
    language=options.language,
    target_language=options.target_language,
    filter=[f"min_score={options.min_score}"],
)
print(scored)

pretrain(
    model=options.model,
    data={options.language: f"{options.output}/clean.tsv"},
    target_language=options.target_language,
    objectives={"translation_ranking": {"symmetric": True}},
    output_dir=f"{options.output}/model",
    max_steps=options.steps,
    dev_pairs=options.dev_pairs,
    overwrite=True,
)
