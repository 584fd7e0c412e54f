"""Attack the package with kills and processes: ``python -m tests.attack --seed 1``.

Run it in the repository's root. It prints counts, and each finding with the seed that repeats it; the exit code is 1 if
there are findings. ``--kills 200`` takes about ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence

PARTS = {"kills": 1.0, "equality": 0.25}  # modules, and their shares of the count


def main(arguments: Sequence[str]) -> int:
    """Run the parts one after the other; return 1 if one of them has findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="Repeat the attack with this seed. (default: random)")
    parser.add_argument("--kills", type=int, default=200, help="Number of kills.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="Run these parts only.")
    options = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 30) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    failed = False
    for part in options.parts:
        started = time.monotonic()
        try:
            attack = importlib.import_module(f"{__package__}.{part}").attack  # imports torch, with the settings below
            counts: object = attack(seed, max(1, round(options.kills * PARTS[part])))
        except AssertionError as error:
            failed, counts = True, f"FINDINGS\n{error}"
        print(f"{part}, {time.monotonic() - started:.0f} s: {counts}", flush=True)
    return int(failed)


if __name__ == "__main__":
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory(prefix="hf-xsent-attack-") as folder:  # killed processes leave their own here
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        code = main(sys.argv[1:])
    sys.exit(code)
