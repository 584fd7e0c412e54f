"""Kill commands at random moments: ``python -m tests.attack --seed 1``.

Run it in the repository's root. It prints counts, and each finding with the seed that repeats it; the exit code is 1 if
there are findings. ``--kills 200`` takes about ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile


def main() -> int:
    """Print the counts of an attack, or its findings; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="Repeat the attack with this seed. (default: random)")
    parser.add_argument("--kills", type=int, default=200, help="Number of kills.")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 30) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    from .kills import attack  # imports torch, with the settings below

    try:
        print(attack(seed, options.kills))
    except AssertionError as error:
        print(f"FINDINGS\n{error}")
        return 1
    return 0


if __name__ == "__main__":
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory(prefix="hf-xsent-attack-") as folder:  # killed processes leave their files here
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        code = main()
    sys.exit(code)
