"""Write premises and the hypotheses that they entail as training pairs, from natural language inference data.

  python trainer_scripts/entailment_pairs.py "xnli/dev-*.tsv" SICK_train.txt --output entailment.jsonl

The files of a pattern are translations of each other, line by line, as in XNLI: a premise in one language is paired
with the entailed hypothesis in another, both drawn at random. A hypothesis that contradicts the premise is the pair's
hard negative (pretrain --hard_negatives). Do not train on premises that you measure with.
"""

from __future__ import annotations

import argparse
import glob
import json
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hf_xsent.data.benchmarks.inference import LABELS, check_parallel, load_inference
from hf_xsent.errors import HfXsentError
from hf_xsent.files import check_can_create, write_text


def entailment_pairs(files: Sequence[str], language_pairs: int, draws: random.Random) -> list[dict[str, Any]]:
    """Return each premise with an entailed hypothesis in N random pairs of languages."""
    languages = [load_inference(file) for file in files]
    for file, pairs in zip(files, languages, strict=True):
        check_parallel(files[0], languages[0], file, pairs)
    contradictions = defaultdict(list)  # line numbers by premise
    for number, pair in enumerate(languages[0]):
        if LABELS[pair.label] == "contradiction":
            contradictions[pair.premise].append(number)
    choices = list(product(languages, repeat=2))
    return [
        {
            "source": sources[number].premise,
            "target": targets[number].hypothesis,
            "target_negatives": [targets[line].hypothesis for line in contradictions[pair.premise]],
        }
        for number, pair in enumerate(languages[0])
        if LABELS[pair.label] == "entailment"
        for sources, targets in draws.sample(choices, min(language_pairs, len(choices)))
    ]


def main() -> None:
    """Write the pairs, and print their number."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="+", help="files in the format of XNLI, MultiNLI or SICK, compressed or not")
    parser.add_argument("--output", required=True, type=Path, help="JSONL file for the pairs")
    parser.add_argument("--language_pairs", type=int, default=15, help="pairs of languages for each premise")
    options = parser.parse_args()
    draws = random.Random(1)
    try:
        check_can_create(options.output.parent)
        pairs = []
        for pattern in options.patterns:
            pairs += entailment_pairs(sorted(glob.glob(pattern)) or [pattern], options.language_pairs, draws)
        draws.shuffle(pairs)
        write_text(options.output, (json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs))
    except HfXsentError as error:
        sys.exit(f"entailment_pairs.py: {error}")
    print(f"{len(pairs):,} pairs")


if __name__ == "__main__":
    main()
