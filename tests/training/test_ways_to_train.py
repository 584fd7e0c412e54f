"""Matryoshka widths, distillation, adapters and distinct batches, from recipe to folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from training_run import Pairs, Run
from transformers import AutoModel, AutoModelForPreTraining

from hf_xsent import SentenceEmbedder
from hf_xsent.cli import main
from hf_xsent.errors import RecipeError
from hf_xsent.models.loading import load_config
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.training.pretrain import pretrain

STEPS = ("max_steps", "eval_steps", "save_steps")
DAP = {"translation_ranking": 1, "representation_translation": 0.8}


def test_vectors_of_several_widths_are_ranked(run: Run) -> None:
    run.start(objectives={"matryoshka": {"dims": [32, 8]}})
    embedder = SentenceEmbedder.from_pretrained(str(run.out), device="cpu", dim=8)
    assert embedder.model.config.objectives["matryoshka"].dims == [32, 8]
    assert embedder.encode(["Wo ist der Bahnhof?"]).shape == (1, 8)


@pytest.mark.parametrize("settings", [{}, {"pairs_per_chunk": 2}])
def test_a_student_comes_nearer_to_its_teacher_who_leaves_no_trace(
    run: Run, encoder_folders: dict[str, Path], pairs: Pairs, settings: dict[str, Any]
) -> None:
    folder = encoder_folders["xlm-roberta"]  # another tokenizer than the student's
    objectives, steps = {"distillation": {"teacher": str(folder)}}, dict.fromkeys(STEPS, 30)
    run.start(objectives=objectives, pooling="mean", max_length=64, **steps, **settings)
    teacher, student, start = (
        SentenceEmbedder.from_pretrained(str(one), pooling="mean", device="cpu")
        for one in (folder, run.out, run.settings["model"])
    )
    wanted = torch.tensor(teacher.encode([target for _, target in pairs]))
    for side in range(2):
        before, after = (
            torch.cosine_similarity(torch.tensor(one.encode([pair[side] for pair in pairs])), wanted).mean()
            for one in (start, student)
        )
        assert after > before + 0.1
    names = saved_weights(run.out / "checkpoint-30").keys()
    assert all(name.startswith("encoder.") for name in names)
    assert "teacher" not in (run.out / "config.json").read_text()
    assert pretrain.parse([str(run.out / "recipe.yaml")]).config.objectives["distillation"].teacher == str(folder)


def test_distillation_resumes_exactly(run: Run) -> None:
    objectives = {"distillation": {"teacher": run.settings["model"]}, "translation_ranking": 1}
    run.assert_goes_on_exactly(objectives=objectives, pairs_per_chunk=2)


@pytest.mark.parametrize("settings", [{}, {"pairs_per_chunk": 2}, {"frozen_layers": 1, "share_of_start": 0.5}])
def test_adapters_end_in_plain_weights(run: Run, settings: dict[str, Any]) -> None:
    run.start(lora_rank=2, **settings)
    start = load_file(Path(run.settings["model"]) / "model.safetensors")
    final = saved_weights(run.out)
    checkpoint = saved_weights(run.out / "checkpoint-6")
    first = settings.get("frozen_layers", 0)
    places = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    places += ("intermediate.dense", "output.dense")
    adapted = {f"encoder.layer.{n}.{place}.weight" for n in range(first, 3) for place in places}
    for name, weight in final.items():
        began = start[name.removeprefix("encoder.")]
        assert torch.equal(weight, began) != (name.removeprefix("encoder.") in adapted), name
        if "self.query.weight" in name:
            assert torch.equal(checkpoint[name.replace(".weight", ".base_layer.weight")], began)
    assert not any("lora" in name for name in final) and any("lora" in name for name in checkpoint)
    assert AutoModel.from_pretrained(run.out).config.lora_rank is None
    opened = AutoModelForPreTraining.from_pretrained(run.out / "checkpoint-6")
    assert opened.config.lora_rank == 2  # a checkpoint opens with its adapters


def test_adapters_resume_exactly(run: Run) -> None:
    run.assert_goes_on_exactly(objectives=DAP, lora_rank=2, dropout=0.1)


def test_a_student_of_fewer_layers_learns_from_its_teacher_with_a_trimmed_vocabulary(
    run: Run, encoder_folders: dict[str, Path], pairs: Pairs
) -> None:
    teacher, trimmed = run.settings["model"], run.folder / "trimmed"
    assert main(["trim-vocab", teacher, "-o", str(trimmed), "--data", *run.settings["data"]]) == 0
    objectives = {"distillation": {"teacher": teacher, "weight": 10}, "translation_ranking": 1}
    settings = {"model": str(trimmed), "encoder_layers": 2, "share_of_start": 0.1, "pooling": "mean"}
    run.start(objectives=objectives, **settings, **dict.fromkeys(STEPS, 30))
    student = SentenceEmbedder.from_pretrained(str(run.out), device="cpu")
    assert len(student.model.backbone.layers) == 2
    assert student.model.config.encoder_config.vocab_size < load_config(teacher).vocab_size
    wanted = torch.tensor(SentenceEmbedder.from_pretrained(teacher, "mean", device="cpu").encode([y for _, y in pairs]))
    began = SentenceEmbedder(
        SentenceEncoderForPreTraining.from_backbone(str(trimmed), encoder_layers=2, pooling="mean"), student.tokenizer
    )
    before, after = (
        torch.cosine_similarity(torch.tensor(one.encode([y for _, y in pairs])), wanted).mean()
        for one in (began, student)
    )
    assert after > before
    run.assert_goes_on_exactly(objectives=objectives, **settings)
    assert pretrain.parse([str(run.out / "recipe.yaml")]).config.encoder_layers == 2


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"encoder_layers": 4}, "encoder_layers 4 does not fit: this encoder has 3 layers"),
        ({"encoder_layers": 2, "frozen_layers": 3}, "frozen_layers 3 does not fit: this encoder has 2 layers"),
        (
            {"encoder_layers": 2, "method": "dual-pivot", "objectives": {"triplet_ranking": 1}},
            "dual pivot trains only a mix of layers and a linear map: remove encoder_layers",
        ),
    ],
)
def test_layers_that_a_student_cannot_have_are_refused(run: Run, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        run.start(**settings)
