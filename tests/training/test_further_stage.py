"""A run that starts from a model of an earlier one: a second stage on other data, with another mix or method."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import yaml
from training_run import Run

from hf_xsent import MoCoAlignedBert, SentenceEmbedder, XlmrWithRTLHead
from hf_xsent.errors import RecipeError
from hf_xsent.models.dap import DapForSentenceEmbedding
from hf_xsent.models.loading import load_config
from hf_xsent.models.saved_form import saved_weights

DAP = {"translation_ranking": 1.0, "representation_translation": 0.8}
MOCO, RTL = "momentum_contrast", "representation_translation"
RESTRICTED = DAP | {RTL: {"weight": 0.8, "restrict_vocabulary": True}}


def _second(run: Run, **changes: Any) -> Run:
    """A run in a folder beside, from the model that the first one left."""
    folder = run.folder / "second"
    folder.mkdir()
    second = Run(folder, run.out, [(f"Der Hund {n}.", f"The dog {n}.") for n in range(20)])
    second.settings |= changes
    return second


def test_encoder_and_heads_start_as_the_earlier_stage_left_them(run: Run) -> None:
    whole = {RTL: {"weight": 0.8, "restrict_vocabulary": False}, "translation_language_modeling": 0.1}
    mix: dict[str, Any] = {"objectives": DAP | whole, "training_mlp": True}
    run.start(**mix, languages=["de", "en", "fr"])
    model = XlmrWithRTLHead.from_backbone(str(run.out), max_length=24, languages=["de", "en", "fr"], **mix)
    learnt = saved_weights(run.out)
    own = model.state_dict()
    assert learnt.keys() <= own.keys()
    for name, weight in learnt.items():
        assert torch.equal(own[name], weight), name


def test_word_pieces_of_another_vocabulary_are_copied_one_by_one(run: Run) -> None:
    run.start(objectives=RESTRICTED)
    model = XlmrWithRTLHead.from_pretrained(run.out)
    known = model.objectives[RTL].prediction
    ids = known.vocabulary.tolist()
    new = sorted({*range(len(model.get_input_embeddings().weight))} - {*ids})[:3]
    others = sorted([*ids[:-4], *new])
    restricted = DAP | {RTL: {"weight": 0.8, "vocabulary_size": len(others), "vocabulary_ids": others}}
    second = (
        XlmrWithRTLHead.from_backbone(str(run.out), max_length=24, objectives=restricted).objectives[RTL].prediction
    )
    assert second.vocabulary.tolist() == others
    for row, piece in enumerate(others):
        if piece in new:
            assert torch.equal(second.words.weight[row], model.get_input_embeddings().weight[piece])
            assert second.bias[row] == 0
        else:
            assert torch.equal(second.words.weight[row], known.words.weight[ids.index(piece)])
            assert second.bias[row] == known.bias[ids.index(piece)]


def test_a_head_of_other_layers_starts_from_the_encoder(run: Run) -> None:
    run.start(objectives=DAP | {RTL: {"head_layers": 2}})
    model = XlmrWithRTLHead.from_backbone(str(run.out), max_length=24, objectives=DAP | {RTL: {"head_layers": 1}})
    own, last = (
        dict(one.named_parameters())
        for one in (
            model.objectives[RTL].layers.encoder.encoder.layer[0],
            model.encoder.encoder.layer[-1],
        )
    )
    assert all(torch.equal(own[name], last[name]) for name in last)


def test_another_method_starts_from_the_encoder_alone(run: Run) -> None:
    run.start(objectives=DAP)
    model = MoCoAlignedBert.from_backbone(
        str(run.out), max_length=24, objectives={MOCO: {"queue_size": 8, "projection": 4}}
    )
    learnt = saved_weights(run.out)
    for name, weight in model.encoder.named_parameters():
        assert torch.equal(weight, learnt[f"encoder.{name}"])
        assert torch.equal(weight, model.objectives[MOCO].key_encoder.get_parameter(name))


@pytest.mark.parametrize(
    "changes",
    [
        {"objectives": DAP, "dropout": 0.2, "share_of_start": 0.5},
        {"method": "wacse", "objectives": {"translation_ranking": 1}, "lora_rank": 2},
        {"method": "dual-pivot", "objectives": {"triplet_ranking": 1}, "max_length": None},
    ],
    ids=["DAP", "adapters", "dual pivot"],
)
def test_a_second_run_trains_what_the_first_one_left(run: Run, changes: dict[str, Any]) -> None:
    run.start(objectives=DAP, lora_rank=2)  # adapters are merged at its end
    before = saved_weights(run.out)
    second = _second(run, **changes)
    trainer = second.start()
    assert trainer.state.global_step == 6
    assert saved_weights(run.out).keys() == before.keys()
    vectors = SentenceEmbedder.from_pretrained(str(second.out), device="cpu").encode(["Der Hund schläft."])
    assert vectors.shape == (1, 32)
    if "dropout" in changes:
        assert trainer.model.encoder.config.hidden_dropout_prob == 0.2


def test_an_interrupted_second_stage_resumes_exactly(run: Run) -> None:
    run.start(objectives=DAP)
    _second(run).assert_goes_on_exactly(objectives=RESTRICTED)


@pytest.mark.parametrize("languages", [None, ["de", "en"]])
def test_language_embeddings_are_not_lost_unseen(run: Run, languages: list[str] | None) -> None:
    run.start(languages=["de", "en", "fr"])
    with pytest.raises(RecipeError, match="embeddings of the languages de, en, fr: set languages"):
        XlmrWithRTLHead.from_backbone(
            str(run.out), max_length=24, objectives={"translation_ranking": 1.0}, languages=languages
        )


def test_a_model_with_language_embeddings_learns_no_further_language(run: Run) -> None:
    """Each of two errors named the other's cause as its cure."""
    start, data = run.folder / "start", run.settings["data"]
    run.start(languages=["de", "en"], data=[one for one in data if one.startswith("de=")], output_dir=str(start))
    with pytest.raises(RecipeError, match="'fr' of the data has no embedding, and a model .* cannot learn it"):
        run.start(model=str(start), languages=["de", "en"])
    with pytest.raises(RecipeError, match=r"it cannot learn further ones: train those from the encoder"):
        run.start(model=str(start), languages=["de", "en", "fr"])


def test_a_run_opens_only_with_its_languages_in_their_order(run: Run) -> None:
    known, other = ["en", "de", "fr"], ["de", "en", "fr"]
    refused = "the languages en, de, fr: set languages to the same list, in this order"
    rtl: dict[str, Any] = {"direction": "both", "restrict_vocabulary": False}
    predicting = {order[0]: {RTL: rtl | {"predicted_languages": order}} for order in (known, other)}
    run.start(objectives=predicting["en"])
    XlmrWithRTLHead.from_pretrained(run.out, objectives=predicting["en"])
    with pytest.raises(RecipeError, match=refused):
        XlmrWithRTLHead.from_pretrained(run.out, objectives=predicting["de"])
    run.start("--overwrite", languages=known)
    config = load_config(str(run.out))
    config.languages = other
    for kind in (XlmrWithRTLHead, DapForSentenceEmbedding):
        assert kind.from_pretrained(run.out).config.languages == known
        for languages in (other, []):
            with pytest.raises(RecipeError, match=refused):
                kind.from_pretrained(run.out, languages=languages)
        with pytest.raises(RecipeError, match=refused):
            kind.from_pretrained(run.out, config=config)


def test_what_an_earlier_stage_left_is_no_mlm_head(run: Run) -> None:
    """Its encoder has moved on from the head that the first checkpoint may have had: a new one is plain."""
    run.start()
    model = XlmrWithRTLHead.from_backbone(str(run.out), max_length=24, objectives=DAP)
    dense = model.objectives[RTL].prediction.dense.weight
    assert torch.equal(dense, torch.eye(len(dense)))


def test_a_run_embeds_as_the_earlier_stage_did_unless_it_says_otherwise(run: Run) -> None:
    run.start(pooling="max", normalize=True, prompts={"query": "query: "}, default_prompt_name="query")
    second = _second(run, method="alignment", objectives={"translation_ranking": 1}, normalize=False)
    second.start("--max_steps", "1")
    config = load_config(str(second.out)).hf_xsent
    assert (config["pooling"], config["normalize"], config["prompts"]["query"]) == ("max", False, "query: ")
    assert yaml.safe_load((second.out / "recipe.yaml").read_text())["pooling"] == "max"
