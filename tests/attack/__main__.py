"""Attack the package with random inputs, kills and processes: ``python -m tests.attack --seed 1``.

Run it in the repository's root. It prints counts, and each finding with the seed that repeats it; the exit code is 1 if
there are findings. ``--inputs 10000 --kills 200`` takes about 15 minutes on two cores.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence

PARTS = {  # module: the share of its count
    "kills": ("kills", 1.0),
    "equality": ("kills", 0.25),
    "readers": ("inputs", 0.7),
    "configs": ("inputs", 0.3),
}


def main(arguments: Sequence[str]) -> int:
    """Run the parts one after the other; return 1 if one of them has findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="Repeat the attack with this seed. (default: random)")
    parser.add_argument("--inputs", type=int, default=10_000, help="Number of fuzzed files, recipes and studies.")
    parser.add_argument("--kills", type=int, default=200, help="Number of kills.")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="Run these parts only.")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 30) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    failed = False
    for part in given.parts:
        kind, share = PARTS[part]
        started = time.monotonic()
        if importlib.util.find_spec(f"{__package__}.{part}") is None:
            continue
        try:
            counts: object = importlib.import_module(f"{__package__}.{part}").attack(seed, _share(given, kind, share))
        except AssertionError as error:
            failed, counts = True, f"FINDINGS\n{error}"
        print(f"{part}, {time.monotonic() - started:.0f} s: {counts}", flush=True)
    return int(failed)


def _share(given: argparse.Namespace, kind: str, share: float) -> int:
    return max(1, round(getattr(given, kind) * share))


if __name__ == "__main__":
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory(prefix="hf-xsent-attack-") as folder:  # killed processes leave their own here
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        code = main(sys.argv[1:])
    sys.exit(code)
