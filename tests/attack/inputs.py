"""Make texts and files at random, damage them, and check how a reader answers."""

from __future__ import annotations

import bz2
import gzip
import lzma
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow

from hf_xsent.errors import HfXsentError

MOST_SECONDS = 30.0  # of one input
MOST_MEMORY = 1 << 30  # bytes that one input may add to the peak
_TEXT = (
    "Hund Katze läuft schläft Häuser Straße größer dog cat runs sleeps house street bigger собака кошка бежит 犬 走る "
    "猫が كلب يجري कुत्ता दौड़ता d'eau 3.14 1,000 § 50% <b> &amp; {} %s $HOME \\n “ja” 'no' \"so\" =SUM(A1) +1 @x #4 🐕 "
    "e\u0301 \u200fعربي a\u2028b c\u2029d e\u0085f g\u00a0h x\ufeffy msgid null NaN true [1] {a} <!-- ``` | ||| 0-0"
)
WORDS = _TEXT.split(" ")
TOKENS = (
    *(b"\0", b"\r", b"\n", b"\r\n", b"\t", b"\xff", b"\xfe\xff", b"\xc3", b"\xed\xa0\x80", b"\xe2\x80\xa8", b'"', b"'"),
    *(b"\\", b"\\u", b"\\ud800", b"\\u0000", b"[", b"{", b"]", b"<", b">", b"&", b"&#0;", b"<tu>", b"<!--", b"]]>"),
    *(b"msgid", b"msgstr[1]", b"#,", b":", b"- ", b"&a ", b"*a", b"!!", b"? ", b"<<: ", b"|", b"\x1f\x8b", b"PAR1"),
    *(b"9" * 5000, b"[" * 100_000, b'{"a":' * 3000, b"x" * 300_000, b"(" * 2000, b"1-1 " * 5000),
)


def text(rng: random.Random) -> str:
    """Return a sentence without outer whitespace and with a letter, as every format can hold it."""
    return "Wort " + " ".join(rng.choices(WORDS, k=rng.randint(1, 8)))


def pairs(rng: random.Random) -> list[tuple[str, str]]:
    """Return some sentence pairs."""
    return [(text(rng), text(rng)) for _ in range(rng.choice((1, 2, 3, 5, 30)))]


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Damage a file in one to four places."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        place, end = sorted(rng.randint(0, len(data)) for _ in range(2))
        kind = rng.randrange(8)
        if kind == 0:
            data = data[:place]
        elif kind == 1:
            data = data[:place] + data[end:]
        elif kind == 2:
            data = data[:end] + data[place:]
        elif kind == 3:
            data = data[:place] + rng.randbytes(rng.choice((1, 4, 64))) + data[place:]
        elif kind == 4:
            data = data[:place] + rng.choice(TOKENS) + data[place:]
        elif kind == 5:
            data = data.replace(*rng.sample((b"\n", b"\t", b"\r", b'"', b":", b"<", b" ", b""), 2), rng.choice((1, -1)))
        else:
            flipped = bytearray(data)
            for _ in range(rng.choice((1, 3, 30)) if data else 0):
                flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            data = bytes(flipped)
        data = data[: 1 << 22]
    return data


def compressed(rng: random.Random, data: bytes) -> tuple[str, bytes]:
    """Return a suffix and the file compressed accordingly; most files stay plain."""
    kinds: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
    kinds[".zst"] = lambda data: bytes(pyarrow.compress(data, codec="zstd", asbytes=True))
    suffix = rng.choice(["", "", "", *kinds])
    return (suffix, kinds[suffix](data)) if suffix else ("", data)


class Trial:
    """One input: a random generator, a folder for its files, and the call that is checked."""

    def __init__(self, name: str, seed: int, number: int, root: Path) -> None:
        self.name = f"input {number} of seed {seed}, {name}"
        self.rng = random.Random(f"{seed} {number}")
        self.folder = root / str(number)
        self.folder.mkdir()

    def write(self, name: str, data: bytes | str) -> Path:
        """Write a file of the input."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def answer(self, call: Callable[[], Any], check: Callable[[Any], object] | None = None) -> str:
        """Call a reader: return ``read`` if its result passes the check, or the name of our error."""
        started, before = time.process_time(), peak_memory()
        try:
            with time_limit():
                result = call()
        except HfXsentError as error:
            self.require(not (problem := message_problem(str(error))), f"{problem}: {str(error)!r}")
            outcome = type(error).__name__
        except Exception as error:
            raise self.finding(f"{type(error).__name__}: {str(error)[:300]}") from error
        else:
            if check is not None:
                check(result)
            outcome = "read"
        seconds, memory = time.process_time() - started, peak_memory() - before
        self.require(seconds < MOST_SECONDS, f"it took {seconds:.0f} seconds")
        self.require(memory < MOST_MEMORY, f"it took {memory >> 20} MiB")
        return outcome

    def require(self, holds: object, problem: str) -> None:
        """Raise an AssertionError with the input if something does not hold."""
        if not holds:
            raise self.finding(problem)

    def finding(self, problem: str) -> AssertionError:
        """Keep the files of the input, and describe it."""
        kept = Path(tempfile.mkdtemp(prefix="hf-xsent-attack-"))
        files = {}
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                files[path.name] = path.read_bytes()[:300]
                shutil.copyfile(path, kept / path.relative_to(self.folder).as_posix().replace("/", "--"))
        return AssertionError(f"{self.name}: {problem}\nfiles in {kept}: {files}")


def message_problem(message: str) -> str:
    """Return what is wrong with an error message, empty if nothing is."""
    if not message.strip():
        return "the message is empty"
    if any(ord(one) < 32 or one in "\x7f\x85\u2028\u2029" for one in message):
        return "the message has line ends or control characters"
    return ""


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise a TimeoutError after twice the most seconds, in the main thread of systems with alarms."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError("no answer")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(int(4 * MOST_SECONDS))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def peak_memory() -> int:
    """Return the peak memory of this process in bytes; 0 where it is unknown."""
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def run_trials(targets: Mapping[str, tuple[float, Callable[[Trial], str]]], seed: int, count: int) -> dict[str, int]:
    """Attack targets, chosen by their weights, with ``count`` inputs; count the answers by target."""
    answers: Counter[str] = Counter()
    names, weights = list(targets), [weight for weight, _ in targets.values()]
    with tempfile.TemporaryDirectory() as root:
        for number in range(count):
            name = random.Random(f"target {seed} {number}").choices(names, weights)[0]
            trial = Trial(name, seed, number, Path(root))
            answers[f"{name}: {targets[name][1](trial)}"] += 1
            shutil.rmtree(trial.folder)
    return dict(sorted(answers.items()))
