"""Define what all parts share: sizes, the encoder with random weights, sentences, the clock, and how a part reports."""

from __future__ import annotations

import json
import random
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class Skipped(Exception):
    """Packages or hardware for a part are missing; the message names them."""


@dataclass(frozen=True)
class Setting:
    """The machine, the sizes and the time of a part; ``quick`` has toy sizes."""

    folder: str  # of the encoder and of temporary files
    device: str
    quick: bool
    seconds: float  # until the part is ended
    result: str  # the file of its rows
    started: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Return the seconds that are left."""
        return self.seconds - (time.monotonic() - self.started)

    @property
    def encoder(self) -> str:
        """Return the folder of the encoder."""
        return f"{self.folder}/encoder"

    @property
    def batch(self) -> int:
        """Return the pairs of a batch."""
        return 8 if self.quick else 1024

    @property
    def shape(self) -> dict[str, int]:
        """Return the encoder's shape: XLM-R base, or a toy."""
        if self.quick:
            return dict(hidden=32, layers=2, heads=2, inner=64, vocabulary=500)
        return dict(hidden=768, layers=12, heads=12, inner=3072, vocabulary=250_002)

    def report(self, **row: Any) -> None:
        """Add a row to the results at once, so that a later failure retains it."""
        with open(self.result, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def need_cuda(self, what: str) -> None:
        """Skip the part without a CUDA device."""
        if not self.device.startswith("cuda"):
            raise Skipped(f"{what} needs a CUDA device")


def make_encoder(setting: Setting) -> None:
    """Write an XLM-R with random weights, and a tokenizer of as many words as it has word pieces."""
    import torch
    from tokenizers import Tokenizer, pre_tokenizers, processors
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, XLMRobertaConfig, XLMRobertaModel

    shape = setting.shape
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    words = [*special, *(f"w{number}" for number in range(4, shape["vocabulary"] - 1)), "<mask>"]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>",
        cls_token="<s>", sep_token="</s>", mask_token="<mask>", model_max_length=512,
        model_input_names=["input_ids", "attention_mask"],
    ).save_pretrained(setting.encoder)  # fmt: skip
    torch.manual_seed(0)
    config = XLMRobertaConfig(
        vocab_size=shape["vocabulary"], hidden_size=shape["hidden"], num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"], intermediate_size=shape["inner"], max_position_embeddings=514,
        type_vocab_size=1, layer_norm_eps=1e-5,
    )  # fmt: skip
    XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(setting.encoder)


def sentences(setting: Setting, count: int, seed: int = 0, longest: bool = False) -> list[str]:
    """Return sentences of 5 to 32 tokens, 18 on average, as real pairs have; with ``longest``, of 32 each."""
    generator = random.Random(seed)
    pieces = min(setting.shape["vocabulary"] - 1, 30_000)  # a language uses a part of the vocabulary
    lengths = (32 if longest else min(32, max(5, round(generator.gauss(17.8, 7)))) for _ in range(count))
    return [" ".join(f"w{generator.randrange(4, pieces)}" for _ in range(length - 2)) for length in lengths]


def operations(setting: Setting, lengths: list[int]) -> float:
    """Count the operations of an encoder's forward pass; a multiplication and an addition are two."""
    hidden, inner = setting.shape["hidden"], setting.shape["inner"]
    linear = 4 * hidden * hidden + 2 * hidden * inner
    return float(setting.shape["layers"] * sum(2 * length * (linear + 2 * length * hidden) for length in lengths))


def token_counts(texts: list[str]) -> list[int]:
    """Return the tokens of each sentence."""
    return [text.count(" ") + 3 for text in texts]


def peak_operations(setting: Setting, dtype: Any) -> float:
    """Measure the operations per second of a large matrix product, the peak that a program can reach."""
    import torch

    size = 256 if setting.quick else 8192
    block = torch.randn(size, size, device=setting.device).to(dtype)
    times = []
    for _ in range(8):
        started = synchronized(setting.device)
        torch.mm(block, block)
        times.append(synchronized(setting.device) - started)
    return float(2 * size**3 / min(times[2:]))


def synchronized(device: str) -> float:
    """Wait for the device and return the time."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter()


def peak_mib(device: str) -> int:
    """Return the peak memory: the GPU's tensors, or the process on a CPU."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() >> 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def repeated(setting: Setting, work: Callable[[], Any], most: int, share: float) -> Iterator[float]:
    """Yield the seconds of each call after a first one, at most ``most``, within a share of the time left."""
    work()
    until = time.monotonic() + setting.left * share
    for _ in range(most):
        started = synchronized(setting.device)
        work()
        yield synchronized(setting.device) - started
        if time.monotonic() > until:
            return
