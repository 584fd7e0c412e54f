"""What is frozen stays, bit by bit, keeps no activations, and the rest learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from hf_xsent import AlignmentTrainer, AlignmentTrainingArguments, XlmrWithRTLHead
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import RecipeError
from hf_xsent.tensors.packing import pack

Pairs = list[tuple[str, str]]


def _trainer(folder: Path, out: Path, **arguments: Any) -> AlignmentTrainer:
    torch.manual_seed(0)
    model = XlmrWithRTLHead.from_backbone(str(folder), max_length=64, objectives={"translation_ranking": 1.0})
    defaults: dict[str, Any] = {"output_dir": str(out), "use_cpu": True, "report_to": "none"}
    chosen = AlignmentTrainingArguments(**defaults | arguments)
    return AlignmentTrainer(model, chosen, processing_class=AutoTokenizer.from_pretrained(folder))


def _batch(folder: Path, pairs: Pairs) -> dict[str, torch.Tensor]:
    collator = PairCollator(AutoTokenizer.from_pretrained(folder), 64)
    return collator([{"source": source, "target": target, "language": "de"} for source, target in pairs])


def _moved(trainer: AlignmentTrainer, batch: dict[str, torch.Tensor]) -> set[str]:
    """The names of the weights that a step of training changes."""
    model = trainer.model
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = 1
    trainer.training_step(model, batch)
    trainer.optimizer.step()
    return {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}


@pytest.mark.parametrize("frozen", [1, 2])
def test_the_lowest_layers_and_the_embeddings_stay(
    tiny_encoders: Path, tmp_path: Path, pairs: Pairs, frozen: int
) -> None:
    trainer = _trainer(tiny_encoders, tmp_path, frozen_layers=frozen, learning_rate=1e-2)
    moved = _moved(trainer, _batch(tiny_encoders, pairs))
    layers = trainer.model.backbone.layers
    still = {*trainer.model.encoder.embeddings.parameters()}.union(*(set(one.parameters()) for one in layers[:frozen]))
    names = {name: weight for name, weight in trainer.model.named_parameters()}
    assert not still & {names[name] for name in moved}
    assert all(any(names[name] in set(one.parameters()) for name in moved) for one in layers[frozen:])


def test_frozen_layers_keep_no_activations(tiny_encoders: Path, tmp_path: Path, pairs: Pairs) -> None:
    trainer = _trainer(tiny_encoders, tmp_path, frozen_layers=2)
    batch = _batch(tiny_encoders, pairs)
    packed = pack([batch["source_input_ids"]], [batch["source_attention_mask"]])
    states = list(trainer.model.train().backbone.hidden_states(packed))
    assert [one.requires_grad for one in states] == [False, False, False, True]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_above_are_those_of_the_whole_model(
    tiny_encoders: Path, tmp_path: Path, pairs: Pairs, checkpointing: bool
) -> None:
    gradients = []
    for frozen in (0, 2):
        trainer = _trainer(tiny_encoders, tmp_path, frozen_layers=frozen)
        if checkpointing:
            trainer.model.gradient_checkpointing_enable()
        torch.manual_seed(1)
        trainer.model.train()(**_batch(tiny_encoders, pairs)).loss.backward()
        last = trainer.model.backbone.layers[2].named_parameters()
        gradients.append({name: weight.grad for name, weight in last if weight.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() != set()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=name)


def test_a_model_with_nothing_to_train_is_refused(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="^all weights are frozen: lower frozen_layers, or unfreeze some by"):
        _trainer(encoder_folders["bert"], tmp_path, frozen_layers=3)
    trainer = _trainer(encoder_folders["bert"], tmp_path)
    trainer.model.requires_grad_(False)
    with pytest.raises(RecipeError, match="^all weights are frozen"):
        AlignmentTrainer(trainer.model, trainer.args)
    with pytest.raises(RecipeError, match="^frozen_layers 4 does not fit: this encoder has 3 layers$"):
        _trainer(encoder_folders["bert"], tmp_path, frozen_layers=4)


def test_frozen_layers_go_with_frozen_words(encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs) -> None:
    folder = encoder_folders["bert"]
    trainer = _trainer(folder, tmp_path, frozen_layers=1, frozen_word_embeddings=True, learning_rate=1e-2)
    assert all(name.startswith(("encoder.encoder.layer.1.", "encoder.encoder.layer.2.")) for name in
               _moved(trainer, _batch(folder, pairs)))  # fmt: skip


def test_each_trainer_of_a_model_freezes_its_own_layers(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    model = XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"]), objectives={"translation_ranking": 1.0})
    defaults: dict[str, Any] = {"max_steps": 2, "learning_rate": 1e-2, "use_cpu": True, "save_strategy": "no"}
    trainers = [
        AlignmentTrainer(
            model, AlignmentTrainingArguments(str(tmp_path), frozen_layers=layers, **defaults), {"de": pairs}
        )
        for layers in (2, 0)
    ]
    for trainer, stays in zip(trainers, (True, False), strict=True):
        weight = model.backbone.layers[1].output.dense.weight
        before = weight.detach().clone()
        trainer.train()
        assert torch.equal(weight, before) is stays


def test_another_trainer_trains_what_the_first_one_froze(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = encoder_folders["bert"]
    first = _trainer(folder, tmp_path, frozen_layers=2, frozen_word_embeddings=True)
    model: Any = first.model
    model.backbone.layers[2].output.dense.bias.requires_grad_(False)  # by the user
    arguments = AlignmentTrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    AlignmentTrainer(model, arguments, processing_class=AutoTokenizer.from_pretrained(folder))
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    assert frozen == ["encoder.encoder.layer.2.output.dense.bias"]
