"""On a CUDA device, everything gives what it gives on the CPU; ``pytest -m gpu`` runs these tests alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from training_run import Run
from transformers import AutoTokenizer

from hf_xsent import SentenceEmbedder, XlmrWithRTLHead, mine_bitext
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.mining.neighbours import nearest_both_ways
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.tensors.attention import packed_attention
from hf_xsent.tensors.gathering import _GatherRows
from hf_xsent.tensors.variable_length import fits_one_kernel
from hf_xsent.training.large_batch import RandomState

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
Pairs = list[tuple[str, str]]
RUNS = [(2, 1), (1, 3), (2, 6), (3, 31)]
BOUNDARIES = [0, 1, 2, 5, 11, 17, 48, 79, 110]


@pytest.fixture
def run(tmp_path: Path, encoder_folders: dict[str, Path], pairs: Pairs) -> Run:
    made = Run(tmp_path, encoder_folders["bert"], pairs)
    made.settings["use_cpu"] = False
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("window", [None, 2, 4])
@pytest.mark.parametrize("first_tokens_only", [False, True])
def test_attention_and_its_gradients_equal_the_cpus(
    dtype: torch.dtype, window: int | None, first_tokens_only: bool
) -> None:
    q, k, v = torch.randn(3, BOUNDARIES[-1], 2, 64).to(dtype)
    if first_tokens_only:
        q = q[BOUNDARIES[:-1]]
    answers = []
    for device, wide in (("cpu", torch.float64), ("cuda", dtype)):
        inputs = [states.to(device, wide).requires_grad_() for states in (q, k, v)]
        boundaries = torch.tensor(BOUNDARIES, device=device, dtype=torch.int32)
        context = packed_attention(*inputs, RUNS, 0.125, 0.0, window, boundaries)
        context.square().sum().backward()
        answers.append([context, *(states.grad for states in inputs)])
    tolerance = 1e-4 if dtype is torch.float32 else 8e-2
    for plain, fast in zip(*answers, strict=True):
        torch.testing.assert_close(fast.double().cpu(), plain, rtol=tolerance, atol=tolerance)


def test_half_precision_without_dropout_takes_one_kernel_where_the_gpu_has_it() -> None:
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("flash attention needs compute capability 8.0")
    pytest.importorskip("torch.nn.attention.varlen")
    half = torch.zeros(4, 2, 64, device="cuda", dtype=torch.bfloat16)
    assert fits_one_kernel(half, half, 0.0, None) and fits_one_kernel(half, half, 0.0, 3)
    assert fits_one_kernel(half[:2], half, 0.0, None) and not fits_one_kernel(half[:2], half, 0.0, 3)
    assert not fits_one_kernel(half, half, 0.1, None)
    assert not fits_one_kernel(half.float(), half.float(), 0.0, None)


def test_losses_and_gradients_equal_the_cpus(tiny_encoders: Path, pairs: Pairs) -> None:
    torch.manual_seed(0)
    model = XlmrWithRTLHead.from_backbone(str(tiny_encoders), pooling="cls", dropout=0.0, max_length=64)
    examples = [{"source": source, "target": target, "language": "de"} for source, target in pairs]
    batch = PairCollator(AutoTokenizer.from_pretrained(tiny_encoders), 64)(examples)
    answers = []
    for device in ("cpu", "cuda"):
        model.zero_grad()  # first: moving a model also moves its gradients, which the CPU's answers hold
        model.to(device)
        loss = model(**{name: tensor.to(device) for name, tensor in batch.items()}).loss
        loss.backward()
        gradients = {name: weight.grad.cpu() for name, weight in model.named_parameters() if weight.grad is not None}
        answers.append({"loss": loss.detach().cpu(), **gradients})
    for name in answers[0]:
        torch.testing.assert_close(answers[1][name], answers[0][name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "flags",
    [
        {"bf16": True},
        {"fp16": True},
        {"bf16": True, "dropout": 0.0},
        {"fp16": True, "pairs_per_chunk": 2, "pooling": "cls"},
        {"bf16": True, "gradient_checkpointing": True},
        {"bf16": True, "dataloader_num_workers": 1},
    ],
    ids=lambda flags: " ".join(flags),
)
def test_mixed_precision_trains(run: Run, flags: dict[str, Any]) -> None:
    trainer = run.start(objectives={"translation_ranking": 1, "representation_translation": 0.8}, **flags)
    assert trainer.args.device.type == "cuda" and trainer.state.global_step == 6
    saved = saved_weights(run.out)
    assert all(weight.isfinite().all() for weight in saved.values())


@pytest.mark.parametrize("changed", [{"pairs_per_chunk": 2}, {"gradient_checkpointing": True}])
def test_recomputing_trains_to_the_same_weights(run: Run, changed: dict[str, Any]) -> None:
    folders = []
    for number, more in enumerate(({}, changed)):
        out = run.folder / f"run-{number}"
        run.start(**{"dropout": 0.0, "learning_rate": "1e-4", "output_dir": str(out), "dev_pairs": 0, **more})
        folders.append(saved_weights(out))
    for name, weight in folders[0].items():
        torch.testing.assert_close(folders[1][name], weight, rtol=1e-2, atol=1e-3)


def test_random_states_come_back() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    state = RandomState(device)
    first = torch.rand(5, device=device)
    torch.rand(3, device=device)
    state.restore()
    assert torch.equal(torch.rand(5, device=device), first)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_gathering_keeps_rows_and_gradients() -> None:
    rows = torch.randn(3, 4, device="cuda", requires_grad=True)
    gathered: Tensor = _GatherRows.apply(rows, [3])
    (gathered * 2).sum().backward()
    assert torch.equal(gathered, rows) and torch.equal(rows.grad, torch.full_like(rows, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mining_finds_the_cpus_pairs(dtype: torch.dtype) -> None:
    source = torch.randn(3000, 64)
    target = torch.cat((source[:1500] + 0.4 * torch.randn(1500, 64), torch.randn(1000, 64)))
    here = mine_bitext(source.numpy(), target.numpy(), memory_mib=8)
    there = mine_bitext(source.numpy(), target.numpy(), memory_mib=8, device="cuda", dtype=dtype)
    assert set(zip(here.source, here.target, strict=True)) == set(zip(there.source, there.target, strict=True))
    cosines = [nearest_both_ways(source, target, device=device)[0].cosines for device in ("cpu", "cuda")]
    torch.testing.assert_close(*cosines, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 5e-2)])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_embeddings_equal_the_cpus(
    tiny_encoders: Path, sentences: list[str], dtype: torch.dtype, tolerance: float, pooling: str
) -> None:
    here = SentenceEmbedder.from_pretrained(str(tiny_encoders), pooling, device="cpu").encode(sentences)
    there = SentenceEmbedder.from_pretrained(str(tiny_encoders), pooling, precision=dtype, device="cuda").encode(
        sentences
    )
    lengths = torch.from_numpy(here).norm(dim=1, keepdim=True)
    torch.testing.assert_close(
        torch.from_numpy(there) / lengths, torch.from_numpy(here) / lengths, rtol=0, atol=tolerance
    )
