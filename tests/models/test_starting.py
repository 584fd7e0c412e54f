"""A model starts from any encoder and embeds as the starting folder states, unless the user says otherwise."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from transformers import TrainerCallback, TrainingArguments

from hf_xsent import (
    AlignmentTrainer,
    AlignmentTrainingArguments,
    DapForSentenceEmbedding,
    MoCoAlignedBert,
    SentenceEmbedder,
    SentenceEncoderForPreTraining,
    WacseForPreTraining,
    XlmrWithRTLHead,
    export_sentence_transformer,
)
from hf_xsent.errors import ModelError, OutputError, RecipeError
from hf_xsent.models.dual_pivot import DualPivotForPreTraining
from hf_xsent.runs.run import Run
from hf_xsent.training.plan import Plan
from hf_xsent.training.recipe import build_recipe
from sentence_transformers import SentenceTransformer

RANKING = {"translation_ranking": 1.0}
PROMPTS = {"query": "the dog: ", "passage": "the cat: "}


@pytest.fixture
def stating(encoder_folders: dict[str, Path], tmp_path: Path) -> str:
    """A folder of sentence-transformers that pools by the maximum, normalizes, and has prompts."""
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    modules = [Transformer(str(encoder_folders["bert"])), Pooling(32, pooling_mode="max"), Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu", prompts=PROMPTS, default_prompt_name="query")
    model.max_seq_length = 11
    model.save_pretrained(str(tmp_path / "stating"))
    return str(tmp_path / "stating")


def _embedding(config: Any) -> tuple[Any, ...]:
    return config.pooling, config.normalize, config.prompts, config.default_prompt_name


@pytest.mark.parametrize("door", ["from_backbone", "from_pretrained"])
def test_a_plain_encoder_is_pooled_by_its_mean_and_a_papers_method_as_in_the_paper(
    encoder_folders: dict[str, Path], door: str
) -> None:
    folder = str(encoder_folders["bert"])
    assert _embedding(getattr(SentenceEncoderForPreTraining, door)(folder).config) == ("mean", False, None, None)
    for kind in (XlmrWithRTLHead, MoCoAlignedBert, WacseForPreTraining):
        assert getattr(kind, door)(folder, objectives=RANKING).config.pooling == "cls"


@pytest.mark.parametrize("door", ["from_backbone", "from_pretrained"])
def test_training_follows_what_the_folder_states(
    stating: str, sentences: list[str], door: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = getattr(SentenceEncoderForPreTraining, door)(stating, max_length=11)
    assert _embedding(model.config) == ("max", True, PROMPTS, "query")
    expected = SentenceTransformer(stating, device="cpu").encode(sentences)
    np.testing.assert_allclose(model.encode(sentences), expected, atol=1e-5)
    np.testing.assert_array_equal(model.encode_document(sentences), model.encode(sentences, prompt=PROMPTS["passage"]))
    np.testing.assert_allclose(SentenceEmbedder.from_pretrained(stating).encode(sentences), expected, atol=1e-5)
    assert not caplog.messages


def test_the_users_settings_come_first(stating: str, caplog: pytest.LogCaptureFixture) -> None:
    chosen = {"pooling": "cls", "normalize": False, "prompts": {}, "max_length": 20}
    model = SentenceEncoderForPreTraining.from_backbone(stating, **chosen)
    assert _embedding(model.config) == ("cls", False, {}, None) and not caplog.messages
    named = SentenceEncoderForPreTraining.from_backbone(stating, max_length=11, default_prompt_name="passage")
    assert named.config.default_prompt == "the cat: "
    with pytest.raises(RecipeError, match="^default_prompt_name 'queries' is not among the prompts: passage"):
        SentenceEncoderForPreTraining.from_backbone(stating, default_prompt_name="queries")


def test_a_method_that_pools_otherwise_than_the_start_warns(stating: str, caplog: pytest.LogCaptureFixture) -> None:
    model = XlmrWithRTLHead.from_backbone(stating, objectives=RANKING, max_length=11)
    assert model.config.pooling == "cls"
    expected = "the starting model embeds with other settings: pooling 'max', here 'cls'; state those to keep"
    assert caplog.messages == [expected]


def test_a_recipe_follows_the_start_too(stating: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "pairs.tsv").write_text("Der Hund.\tThe dog.\n", encoding="utf-8")
    data = {"de": str(tmp_path / "pairs.tsv")}
    settings = {"model": stating, "data": data, "output_dir": str(tmp_path / "out"), "dev_pairs": 0}
    config = Plan.of(build_recipe([settings | {"max_length": 11}])).recipe.config
    assert _embedding(config)[:2] == ("max", True) and config.default_prompt == "the dog: "
    assert config.recipe()["pooling"] == "max" and not caplog.messages
    with caplog.at_level(logging.WARNING):
        assert Plan.of(build_recipe([settings | {"method": "dap"}])).recipe.config.pooling == "cls"
    assert "max_length 11, here 128" in caplog.text and "pooling 'max', here 'cls'" in caplog.text


def test_a_folder_with_another_module_starts_from_its_encoder_alone(
    stating: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    model = SentenceTransformer(stating, device="cpu")
    model.append(Normalize())
    model.append(Dense(32, 32))
    model.save_pretrained(str(tmp_path / "dense"))
    started = SentenceEncoderForPreTraining.from_backbone(str(tmp_path / "dense"))
    assert started.config.pooling == "mean"
    assert "has a module Dense" in caplog.text and "training starts from its encoder alone" in caplog.text
    with pytest.raises(ModelError, match="has a module Dense: open it with sentence_transformers"):
        SentenceEncoderForPreTraining.from_pretrained(str(tmp_path / "dense"))
    with pytest.raises(ModelError, match=r"^this SentenceTransformer has a module Dense: train it with AlignmentLoss"):
        SentenceEncoderForPreTraining.from_sentence_transformer(model)


def test_a_sentence_transformer_that_does_not_pool_its_last_layer_is_not_trained_by_it(stating: str) -> None:
    from sentence_transformers.sentence_transformer.modules import WeightedLayerPooling

    model = SentenceTransformer(stating, device="cpu")
    model[0].auto_model.config.output_hidden_states = True
    mixed = SentenceTransformer(modules=[model[0], WeightedLayerPooling(32, 3, 0), model[1]], device="cpu")
    with pytest.raises(ModelError, match="does not pool the last layer: train it with AlignmentLoss"):
        SentenceEncoderForPreTraining.from_sentence_transformer(mixed)


def test_a_sentence_transformer_with_an_adapter_is_refused(stating: str) -> None:
    peft = pytest.importorskip("peft")
    model = SentenceTransformer(stating, device="cpu")
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query"], task_type="FEATURE_EXTRACTION"))
    with pytest.raises(RecipeError, match="has an adapter, which no checkpoint would hold: merge it"):
        SentenceEncoderForPreTraining.from_sentence_transformer(model)


@pytest.mark.parametrize("ours", [False, True])
def test_a_sentence_transformer_trains_in_place(
    encoder_folders: dict[str, Path], stating: str, tmp_path: Path, pairs: Any, sentences: list[str], ours: bool
) -> None:
    if ours:
        start = DapForSentenceEmbedding.from_backbone(str(encoder_folders["modernbert"]), pooling="mean")
        stating = str(export_sentence_transformer(start, tmp_path / "export", verify=False))
    model = SentenceTransformer(stating, device="cpu")
    before = model.encode(sentences)
    arguments = TrainingArguments(
        str(tmp_path / "run"), max_steps=2, per_device_train_batch_size=4, learning_rate=0.01, use_cpu=True,
        report_to="none", disable_tqdm=True, eval_strategy="no",
    )  # fmt: skip
    trainer = AlignmentTrainer(model, arguments, {"de": pairs})  # type: ignore[arg-type]
    np.testing.assert_allclose(trainer.model.encode(sentences), before, atol=1e-5)
    trainer.train()
    after = model.encode(sentences)
    assert np.abs(after - before).max() > 0.01
    for opened in (trainer.model, SentenceTransformer(str(tmp_path / "run"), device="cpu")):
        np.testing.assert_allclose(opened.encode(sentences), after, atol=1e-5)


def test_a_linear_layer_of_a_sentence_transformer_trains_in_place(stating: str, tmp_path: Path, pairs: Any) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense

    model = SentenceTransformer(stating, device="cpu")
    model[2] = Dense(32, 32)
    before = model[2].linear.weight.detach().clone()
    arguments = TrainingArguments(
        str(tmp_path / "run"), max_steps=2, per_device_train_batch_size=4, learning_rate=0.01, use_cpu=True,
        report_to="none",
    )  # fmt: skip
    AlignmentTrainer(model, arguments, {"de": pairs}).train()  # type: ignore[arg-type]
    assert (model[2].linear.weight - before).abs().max() > 1e-3
    saved = SentenceTransformer(str(tmp_path / "run"), device="cpu")
    np.testing.assert_allclose(model.encode(["a dog"]), saved.encode(["a dog"]), atol=1e-6)
    saved[2].linear.weight.data += 1.0  # as its own trainer would
    saved.save_pretrained(str(tmp_path / "further"), create_model_card=False)
    started = SentenceEncoderForPreTraining.from_backbone(str(tmp_path / "further"))
    np.testing.assert_allclose(started.encode(["a dog"]), saved.encode(["a dog"]), atol=1e-5)


@pytest.mark.parametrize("objective", ["interpolation", "distillation"])
def test_a_teacher_with_the_weights_of_the_model_does_not_train_with_it(
    stating: str, tmp_path: Path, pairs: Any, sentences: list[str], objective: str
) -> None:
    start = SentenceTransformer(stating, device="cpu")
    start[0].auto_model.embeddings.LayerNorm.weight.data.fill_(2.0)  # its weights are no longer those of the folder
    model = SentenceEncoderForPreTraining.from_sentence_transformer(start, objectives={objective: 1.0})
    arguments = TrainingArguments(
        str(tmp_path / "run"), max_steps=2, learning_rate=0.1, use_cpu=True, report_to="none", save_strategy="no"
    )  # fmt: skip
    for teachers in [{objective: start.encode}, *([None] if objective == "interpolation" else [])]:
        trainer = AlignmentTrainer(model, arguments, {"de": pairs}, teachers=teachers)  # type: ignore[arg-type]
        before = start.encode(sentences)
        trainer.train()
        assert np.abs(start.encode(sentences) - before).max() > 0.1
        teacher = trainer.teachers.by_objective[objective] or trainer.teachers.start
        np.testing.assert_allclose(teacher.encode(sentences), before, atol=1e-5)


class _Break(TrainerCallback):
    """End the third step by an error, once."""

    broken = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 2 and not self.broken:
            self.broken = True
            raise InterruptedError


@pytest.mark.parametrize(("objective", "share"), [("translation_ranking", 0.5), ("interpolation", 0.0)])
def test_a_run_that_resumes_with_its_half_trained_model_keeps_the_start_of_before(
    stating: str, tmp_path: Path, pairs: Any, objective: str, share: float
) -> None:
    final = []
    for folder in ("whole", "broken"):
        model = SentenceEncoderForPreTraining.from_pretrained(stating, objectives={objective: 1.0})
        arguments = AlignmentTrainingArguments(
            str(tmp_path / folder), max_steps=4, save_steps=2, share_of_start=share, learning_rate=0.01, use_cpu=True,
            report_to="none", per_device_train_batch_size=4,
        )  # fmt: skip
        if folder == "whole":
            AlignmentTrainer(model, arguments, {"de": pairs}).train()
        else:
            with pytest.raises(InterruptedError):
                AlignmentTrainer(model, arguments, {"de": pairs}, callbacks=[_Break()]).train()
            AlignmentTrainer(model, arguments, {"de": pairs}).train(resume_from_checkpoint=True)
        final.append(model.state_dict())
    for name, weight in final[0].items():
        assert torch.equal(weight, final[1][name]), name


def test_a_second_stage_of_a_model_in_memory_starts_from_the_run_of_the_first(
    stating: str, tmp_path: Path, pairs: Any
) -> None:
    """Its recipe and its identity name that run, from which another process resumes it to the same weights."""
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    model = SentenceEncoderForPreTraining.from_pretrained(stating)
    AlignmentTrainer(
        model, TrainingArguments(first, max_steps=2, use_cpu=True, report_to="none"), {"de": pairs}
    ).train()

    def stage(model: Any, folder: str, *callbacks: Any) -> AlignmentTrainer:
        arguments = AlignmentTrainingArguments(
            folder, max_steps=4, save_steps=2, share_of_start=0.5, learning_rate=0.01, use_cpu=True, report_to="none",
            per_device_train_batch_size=4,
        )  # fmt: skip
        return AlignmentTrainer(model, arguments, {"de": pairs}, callbacks=[*callbacks])

    whole = SentenceEncoderForPreTraining.from_pretrained(first)
    stage(whole, str(tmp_path / "whole")).train()
    with pytest.raises(InterruptedError):
        stage(model, second, _Break()).train()
    assert f"model: {first}\n" in (tmp_path / "second" / "recipe.yaml").read_text()
    with pytest.raises(OutputError, match="changed since step 2: model "):
        stage(SentenceEncoderForPreTraining.from_pretrained(stating), second).train(resume_from_checkpoint=True)
    resumed = SentenceEncoderForPreTraining.from_pretrained(first)
    stage(resumed, second).train(resume_from_checkpoint=True)
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name


def test_a_run_resumes_from_its_own_start_not_from_that_of_another_run_of_the_model(
    stating: str, tmp_path: Path, pairs: Any
) -> None:
    def run(model: Any, folder: str, *callbacks: Any) -> AlignmentTrainer:
        arguments = AlignmentTrainingArguments(
            str(tmp_path / folder), max_steps=4, save_steps=2, share_of_start=0.5, learning_rate=0.01, use_cpu=True,
            report_to="none", per_device_train_batch_size=4,
        )  # fmt: skip
        return AlignmentTrainer(model, arguments, {"de": pairs}, callbacks=[*callbacks])

    model = SentenceEncoderForPreTraining.from_pretrained(stating)
    run(model, "first").train()
    with pytest.raises(InterruptedError):
        run(SentenceEncoderForPreTraining.from_pretrained(str(tmp_path / "first")), "second", _Break()).train()
    run(model, "second").train(resume_from_checkpoint=True)
    whole = SentenceEncoderForPreTraining.from_pretrained(str(tmp_path / "first"))
    run(whole, "whole").train()
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name


def test_a_new_run_says_that_an_interrupted_one_changed_the_weights(
    stating: str, tmp_path: Path, pairs: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = SentenceEncoderForPreTraining.from_pretrained(stating)
    for folder in ("broken", "next", "third"):
        arguments = TrainingArguments(str(tmp_path / folder), max_steps=3, use_cpu=True, report_to="none")
        trainer = AlignmentTrainer(model, arguments, {"de": pairs}, callbacks=[_Break()] if folder == "broken" else [])
        caplog.clear()
        with pytest.raises(InterruptedError) if folder == "broken" else nullcontext():
            trainer.train()
        assert ("interrupted training changed the weights" in caplog.text) == (folder == "next")


def test_a_start_that_a_resumed_run_needs_first_is_no_longer_there(stating: str, tmp_path: Path, pairs: Any) -> None:
    model = SentenceEncoderForPreTraining.from_pretrained(stating)
    arguments = AlignmentTrainingArguments(
        str(tmp_path / "run"), max_steps=4, save_steps=2, use_cpu=True, report_to="none"
    )
    with pytest.raises(InterruptedError):
        AlignmentTrainer(model, arguments, {"de": pairs}, callbacks=[_Break()]).train()
    arguments.share_of_start = 0.5
    with pytest.raises(RecipeError, match="share_of_start needs the weights before training, which .*: open it again"):
        AlignmentTrainer(model, arguments, {"de": pairs}).train(resume_from_checkpoint=True, allow_changes=True)


def test_the_teacher_of_interpolation_embeds_as_the_model_does(stating: str, tmp_path: Path, pairs: Any) -> None:
    arguments = TrainingArguments(str(tmp_path / "run"), use_cpu=True, report_to="none")
    model = SentenceEncoderForPreTraining.from_pretrained(
        stating, objectives={"interpolation": 1.0}, pooling="cls", normalize=False
    )
    trainer = AlignmentTrainer(model, arguments, {"de": pairs})
    trainer.run = Run(tmp_path / "run")
    trainer.before_training()
    np.testing.assert_allclose(trainer.teachers.start.encode(["a dog"]), model.encode(["a dog"]))
    with pytest.raises(RecipeError, match="interpolation keeps the embeddings of the start"):
        SentenceEncoderForPreTraining.from_pretrained(stating, objectives={"interpolation": 1.0}, encoder_layers=2)
    with pytest.raises(RecipeError, match="interpolation embeds texts whatever their language: remove languages"):
        SentenceEncoderForPreTraining.from_pretrained(
            stating, objectives={"interpolation": 1.0}, languages=["de", "en"]
        )


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        (DualPivotForPreTraining, {}, "dual pivot trains a new linear map"),
        (WacseForPreTraining, {"languages": ["de", "en"]}, "language embeddings is saved without a linear layer"),
        (MoCoAlignedBert, {}, "momentum_contrast has no moving average of a linear layer"),
    ],
)
def test_models_without_a_place_for_it_refuse_a_start_with_a_linear_layer(
    stating: str, tmp_path: Path, kind: Any, settings: dict[str, Any], reason: str
) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling

    model = SentenceTransformer(stating, device="cpu")
    model[1], model[2] = Pooling(32, pooling_mode="mean"), Dense(32, 32)
    model.save_pretrained(str(tmp_path / "dense"))
    refused = (
        f"{reason}.*: it cannot start .* a module Dense. Start from a copy .* whose modules.json does not list Dense"
    )
    with pytest.raises(RecipeError, match=refused):
        kind.from_sentence_transformer(model, **settings)
    SentenceEncoderForPreTraining.from_pretrained(tmp_path / "dense").save_pretrained(tmp_path / "ours")
    for folder in (tmp_path / "dense", tmp_path / "ours"):
        recipe = {"model": str(folder), "data": ["de=x"], "output_dir": "o", **settings}
        recipe["method"] = kind.config_class.model_type
        with pytest.raises(RecipeError, match=refused):
            Plan.of(build_recipe([recipe]))
        modules = json.loads((folder / "modules.json").read_text())
        kept = [module for module in modules if not module["type"].endswith("Dense")]
        assert len(kept) == len(modules) - 1
        (folder / "modules.json").write_text(json.dumps(kept))
        Plan.of(build_recipe([recipe]))
        started = kind.from_backbone(str(folder), **settings)
        assert all(map(torch.equal, started.encoder.state_dict().values(), model[0].auto_model.state_dict().values()))


def test_objectives_with_masks_start_from_a_sentence_transformer(stating: str) -> None:
    objectives = {"translation_ranking": 1.0, "translation_language_modeling": 0.1}
    model = SentenceEncoderForPreTraining.from_sentence_transformer(
        SentenceTransformer(stating, device="cpu"), objectives=objectives
    )
    assert model.config.mask_token_id == model.tokenizer.mask_token_id and model.config.max_length == 11


@pytest.mark.parametrize("door", ["from_backbone", "from_pretrained"])
def test_a_saved_default_prompt_goes_with_the_saved_prompts(stating: str, tmp_path: Path, door: str) -> None:
    SentenceEncoderForPreTraining.from_pretrained(stating).save_pretrained(tmp_path / "saved")
    for prompts in ({}, {"query": "a "}):
        config = getattr(SentenceEncoderForPreTraining, door)(str(tmp_path / "saved"), prompts=prompts).config
        assert (config.prompts, config.default_prompt_name) == (prompts, None)


@pytest.mark.parametrize("door", ["from_backbone", "from_pretrained", "from_sentence_transformer"])
@pytest.mark.parametrize("saved", [False, True])
def test_a_default_prompt_of_none_keeps_the_prompts_of_the_start(
    stating: str, tmp_path: Path, door: str, saved: bool
) -> None:
    if saved:
        SentenceEncoderForPreTraining.from_pretrained(stating).save_pretrained(tmp_path / "saved")
        stating = str(tmp_path / "saved")
    start: Any = SentenceTransformer(stating, device="cpu") if door == "from_sentence_transformer" else stating
    config = getattr(SentenceEncoderForPreTraining, door)(start, default_prompt_name=None).config
    assert PROMPTS.items() <= config.prompts.items() and config.default_prompt_name is None


def test_null_as_default_prompt_of_a_recipe_keeps_the_prompts_of_the_start(stating: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("Der Hund.\tThe dog.\n", encoding="utf-8")
    settings = {"model": stating, "data": {"de": str(tmp_path / "pairs.tsv")}, "output_dir": str(tmp_path / "out")}
    for layers, flags in (
        ([settings], {"default_prompt_name": ["null"]}),
        ([settings | {"default_prompt_name": None}], {}),
    ):
        config = Plan.of(build_recipe(layers, flags)).recipe.config
        assert config.default_prompt == "" and config.prompts["query"] == PROMPTS["query"]


@pytest.mark.parametrize("kind", ["folder", "model", "encode"])
def test_a_teacher_is_a_model_its_encode_or_its_name(stating: str, tmp_path: Path, pairs: Any, kind: str) -> None:
    teacher = SentenceTransformer(stating, device="cpu")
    given = {"folder": stating, "model": teacher, "encode": teacher.encode}[kind]
    objectives = {"distillation": 1.0, "interpolation": 1.0}
    model = SentenceEncoderForPreTraining.from_pretrained(stating, objectives=objectives)
    arguments = TrainingArguments(str(tmp_path / "run"), max_steps=1, use_cpu=True, report_to="none")
    trainer = AlignmentTrainer(model, arguments, {"de": pairs}, teachers={"distillation": given})
    opened: Any = trainer.teachers.by_objective["distillation"]
    np.testing.assert_allclose(opened.encode(["a dog"]), teacher.encode(["a dog"]), atol=1e-5)
    trainer.train()  # the teacher of interpolation is the start, as without teachers
    with pytest.raises(RecipeError, match="teachers is a mapping, such as"):
        AlignmentTrainer(model, arguments, {"de": pairs}, teachers=given)


def test_a_teacher_that_is_not_given_is_that_of_the_settings(stating: str, tmp_path: Path, pairs: Any) -> None:
    arguments = TrainingArguments(str(tmp_path / "run"), use_cpu=True, report_to="none")
    for teacher in (stating, None):
        objectives = {"distillation": {"teacher": teacher}, "interpolation": 1.0}
        model = SentenceEncoderForPreTraining.from_pretrained(stating, objectives=objectives)
        if teacher is None:
            with pytest.raises(RecipeError, match="^objectives.distillation.teacher is missing: set it to a Hub id"):
                AlignmentTrainer(model, arguments, {"de": pairs}, teachers={"interpolation": None})
        else:
            trainer = AlignmentTrainer(model, arguments, {"de": pairs}, teachers={"interpolation": None})
            assert trainer.teachers.by_objective["distillation"].name == stating


@pytest.mark.parametrize("door", [SentenceEncoderForPreTraining.from_pretrained, SentenceTransformer])
def test_a_teacher_that_was_trained_is_named_by_its_run(stating: str, tmp_path: Path, pairs: Any, door: Any) -> None:
    arguments = TrainingArguments(str(tmp_path / "taught"), max_steps=1, use_cpu=True, report_to="none")
    teacher = door(stating)
    AlignmentTrainer(teacher, arguments, {"de": pairs}).train()
    student = SentenceEncoderForPreTraining.from_pretrained(stating, objectives={"distillation": 1.0})
    arguments = TrainingArguments(str(tmp_path / "run"), use_cpu=True, report_to="none")
    AlignmentTrainer(student, arguments, {"de": pairs}, teachers={"distillation": teacher})
    assert student.config.teachers() == {"distillation": str(tmp_path / "taught")}


@pytest.mark.parametrize("kind", ["folder", "model", "encode", "interpolation"])
def test_a_run_names_its_teacher_and_does_not_resume_with_another(
    stating: str, encoder_folders: dict[str, Path], tmp_path: Path, pairs: Any, kind: str
) -> None:
    objective = kind if kind == "interpolation" else "distillation"
    arguments = TrainingArguments(str(tmp_path / "run"), max_steps=2, save_steps=1, use_cpu=True, report_to="none")
    other, resumed = SentenceTransformer(stating, device="cpu"), {}
    other[0].auto_model.embeddings.LayerNorm.weight.data[:9] = 2.0
    other.save_pretrained(str(tmp_path / "other"))
    for folder in (stating, str(tmp_path / "other")):
        teacher = SentenceTransformer(folder, device="cpu")
        given = {"model": teacher, "encode": teacher.encode}.get(kind, folder)
        model = SentenceEncoderForPreTraining.from_pretrained(stating, objectives={objective: 1.0})
        trainer = AlignmentTrainer(model, arguments, {"de": pairs}, teachers={objective: given})
        if resumed:
            with pytest.raises(OutputError, match=r"changed since step 2: .*teacher"):
                trainer.train(**resumed)
        else:
            trainer.train()
            trainer.train(resume_from_checkpoint=True)
            recipe = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text("utf-8"))
            assert recipe["objectives"][objective].get("teacher") == (None if kind == "interpolation" else stating)
        resumed = {"resume_from_checkpoint": True}


def test_a_second_training_of_merged_adapters_is_refused(stating: str, tmp_path: Path, pairs: Any) -> None:
    model = SentenceEncoderForPreTraining.from_pretrained(stating, lora_rank=2)
    arguments = TrainingArguments(str(tmp_path / "run"), max_steps=1, use_cpu=True, report_to="none")
    trainer = AlignmentTrainer(model, arguments, {"de": pairs})
    trainer.train()
    with pytest.raises(RecipeError, match="an earlier call of train has merged the adapters: open the model again"):
        trainer.train(overwrite=True)


def test_settings_of_the_encoder_apply_to_a_sentence_transformer_or_are_refused(stating: str) -> None:
    start = SentenceTransformer(stating, device="cpu")
    for name, value in {"dropout": 0.0, "lora_rank": 2}.items():  # adapters would stay in it after an interruption
        with pytest.raises(RecipeError, match=f"a SentenceTransformer trains without {name}: start by from_backbone"):
            SentenceEncoderForPreTraining.from_sentence_transformer(start, **{name: value})
    model = SentenceEncoderForPreTraining.from_sentence_transformer(start, encoder_layers=2)
    assert len(model.backbone.layers) == model.config.encoder_config.num_hidden_layers == 2
    np.testing.assert_allclose(model.encode(["a dog"]), start.encode(["a dog"]), atol=1e-6)


def test_a_linear_layer_after_another_pooling_is_no_start(stating: str, tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer.modules import Dense

    start = SentenceTransformer(stating, device="cpu")
    start[2] = Dense(32, 32)
    start.save_pretrained(str(tmp_path / "dense"))
    for model in (SentenceEncoderForPreTraining.from_pretrained, SentenceEncoderForPreTraining.from_backbone):
        with pytest.raises(ModelError, match="has a linear layer after max pooling, not cls: keep its pooling"):
            model(str(tmp_path / "dense"), pooling="cls")


def test_a_teacher_of_no_objective_is_refused(stating: str, tmp_path: Path, pairs: Any) -> None:
    model = SentenceEncoderForPreTraining.from_pretrained(stating)
    arguments = TrainingArguments(str(tmp_path / "run"), max_steps=1, use_cpu=True, report_to="none")
    with pytest.raises(RecipeError, match="the model has no objective distillation with a teacher: add it"):
        AlignmentTrainer(model, arguments, {"de": pairs}, teachers={"distillation": model.encode})
