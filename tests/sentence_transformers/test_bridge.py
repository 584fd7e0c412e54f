"""Our models, objectives and tasks in sentence-transformers, with its own Trainer and evaluators."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers.sentence_transformer import evaluation
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import AutoTokenizer

from hf_xsent import AlignmentLoss, DualPivotForSentenceEmbedding, SentenceEmbedder, TaskEvaluator, XlmrWithRTLHead
from hf_xsent.data.benchmarks.answers import AnswerSet
from hf_xsent.data.benchmarks.parallel import ParallelSet
from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.errors import DataError, ModelError, RecipeError
from hf_xsent.evaluation.answer_retrieval import AnswerRetrievalTask
from hf_xsent.evaluation.mixed_pool import MixedPoolTask
from hf_xsent.evaluation.retention import RetentionTask
from hf_xsent.evaluation.task import EvaluationTask, Start
from hf_xsent.evaluation.translation_retrieval import TatoebaTask
from hf_xsent.objectives.matryoshka import matryoshka_loss
from hf_xsent.objectives.translation_ranking import translation_ranking_loss
from hf_xsent.sentence_transformers import losses
from hf_xsent.tensors.packing import hash_sentences
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

Pairs = list[tuple[str, str]]


def _dataset(pairs: Pairs, **columns: Any) -> Dataset:
    return Dataset.from_dict({"source": [one for one, _ in pairs], "target": [one for _, one in pairs], **columns})


def _task(pairs: Pairs) -> TatoebaTask:
    sides = [list(side) for side in zip(*pairs, strict=True)]
    return TatoebaTask([PairSet("deu", sides[0][:8], sides[1][:8]), PairSet("fra", *sides)])


def _saved(folder: Path, encoder: Path, kind: Any = XlmrWithRTLHead, **settings: Any) -> str:
    model = kind.from_backbone(str(encoder), **settings)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(encoder).save_pretrained(folder)
    return str(folder)


# Our folders as SentenceTransformer


@pytest.mark.parametrize("settings", [{"pooling": "cls"}, {"pooling": "max", "normalize": True, "max_length": 9}])
def test_sentence_transformer_opens_a_run_with_its_own_pooling(
    tiny_encoders: Path, tmp_path: Path, sentences: list[str], settings: dict[str, Any]
) -> None:
    folder = _saved(tmp_path, tiny_encoders, objectives={"translation_ranking": 1.0}, **settings)
    theirs = SentenceTransformer(folder, device="cpu", local_files_only=True)
    ours = SentenceEmbedder.from_pretrained(folder, device="cpu")
    np.testing.assert_allclose(theirs.encode(sentences), ours.encode(sentences), atol=1e-5)
    assert theirs.max_seq_length == settings.get("max_length", 128)
    assert theirs.get_embedding_dimension() == 32 and theirs.similarity_fn_name == "cosine"


@pytest.mark.slow
def test_without_our_import_a_run_is_pooled_as_in_training(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    folder = _saved(tmp_path / "run", encoder_folders["bert"], pooling="max", objectives={"translation_ranking": 1.0})
    code = (
        "import sys, json, numpy; from sentence_transformers import SentenceTransformer as T\n"
        "vectors = T(sys.argv[1], device='cpu').encode(json.loads(sys.argv[2]))\n"
        "numpy.save(sys.argv[3], vectors); sys.exit('hf_xsent' in sys.modules)"
    )
    output = str(tmp_path / "vectors.npy")
    subprocess.run([sys.executable, "-c", code, folder, json.dumps(sentences), output], check=True)
    np.testing.assert_allclose(np.load(output), SentenceEmbedder.from_pretrained(folder).encode(sentences), atol=1e-5)


def test_sentence_transformer_opens_a_mix_of_layers(encoder_folders, tmp_path: Path, sentences: list[str]) -> None:
    folder = _saved(tmp_path, encoder_folders["bert"], DualPivotForSentenceEmbedding)
    theirs = SentenceTransformer(folder, device="cpu", local_files_only=True).encode(sentences)
    ours = SentenceEmbedder.from_pretrained(folder, device="cpu").encode(sentences)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)


def test_sentence_transformer_gives_a_run_padded_batches_with_flash_attention_too(
    encoder_folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With flash attention, it concatenates the sentences for models that read where each begins."""
    opened = SentenceTransformer(_saved(tmp_path, encoder_folders["bert"]), device="cpu", local_files_only=True)[0]
    monkeypatch.setattr(type(opened), "_is_flash_attention_requested", lambda _: True)
    kernels = ((None, object()), None)
    monkeypatch.setattr("transformers.modeling_flash_attention_utils.lazy_import_flash_attention", lambda _: kernels)
    assert not opened._can_flatten_inputs()


# Our objectives as losses


def _loss_of(loss: AlignmentLoss, pairs: Pairs, labels: Any = None) -> Any:
    sides = [list(side) for side in zip(*pairs, strict=True)]
    features = [{key: one for key, one in loss.model.preprocess(side).items() if key != "modality"} for side in sides]
    return loss(features, labels)


@pytest.fixture
def model(encoder_folders: dict[str, Path]) -> SentenceTransformer:
    return SentenceTransformer(str(encoder_folders["bert"]), device="cpu", local_files_only=True).eval()


def test_losses_equal_the_objectives(model: SentenceTransformer, pairs: Pairs) -> None:
    source, target = (model.encode(list(side), convert_to_tensor=True) for side in zip(*pairs, strict=True))
    expected = translation_ranking_loss(source, target, temperature=0.1, symmetric=True)
    ranking = AlignmentLoss(model, {"translation_ranking": {"temperature": 0.1, "symmetric": True}})
    torch.testing.assert_close(_loss_of(ranking, pairs), expected)
    with model.truncate_embeddings(8):  # those of encode, not of the loss
        nested = AlignmentLoss(model, {"matryoshka": {"dims": [32, 8]}})
    expected = matryoshka_loss(translation_ranking_loss, source, target, [32, 8])
    torch.testing.assert_close(_loss_of(nested, pairs), expected)
    both = _loss_of(AlignmentLoss(model, {"translation_ranking": 0.5, "triplet_ranking": 2.0}), pairs)
    assert {*both} == {"translation_ranking", "triplet_ranking"}
    torch.testing.assert_close(both["translation_ranking"], 0.5 * translation_ranking_loss(source, target))
    teacher = torch.randn_like(source)
    squared = ((torch.cat((source, target)) - teacher.repeat(2, 1)) ** 2).mean()
    torch.testing.assert_close(_loss_of(AlignmentLoss(model, {"distillation": 1.0}), pairs, teacher), squared)


@pytest.mark.parametrize("key", ["offsets", "cu_seq_lens_q"])
def test_features_without_padding_name_the_same_sentences(model: SentenceTransformer, pairs: Pairs, key: str) -> None:
    """StaticEmbedding states where sentences start; with FlashAttention, sentence-transformers adds the last end."""
    padded = model.preprocess([source for source, _ in pairs])
    ids, mask = padded["input_ids"], padded["attention_mask"].bool()
    ends = mask.sum(1).cumsum(0)
    starts = torch.cat((torch.zeros(1, dtype=torch.long), ends if key == "cu_seq_lens_q" else ends[:-1]))
    identity = losses._identity({"input_ids": ids[mask][None], key: starts})
    assert torch.equal(identity, hash_sentences(ids, padded["attention_mask"]))


def test_a_static_embedding_trains(model: SentenceTransformer, pairs: Pairs) -> None:
    static = SentenceTransformer(modules=[StaticEmbedding(model.tokenizer, embedding_dim=8)], device="cpu")
    source, target = (static.encode(list(side), convert_to_tensor=True) for side in zip(*pairs, strict=True))
    loss = _loss_of(AlignmentLoss(static), pairs)
    torch.testing.assert_close(loss, translation_ranking_loss(source, target))
    loss.backward()
    assert next(static.parameters()).grad.norm() > 0


def test_further_columns_are_hard_negatives_of_the_translation(model: SentenceTransformer, pairs: Pairs) -> None:
    """A copy of a sentence of a pair is no negative of it."""
    columns = [list(side) for side in zip(*pairs, strict=True)]
    columns += [columns[1][1:] + columns[1][:1], columns[0]]
    vectors = [model.encode(column, convert_to_tensor=True) for column in columns]
    numbers = torch.arange(len(pairs))
    expected = translation_ranking_loss(
        *vectors[:2],
        source_identity=numbers + 100,
        target_identity=numbers,
        target_negatives=(torch.cat(vectors[2:]), torch.cat((numbers.roll(-1), numbers + 100))),
    )
    loss = AlignmentLoss(model, {"translation_ranking": {"hard_negatives": 2}})
    features = [model.preprocess(column) for column in columns]
    torch.testing.assert_close(loss(features), expected)
    with pytest.raises(DataError, match="two columns of sentences and 2 of negatives, not 2$"):
        loss(features[:2])
    with pytest.raises(RecipeError, match="^symmetric ranks negatives of both sides"):
        AlignmentLoss(model, {"translation_ranking": {"hard_negatives": 2, "symmetric": True}})


def test_the_hard_negative_of_a_pair_is_one_also_if_the_model_reads_no_tokens(
    model: SentenceTransformer, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = AlignmentLoss(model, {"translation_ranking": {"hard_negatives": 1}})
    sides = [list(side) for side in zip(*pairs, strict=True)]
    columns = [model.preprocess(column) for column in (*sides, [f"{text} not" for text in sides[1]])]
    expected = loss([dict(column) for column in columns])
    monkeypatch.setattr(losses, "_identity", lambda _: None)
    torch.testing.assert_close(loss(columns), expected)


def test_a_model_of_this_package_has_its_own_trainer(encoder_folders: dict[str, Path]) -> None:
    own: Any = XlmrWithRTLHead.from_pretrained(str(encoder_folders["bert"]))
    with pytest.raises(RecipeError, match="takes a SentenceTransformer: train XlmrWithRTLHead by AlignmentTrainer"):
        AlignmentLoss(own)


def test_weights_of_an_objective_train_as_the_trainer_builds_them(
    model: SentenceTransformer, pairs: Pairs, projected: str
) -> None:
    loss = AlignmentLoss(model, {projected: 1.0})
    _loss_of(loss, pairs).backward()
    assert [weight.grad.norm() > 0 for weight in loss.objectives.parameters()] == [True]
    assert loss.objectives[projected].projection.weight.std().item() == pytest.approx(0.02, rel=0.2)  # the encoder's


def test_a_repeated_sentence_is_no_negative(model: SentenceTransformer, pairs: Pairs) -> None:
    repeated = [*pairs[:4], pairs[0]]
    loss = AlignmentLoss(model)
    once, twice = _loss_of(loss, pairs[:4]), _loss_of(loss, repeated)
    source, target = (model.encode(list(side), convert_to_tensor=True) for side in zip(*repeated, strict=True))
    assert twice < translation_ranking_loss(source, target)
    assert once.isfinite()


@pytest.mark.parametrize(
    "objective", ["mexma", "aligned_word_prediction", "momentum_contrast", "adversarial", "interpolation"]
)
def test_an_objective_that_reads_more_than_embeddings_is_refused(model: SentenceTransformer, objective: str) -> None:
    with pytest.raises(RecipeError, match=f"^{objective} needs more than sentence embeddings: .*AlignmentTrainer"):
        AlignmentLoss(model, {objective: 1.0})


def test_wrong_columns_and_widths_are_refused(model: SentenceTransformer, pairs: Pairs) -> None:
    with pytest.raises(RecipeError, match="dims has 64, but this encoder's embeddings have 32"):
        AlignmentLoss(model, {"matryoshka": {"dims": [64]}})
    with pytest.raises(DataError, match="two columns of sentences, not 1"):
        AlignmentLoss(model)([model.preprocess(["a"])], None)
    with pytest.raises(DataError, match="column label"):
        _loss_of(AlignmentLoss(model, {"distillation": 1.0}), pairs)


def test_their_trainer_trains_a_run_further_with_our_loss_and_task(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs, sentences: list[str]
) -> None:
    start = _saved(tmp_path / "run", encoder_folders["bert"], pooling="mean", objectives={"translation_ranking": 1.0})
    model = SentenceTransformer(start, device="cpu", local_files_only=True)
    arguments = SentenceTransformerTrainingArguments(
        str(tmp_path / "out"), max_steps=30, per_device_train_batch_size=8, learning_rate=3e-3, use_cpu=True,
        eval_strategy="steps", eval_steps=30, save_strategy="no", logging_steps=1, report_to="none", disable_tqdm=True,
    )  # fmt: skip
    evaluator = TaskEvaluator(_task(pairs))
    before = evaluator(model)
    loss = AlignmentLoss(model, {"translation_ranking": 1.0, "matryoshka": {"dims": [32, 16]}})
    trainer = SentenceTransformerTrainer(
        model, arguments, train_dataset=_dataset(pairs), loss=loss, evaluator=evaluator
    )
    trainer.train()
    logs = {key: value for log in trainer.state.log_history for key, value in log.items()}
    assert {"eval_tatoeba_deu", "eval_tatoeba_fra", "matryoshka"} <= {*logs}
    assert logs["eval_tatoeba_mean"] > before["tatoeba_mean"] + 20
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    vectors = model.encode(sentences)
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu", local_files_only=True)
    np.testing.assert_allclose(again.encode(sentences), vectors, atol=1e-5)
    ours = SentenceEmbedder.from_pretrained(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(ours.encode(sentences), vectors, atol=1e-5)


# Evaluation, both ways


def _tasks(pairs: Pairs) -> list[EvaluationTask]:
    """Tasks of each kind, with the sentences of the pairs as questions and answers."""
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    names, rows = [str(number) for number in range(len(pairs))], list(range(len(pairs)))
    answers = [AnswerSet(code, names, sources, rows, side) for code, side in (("de", sources), ("en", targets))]
    sts = PairSet("en-en", targets, targets[::-1], [float(number % 5) for number in rows])
    start = Start("lengths", lambda texts: np.array([[len(text), 1.0] for text in texts]))
    retention = RetentionTask([sts, *answers], start=start)
    pool = MixedPoolTask([ParallelSet("de", sources), ParallelSet("en", targets)])
    return [_task(pairs), pool, AnswerRetrievalTask(answers), retention]


def test_tasks_measure_their_model_like_ours(encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs) -> None:
    folder = _saved(tmp_path, encoder_folders["bert"], objectives={"translation_ranking": 1.0})
    theirs = SentenceTransformer(folder, device="cpu", local_files_only=True)
    ours = SentenceEmbedder.from_pretrained(folder, device="cpu")
    for task in _tasks(pairs):
        evaluator, scores = TaskEvaluator(task), task.score(ours.encode)
        found = evaluator(theirs)
        for language, figures in scores.languages.items():
            assert found[f"{task.name}_{language}"] == pytest.approx(figures[task.main_metric], abs=1e-3)
        assert found[evaluator.primary_metric] == pytest.approx(scores.groups["all"][task.main_metric], abs=1e-3)
        assert evaluator(ours) == pytest.approx(found, abs=1e-3)


def test_their_evaluators_measure_our_models(encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs) -> None:
    folder = _saved(tmp_path, encoder_folders["bert"], objectives={"translation_ranking": 1.0})
    sources, targets = (list(side) for side in zip(*pairs, strict=True))
    theirs = SentenceTransformer(folder, device="cpu", local_files_only=True)
    queries = {f"q{n}": text for n, text in enumerate(sources)}
    corpus = {f"d{n}": text for n, text in enumerate(targets)}
    relevant = {f"q{n}": {f"d{n}"} for n in range(len(pairs))}
    evaluators = [
        evaluation.TranslationEvaluator(sources, targets, write_csv=False),
        evaluation.EmbeddingSimilarityEvaluator(sources, targets, [n / 16 for n in range(16)], write_csv=False),
        evaluation.InformationRetrievalEvaluator(queries, corpus, relevant, write_csv=False),
        evaluation.TripletEvaluator(sources, targets, targets[1:] + targets[:1], write_csv=False),
        evaluation.MSEEvaluator(sources, targets, teacher_model=theirs, write_csv=False),
    ]
    model = XlmrWithRTLHead.from_pretrained(folder)
    for evaluator in evaluators:
        expected = evaluator(theirs)
        assert evaluator(model) == pytest.approx(expected, abs=1e-4), evaluator
        assert evaluator(SentenceEmbedder.from_pretrained(folder, device="cpu")) == pytest.approx(expected, abs=1e-4)


def test_arguments_of_encode_that_we_do_not_have_are_refused(encoder_folders: dict[str, Path]) -> None:
    model = XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"]), objectives={"translation_ranking": 1.0})
    with pytest.raises(ModelError, match="no prompt named 'question'"):
        model.encode(["a"], prompt_name="question")
    with pytest.raises(ModelError, match="embeddings are float32, not int8"):
        model.encode(["a"], precision="int8")
