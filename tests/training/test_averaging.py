"""Averages of weights: equal to a slow computation, over processes too, and exact after an interruption."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from processes import answers_of
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from training_run import Pairs, Run

from hf_xsent.errors import OutputError
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.training import trainer as trainer_module
from hf_xsent.training.averaging import AVERAGE_FILE, MovingAverage
from hf_xsent.training.trainer import AlignmentTrainer

EVERY_STEP: dict[str, Any] = {"eval_steps": 1, "save_steps": 1, "save_total_limit": 20}
NO_BEST: dict[str, Any] = {"load_best_model_at_end": False}


def _weights(folder: Path) -> dict[str, Tensor]:
    return saved_weights(folder)


def _started(run: Run) -> dict[str, Tensor]:
    return _weights(Path(run.settings["model"]))


def _slow_averages(run: Run, decay: float) -> list[dict[str, Tensor]]:
    """The average after each step, from the weights in its checkpoint."""
    averages = [{name: weight.double() for name, weight in _started(run).items()}]
    for step in range(6):
        weights, d = _weights(run.out / f"checkpoint-{step + 1}"), min(decay, (1 + step) / (10 + step))
        averages.append({name: d * averages[-1][name] + (1 - d) * weights[name].double() for name in weights})
    return averages[1:]


def _assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, weight in found.items():
        torch.testing.assert_close(weight.double(), expected[name].double(), atol=1e-6, rtol=0, msg=name)


def test_the_saved_model_is_the_moving_average_of_the_weights_after_each_step(run: Run) -> None:
    run.start(ema_decay=0.3, **EVERY_STEP, **NO_BEST)
    averages = _slow_averages(run, 0.3)
    _assert_close(_weights(run.out), averages[-1])
    for step, expected in enumerate(averages, start=1):
        saved = load_file(run.out / f"checkpoint-{step}" / AVERAGE_FILE)
        _assert_close({name: saved.get(name, expected[name]) for name in expected}, expected)
    last = _weights(run.out / "checkpoint-6")
    assert max((last[name] - weight).abs().max() for name, weight in averages[-1].items()) > 1e-4


def test_the_best_average_is_loaded_at_the_end(run: Run) -> None:
    trainer = run.start(ema_decay=0.9, **EVERY_STEP)
    best = trainer.state.best_global_step
    _assert_close(_weights(run.out), _slow_averages(run, 0.9)[best - 1])


def test_dev_measurements_use_the_average_and_training_continues_from_the_weights(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run.start(**EVERY_STEP, **NO_BEST)
    expected = _weights(plain.args.output_dir / Path("checkpoint-6"))
    measured: list[dict[str, Tensor]] = []
    measure = trainer_module.retrieval_by_language

    def recorded(embedder: Any, *args: Any, **kwargs: Any) -> Any:
        measured.append({name: weight.clone() for name, weight in embedder.model.state_dict().items()})
        return measure(embedder, *args, **kwargs)

    monkeypatch.setattr(trainer_module, "retrieval_by_language", recorded)
    run.start("--overwrite", ema_decay=0.5, **EVERY_STEP, **NO_BEST)
    for found, average in zip(measured[1:], _slow_averages(run, 0.5), strict=True):  # the first: before training
        _assert_close({name: found[name] for name in average}, average)
    for name, weight in _weights(run.out / "checkpoint-6").items():
        assert torch.equal(weight, expected[name]), name


def test_an_interrupted_run_ends_with_the_same_average(run: Run) -> None:
    run.assert_goes_on_exactly(ema_decay=0.9)


def test_a_checkpoint_without_an_average_is_refused(run: Run) -> None:
    run.start()
    shutil.rmtree(run.out / "checkpoint-6")
    (run.out / "model.safetensors").unlink()
    with pytest.raises(OutputError, match="checkpoint-3 holds no averaged weights.*drop (--)?ema_decay"):
        run.start("--resume_with_changes", ema_decay=0.9)


def test_a_share_of_the_start_is_added_to_the_average(run: Run) -> None:
    settings = {"ema_decay": 0.3}
    run.start(**settings, **EVERY_STEP, **NO_BEST)
    averaged = _weights(run.out)
    run.start("--overwrite", share_of_start=0.25, **settings, **EVERY_STEP, **NO_BEST)
    start = _started(run)
    _assert_close(_weights(run.out), {name: 0.75 * one + 0.25 * start[name] for name, one in averaged.items()})


def _average_after_steps(rank: int, world: int, folder: str, pairs: Pairs) -> dict[str, Tensor]:
    """Three steps of SGD on this process's part of the pairs."""
    from transformers import AutoTokenizer

    from hf_xsent.data.sampling.collators import PairCollator

    torch.manual_seed(0)
    model = SentenceEncoderForPreTraining.from_backbone(folder, max_length=64, dropout=0.0).double()
    parallel = DistributedDataParallel(model, broadcast_buffers=False) if world > 1 else model
    collate = PairCollator(AutoTokenizer.from_pretrained(folder), 64)
    own = [{"source": source, "target": target, "language": "de"} for source, target in pairs[rank::world]]
    optimizer, average = torch.optim.SGD(model.parameters(), lr=0.01), MovingAverage(0.9)
    average.on_train_begin(None, None, None, model=model)
    for step in range(3):
        optimizer.zero_grad()
        parallel(**collate(own)).loss.backward()
        optimizer.step()
        average.on_optimizer_step(None, SimpleNamespace(global_step=step), None, model=model)
    return average.average


def test_processes_have_the_average_of_one_process(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    folder = str(encoder_folders["bert"])
    expected = _average_after_steps(0, 1, folder, pairs)
    for found in answers_of(2, _average_after_steps, 2, folder, pairs):
        for name, weight in found.items():
            torch.testing.assert_close(weight, expected[name], atol=1e-9, rtol=0, msg=name)


def test_the_trainer_measures_its_model_before_and_after_training_without_an_average(run: Run) -> None:
    trainer: AlignmentTrainer = run.start(ema_decay=0.9)
    assert trainer.evaluate()["eval_accuracy"] >= 0
