"""Gradient caching must be the whole batch, to rounding, whatever the chunk and whatever is random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from every_objective import sentence_pairs, teacher_vectors
from torch import Tensor
from transformers import AutoTokenizer

from hf_xsent import AlignmentTrainer, AlignmentTrainingArguments, XlmrWithRTLHead
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.training.large_batch import _sentence_gradients, split_batch

pytestmark = pytest.mark.usefixtures("projected")

Pairs = list[tuple[str, str]]
TR = {"translation_ranking": {"symmetric": True}}
BOTH = {"weight": 0.8, "direction": "both", "predicted_languages": ["de", "en"]}
MIXES: dict[str, dict[str, Any]] = {
    "TR": TR,
    "DAP": TR | {"representation_translation": 0.8},
    "DAP, both directions": TR | {"representation_translation": BOTH},
    "DAP, both directions, partial": TR | {"representation_translation": BOTH | {"masked_share": 0.6}},
    "DAP, padded positions": TR | {"representation_translation": {"weight": 0.8, "positions": "padded"}},
    "TR + TLM": TR | {"translation_language_modeling": {"weight": 0.5, "masked_share": 0.4}},
    "TR with hard negatives": {"translation_ranking": {"symmetric": True, "hard_negatives": 2, "own_side": True}},
    "TR of several widths and negatives": {"matryoshka": {"hard_negatives": 3, "dims": [32, 8]}},
    "TR and TR of several widths, each with its own number of negatives": {
        "translation_ranking": {"hard_negatives": 1},
        "matryoshka": {"hard_negatives": 3, "dims": [32, 8]},
    },
    "TR of several widths": {"matryoshka": {"symmetric": True, "dims": [32, 8]}},
    "TR + distillation": TR | {"distillation": 5.0},
    "TR + an objective with weights": TR | {"projected": 0.5},
    "RTL alone": {"representation_translation": 1.0},
    "TR + MEXMA": TR | {"mexma": {"head_layers": 1, "masked_share": 0.4, "koleo_weight": 0.1}},
    "WACSE": {
        "translation_ranking": {"weight": 0.8, "symmetric": True},
        "aligned_word_prediction": 0.1,
        "word_translation_ranking": 0.1,
    },
    "WACSE, partial": {
        "translation_ranking": {"weight": 0.8, "symmetric": True},
        "aligned_word_prediction": {"weight": 0.1, "masked_share": 0.5},
    },
}


def _settings_of(mix: str, name: str) -> dict[str, Any]:
    """Return what a mix states of an objective beside its weight."""
    stated = MIXES[mix].get(name)
    return stated if isinstance(stated, dict) else {}


def _trainer(
    folder: Path, out: Path, mix: str, settings: dict[str, Any] | None = None, **arguments: Any
) -> AlignmentTrainer:
    torch.manual_seed(0)
    model = XlmrWithRTLHead.from_backbone(str(folder), max_length=64, objectives=MIXES[mix], **settings or {})
    defaults: dict[str, Any] = {"output_dir": str(out), "use_cpu": True, "report_to": "none", "max_steps": 1}
    chosen = AlignmentTrainingArguments(**defaults | arguments)
    return AlignmentTrainer(model, chosen, processing_class=AutoTokenizer.from_pretrained(folder), teachers={})


def _batch(folder: Path, pairs: Pairs, mix: str) -> dict[str, Tensor]:
    """Every second pair has word links where an objective reads them."""
    links = "aligned_word_prediction" in MIXES[mix]
    languages = _settings_of(mix, "representation_translation").get("predicted_languages")
    negatives = AlignmentConfig(objectives=MIXES[mix]).hard_negatives
    collator = PairCollator(AutoTokenizer.from_pretrained(folder), 64, languages, links=links, negatives=negatives)
    examples: list[dict[str, Any]] = [
        {"source": source, "target": target, "language": "de"} for source, target in pairs
    ]
    for row in (0, 1, 5, 7):  # the others have none, and one has fewer than requested
        some = [pairs[row - number] for number in range(2, 4 if row < 7 else 3)]
        examples[row] |= {f"{side}_negatives": [one[n] for one in some] for n, side in enumerate(("source", "target"))}
    batch = collator([example | {"links": "0-1 1-0 2-2 2-1"} for example in examples[::2]] + examples[1::2])
    return batch | teacher_vectors(torch.randn(len(pairs), 32, generator=torch.Generator().manual_seed(3)))


def _gradients(trainer: AlignmentTrainer, batch: dict[str, Tensor], dropout: bool) -> tuple[Tensor, dict[str, Tensor]]:
    trainer.current_gradient_accumulation_steps = 1
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.1 if dropout else 0.0
    trainer.model.zero_grad()
    torch.manual_seed(1)
    loss = trainer.training_step(trainer.model, dict(batch))
    return loss, {name: one.grad.clone() for name, one in trainer.model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize(
    "mix", [mix for mix in MIXES if not any("masked_share" in _settings_of(mix, name) for name in MIXES[mix])]
)
def test_chunks_give_the_loss_and_gradients_of_the_whole_batch(
    tiny_encoders: Path, tmp_path: Path, pairs: Pairs, mix: str
) -> None:
    batch = _batch(tiny_encoders, pairs, mix)
    whole, chunked = (
        _gradients(
            _trainer(tiny_encoders, tmp_path, mix, {"dropout": 0.0}, pairs_per_chunk=chunk), batch, dropout=False
        )
        for chunk in (None, 5)
    )
    torch.testing.assert_close(chunked[0], whole[0], atol=1e-5, rtol=1e-5)
    assert chunked[1].keys() == whole[1].keys()
    for name, gradient in chunked[1].items():
        scale = whole[1][name].abs().max().item()
        torch.testing.assert_close(gradient, whole[1][name], atol=1e-6 + 2e-5 * scale, rtol=0, msg=name)


@pytest.mark.parametrize("mix", MIXES)
def test_random_choices_are_the_same_in_both_passes(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs, mix: str
) -> None:
    """With dropout and masks: the gradient is that of the chunks' own losses, computed by hand in one graph."""
    folder = encoder_folders["bert"]
    trainer = _trainer(folder, tmp_path, mix, pairs_per_chunk=6)
    batch = _batch(folder, pairs, mix)
    loss, gradients = _gradients(trainer, batch, dropout=True)

    model = trainer.model
    model.zero_grad()
    torch.manual_seed(1)
    encoded = []
    states = []
    for chunk in split_batch(batch, 6):
        states.append(torch.get_rng_state())
        encoded.append(model.encode_pairs(chunk))
    # The heads drop out, too, after the encoder of their chunk.
    expected: Any = 0
    expected = expected + model.sentence_loss(SentencePairs.joined([one.sentences for one in encoded]), batch)[0]
    for name in encoded[0].sampled:
        parts = range(len(encoded[0].sampled[name]))
        counts = [sum(one.sampled[name][part].count for one in encoded) for part in parts]
        for one, state, chunk in zip(encoded, states, split_batch(batch, 6), strict=True):
            torch.set_rng_state(state)
            with torch.no_grad():  # as far as the encoder, the same numbers are drawn again
                model.encode_pairs(chunk)
            for part in parts:
                total = model.objectives[name].token_loss(one.tokens, one.states, one.sampled[name][part])
                expected = expected + model.config.objectives[name].weight * total / counts[part] / len(parts)
    expected.backward()
    torch.testing.assert_close(loss, expected.detach(), atol=1e-5, rtol=1e-5)
    for name, gradient in gradients.items():
        theirs = dict(model.named_parameters())[name].grad
        scale = theirs.abs().max().item()
        torch.testing.assert_close(gradient, theirs, atol=1e-6 + 2e-5 * scale, rtol=0, msg=name)


def test_the_next_step_draws_new_numbers(encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs) -> None:
    folder = encoder_folders["bert"]
    trainer = _trainer(folder, tmp_path, "TR", pairs_per_chunk=4)
    batch = _batch(folder, pairs, "TR")
    _gradients(trainer, batch, dropout=True)
    before = torch.get_rng_state()
    trainer.training_step(trainer.model, dict(batch))
    assert not torch.equal(before, torch.get_rng_state())


def test_rows_of_the_word_table_are_added_in_place(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    """One whole gradient of the table is made, by the first chunk."""
    trainer = _trainer(encoder_folders["bert"], tmp_path, "TR", pairs_per_chunk=4)
    words = trainer.model.backbone.word_embeddings
    rows_alone: list[bool] = []
    words.weight.register_hook(lambda gradient: rows_alone.append(gradient.is_sparse))
    _, gradients = _gradients(trainer, _batch(encoder_folders["bert"], pairs, "TR"), dropout=False)
    assert rows_alone == [False, True, True, True]
    assert not words.sparse and words.weight.grad.layout is torch.strided
    assert any(torch.equal(one, words.weight.grad) for one in gradients.values())


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_both_passes_compute_in_the_same_precision(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs, precision: str
) -> None:
    trainer = _trainer(encoder_folders["bert"], tmp_path, "TR", pairs_per_chunk=6, bf16=precision == "bf16")
    seen: list[Tensor] = []
    trainer.model.backbone.layers[0].register_forward_hook(
        lambda module, arguments, output: seen.append(module.attention.self.query(arguments[0]))
    )
    trainer.accelerator.prepare_model(trainer.model)  # as train does
    _gradients(trainer, _batch(encoder_folders["bert"], pairs, "TR"), dropout=False)
    assert {one.dtype for one in seen} == {torch.bfloat16 if precision == "bf16" else torch.float32}
    assert len(seen) == 2 * 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cached_gradients_of_half_precision_embeddings_do_not_underflow(
    tiny_encoders: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    """A mean over many pairs has gradients that float16 rounds to zero."""
    model = _trainer(tiny_encoders, tmp_path, "TR").model
    halves = torch.randn(2, 256, 32).to(dtype) * 5000  # longer vectors have smaller gradients
    identities = torch.arange(512).view(2, 256)
    parts = [sentence_pairs(*halves[:, rows], *identities[:, rows]) for rows in (slice(128), slice(128, 256))]
    _, _, gradients = _sentence_gradients(model, parts, {})
    cached = torch.stack([torch.cat(of_side) for of_side in gradients.embeddings])

    exact = halves.double().requires_grad_()
    model.sentence_loss(sentence_pairs(*exact, *identities), {})[0].backward()
    torch.testing.assert_close(cached.double(), exact.grad, rtol=1e-2, atol=1e-12)


def test_beside_another_objective_each_reads_its_own_number_of_negatives(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    folder = encoder_folders["bert"]
    mix = "TR and TR of several widths, each with its own number of negatives"
    losses = {}
    alone = {name: {name: settings} for name, settings in MIXES[mix].items()}
    for name, objectives in (("both", MIXES[mix]), *alone.items()):
        model = XlmrWithRTLHead.from_backbone(str(folder), max_length=64, objectives=objectives).eval()
        collator = PairCollator(AutoTokenizer.from_pretrained(folder), 64, negatives=model.config.hard_negatives)
        texts = [target for _, target in pairs]
        examples = [
            {"source": source, "target": target, "target_negatives": texts[row - 3 : row] or texts[:1]}
            for row, (source, target) in enumerate(pairs)
        ]
        losses[name] = model(**collator(examples)).losses
    for name in MIXES[mix]:
        torch.testing.assert_close(losses["both"][name], losses[name][name])
