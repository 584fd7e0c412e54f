"""PPA in runs: one step of the queue a step of the optimizer, any number of processes, resumed and killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import answers_of
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from training_process import assert_survives_kills
from training_run import Run
from transformers import AutoTokenizer

from hf_xsent import MoCoAlignedBert
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import RecipeError
from hf_xsent.models import input_shuffling
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.tensors.packing import hash_sentences

Pairs = list[tuple[str, str]]
SCRIPT = Path(__file__).parents[2] / "trainer_scripts/run_pretrain.py"
MOCO, TLM = "momentum_contrast", "translation_language_modeling"
PPA: dict[str, Any] = {
    "method": "ppa",
    "objectives": {
        MOCO: {"weight": 1.0, "queue_size": 6, "momentum": 0.9, "projection": 8},
        TLM: {"weight": 1.0, "reset_positions": False},
    },
}


@pytest.fixture
def ppa(run: Run, encoder_folders: dict[str, Path]) -> Run:
    run.settings |= PPA | {"model": str(encoder_folders["bert-mlm"])}
    return run


def _objective(folder: Path) -> dict[str, Tensor]:
    return {name: weight for name, weight in saved_weights(folder).items() if name.startswith(f"objectives.{MOCO}.")}


# Steps


@pytest.mark.parametrize("accumulated", [1, 2])
def test_keys_enter_and_the_momentum_encoder_follows_once_a_step(
    ppa: Run, accumulated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    end_step = MoCoAlignedBert.end_step

    def counted(model: MoCoAlignedBert) -> None:
        calls.append(sum(len(keys) for keys, _ in model.objectives[MOCO]._waiting))
        end_step(model)

    monkeypatch.setattr(MoCoAlignedBert, "end_step", counted)
    sizes = {"gradient_accumulation_steps": accumulated, "per_device_train_batch_size": 4 // accumulated}
    ppa.start(f"--objectives.{MOCO}.queue_size=5", max_steps=3, save_strategy="no", eval_strategy="no", **sizes)
    assert calls == [4] * 3
    assert _objective(ppa.out)[f"objectives.{MOCO}.pointer"] == 12 % 5


def test_without_an_optimizer_in_between_halves_are_the_whole(ppa: Run) -> None:
    """Accumulated halves of a batch give its weights and its queue: pairs of one step are no negatives."""
    settings = {"save_strategy": "no", "eval_strategy": "no", "dropout": 0.0, "random_input_shuffling": False}
    settings |= {"objectives": {MOCO: PPA["objectives"][MOCO]}, "max_steps": 3}
    ppa.start(**settings)
    whole = saved_weights(ppa.out)
    ppa.start("--overwrite", per_device_train_batch_size=2, gradient_accumulation_steps=2, **settings)
    for name, weight in saved_weights(ppa.out).items():
        torch.testing.assert_close(weight, whole[name], atol=1e-4, rtol=1e-3, msg=name)


# Processes


def _coins(batch: dict[str, Tensor]) -> Tensor:
    """The same for a pair wherever it is."""
    return hash_sentences(batch["source_input_ids"], batch["source_attention_mask"]) % 2 == 0


def _steps(folder: str, batches: list[Pairs], accumulated: int, parallel: bool) -> list[float]:
    input_shuffling.sample_swaps = _coins
    torch.manual_seed(0)
    model = MoCoAlignedBert.from_backbone(
        folder, max_length=64, dropout=0.0, objectives={MOCO: {"queue_size": 21, "momentum": 0.5}}
    )
    model = model.double().train()
    collator, losses = PairCollator(AutoTokenizer.from_pretrained(folder), 64), []
    wrapped: Any = DistributedDataParallel(model, broadcast_buffers=False) if parallel else model
    optimizer = torch.optim.SGD((weight for weight in model.parameters() if weight.requires_grad), lr=0.05)
    for number, pairs in enumerate(batches, 1):
        batch = collator([{"source": one, "target": other, "language": "de"} for one, other in pairs])
        loss = wrapped(**batch).loss
        (loss / accumulated).backward()
        if number % accumulated == 0:
            optimizer.step()
            optimizer.zero_grad()
            model.end_step()
        if parallel:
            dist.all_reduce(loss.detach_())
            loss = loss / dist.get_world_size()
        losses.append(loss.item())
    momentum = model.objectives[MOCO]
    weights = [weight.abs().sum().item() for weight in momentum.key_encoder.parameters()]
    return [*losses, *momentum.queue.flatten().tolist(), float(momentum.pointer), *weights]


def _own_steps(rank: int, folder: str, batches: list[list[Pairs]], accumulated: int) -> list[float]:
    return _steps(folder, [parts[rank] for parts in batches], accumulated, parallel=True)


@pytest.mark.parametrize(("world", "accumulated"), [(2, 1), (4, 1), (2, 2)])
def test_losses_queue_and_momentum_weights_are_those_of_one_process(
    encoder_folders: dict[str, Path], pairs: Pairs, world: int, accumulated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches with uneven parts and a queue that no batch divides; every process has the whole queue, in one order."""
    monkeypatch.setattr(input_shuffling, "sample_swaps", _coins)
    folder = str(encoder_folders["bert"])
    batches = [pairs, pairs[4:], pairs[:13], pairs[2:]]
    bounds = [[0, *(len(some) * number // world + 1 for number in range(1, world)), len(some)] for some in batches]
    parts = [
        [some[a:b] for a, b in zip(cuts, cuts[1:], strict=False)] for some, cuts in zip(batches, bounds, strict=True)
    ]
    expected = torch.tensor(_steps(folder, batches, accumulated, parallel=False), dtype=torch.float64)
    for answer in answers_of(world, _own_steps, folder, parts, accumulated):
        torch.testing.assert_close(torch.tensor(answer, dtype=torch.float64), expected, atol=1e-9, rtol=1e-9)


# Interruptions


@pytest.mark.parametrize("settings", [{}, {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}])
def test_a_resumed_run_ends_bit_by_bit_as_the_whole_one(ppa: Run, settings: dict[str, int]) -> None:
    """Coins, masks, queue, pointer and momentum weights go on where they were."""
    ppa.assert_goes_on_exactly(**settings)


def test_a_killed_run_resumes_exactly(ppa: Run) -> None:
    assert_survives_kills(ppa)


def test_the_best_checkpoint_brings_its_own_queue(ppa: Run) -> None:
    trainer = ppa.start(learning_rate="0.3", max_steps=6)
    best = Path(str(trainer.state.best_model_checkpoint))
    for name, value in _objective(best).items():
        assert torch.equal(value, _objective(ppa.out)[name]), name


# What is refused at start


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"pairs_per_chunk": 2}, "momentum contrast takes its negatives from a queue.*gradient_accumulation_steps"),
        ({"lora_rank": 2}, "momentum_contrast does not support the setting lora_rank"),
    ],
)
def test_what_does_not_go_with_a_queue_is_refused_before_anything_is_read(
    ppa: Run, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(RecipeError, match=told):
        ppa.start(**changes)
    assert not ppa.out.exists()
