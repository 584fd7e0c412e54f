"""Our models behave like models of transformers: outputs on request, plain encoders as a start, text to embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForPreTraining, AutoTokenizer, BertModel

from hf_xsent import (
    DapForSentenceEmbedding,
    DualPivotForPreTraining,
    SentenceEmbedder,
    SentenceEncoderForPreTraining,
    XlmrWithRTLHead,
    export_sentence_transformer,
)
from hf_xsent.errors import ModelError
from hf_xsent.runs.origin import Origin

RANKING = {"translation_ranking": 1.0}


def _batch(folder: Path, sentences: list[str]) -> Any:
    return AutoTokenizer.from_pretrained(folder)(sentences, padding=True, return_tensors="pt")


@torch.no_grad()
def test_forward_returns_hidden_states_of_the_encoder(tiny_encoders: Path, sentences: list[str]) -> None:
    model = DapForSentenceEmbedding.from_backbone(str(tiny_encoders)).eval()
    batch = _batch(tiny_encoders, sentences[:5])
    expected = AutoModel.from_pretrained(tiny_encoders).eval()(**batch, output_hidden_states=True)
    output = model(**batch, output_hidden_states=True)
    mask = batch["attention_mask"].bool()
    assert len(output.hidden_states) == len(expected.hidden_states)
    for ours, theirs in zip(output.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(ours[mask], theirs[mask], atol=1e-5, rtol=1e-4)
    bare = model(**batch)
    assert bare.hidden_states is None
    torch.testing.assert_close(output.sentence_embedding, bare.sentence_embedding)
    torch.testing.assert_close(output.last_hidden_state, bare.last_hidden_state)
    as_tuple = model(**batch, return_dict=False)
    assert isinstance(as_tuple, tuple) and len(as_tuple) == 3
    model.config.output_hidden_states = True
    assert model(**batch).hidden_states is not None


def test_the_training_forward_returns_a_tuple_on_request(encoder_folders: dict[str, Path]) -> None:
    for kind, settings in ((XlmrWithRTLHead, {"objectives": RANKING}), (DualPivotForPreTraining, {})):
        model = kind.from_backbone(str(encoder_folders["bert"]), **settings).eval()
        batch = _batch(encoder_folders["bert"], ["Wo?", "Where is the station?"])
        sides = [f"{side}_{key}" for side in ("source", "target") for key in ("input_ids", "attention_mask")]
        pairs = {name: batch[name.partition("_")[2]] for name in sides}
        loss, losses = model(**pairs, return_dict=False)
        torch.testing.assert_close(loss, model(**pairs).loss)
        assert len(losses) == 1


def test_a_run_of_one_method_is_not_opened_as_another(tmp_path: Path, encoder_folders: dict[str, Path]) -> None:
    SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"])).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="of the method alignment, not of dap: .*XlmrWithRTLHead.from_backbone"):
        XlmrWithRTLHead.from_pretrained(tmp_path)
    assert XlmrWithRTLHead.from_backbone(str(tmp_path)).objectives.keys() > {"translation_ranking"}
    DualPivotForPreTraining.from_backbone(str(encoder_folders["bert"])).save_pretrained(tmp_path / "dual")
    export_sentence_transformer(tmp_path / "dual", tmp_path / "exported")
    for folder in (tmp_path / "dual", tmp_path / "exported"):  # without its mix of layers
        with pytest.raises(ModelError, match="of the method dual-pivot, not of alignment: open it with AutoModelFor"):
            SentenceEncoderForPreTraining.from_pretrained(folder)


@pytest.mark.parametrize("kind", [XlmrWithRTLHead, DapForSentenceEmbedding, DualPivotForPreTraining])
def test_from_pretrained_of_a_plain_encoder_is_from_backbone(encoder_folders: dict[str, Path], kind: Any) -> None:
    folder = str(encoder_folders["xlm-roberta-mlm"])
    torch.manual_seed(1)
    expected = kind.from_backbone(folder, max_length=9)
    torch.manual_seed(1)
    model = kind.from_pretrained(folder, max_length=9)
    assert model.config.max_length == 9 and type(model) is kind
    weights = model.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in expected.state_dict().items())
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert kind.from_pretrained(folder, dtype=torch.bfloat16).encoder.dtype == torch.bfloat16


def test_every_model_encodes_sentences(encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]) -> None:
    folder = encoder_folders["bert"]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for kind, settings in ((XlmrWithRTLHead, {"objectives": RANKING}), (DualPivotForPreTraining, {})):
        model = kind.from_backbone(str(folder), **settings)
        expected = SentenceEmbedder(model, tokenizer).encode(sentences)
        np.testing.assert_array_equal(model.encode(sentences), expected)
        model.save_pretrained(tmp_path / kind.__name__)
        tokenizer.save_pretrained(tmp_path / kind.__name__)
        again = AutoModel.from_pretrained(tmp_path / kind.__name__)
        np.testing.assert_allclose(again.encode(sentences), expected, atol=1e-6)
    short = again.encode(sentences[:3], normalize_embeddings=True, truncate_dim=8, convert_to_tensor=True)
    assert short.shape == (3, 8)
    torch.testing.assert_close(short.norm(dim=1), torch.ones(3))
    prompted = again.encode(["Where?"], prompt="The dog ")
    np.testing.assert_allclose(prompted, again.encode(["The dog Where?"]), atol=1e-6)


def test_a_model_without_a_folder_asks_for_its_tokenizer(encoder_folders: dict[str, Path]) -> None:
    start = DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]))
    model = DapForSentenceEmbedding(start.config)
    with pytest.raises(ModelError, match="set model.tokenizer"):
        model.encode(["a"])
    model.tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"])
    assert model.encode(["a"]).shape == (1, 32)


def test_automodel_opens_other_encoders_as_before(encoder_folders: dict[str, Path]) -> None:
    plain = AutoModel.from_pretrained(encoder_folders["bert"])
    assert type(plain) is BertModel
    assert type(AutoModel.from_config(plain.config)) is BertModel
    assert type(AutoModel.from_config(plain.config, add_pooling_layer=False)) is BertModel


def test_automodel_opens_the_export_of_an_untrained_encoder_with_encode(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = str(export_sentence_transformer(encoder_folders["bert"], tmp_path / "export"))
    expected = SentenceTransformer(folder).encode(sentences)
    np.testing.assert_allclose(AutoModel.from_pretrained(folder).encode(sentences), expected, atol=1e-5)
    assert type(AutoModelForPreTraining.from_pretrained(folder)) is SentenceEncoderForPreTraining


# Exports, which AutoModel opens as our class with the arguments of transformers


def _exported(encoder: Path, folder: Path, dtype: str = "float32", **settings: Any) -> Path:
    dim = settings.pop("dim", None)
    model = DapForSentenceEmbedding.from_backbone(str(encoder), **{"pooling": "mean"} | settings).eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    return export_sentence_transformer(model, folder, tokenizer, dtype=dtype, verify=False, dim=dim)


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_an_export_opens_with_the_loading_arguments_of_transformers(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], name: str
) -> None:
    folder = _exported(encoder_folders[name], tmp_path / "out")
    expected = AutoModel.from_pretrained(folder).encode(sentences)
    on_disk = {"embeddings": "cpu", "encoder": "disk", "layers": "disk", "final_norm": "cpu"}
    on_disk = {
        part: place for part, place in on_disk.items() if hasattr(AutoModel.from_pretrained(folder).encoder, part)
    }
    for arguments in (
        {"device_map": "cpu"},
        {"device_map": "auto", "max_memory": {"cpu": "1GB"}},
        {"device_map": on_disk, "offload_folder": str(tmp_path / "offloaded")},
        {"low_cpu_mem_usage": True, "weights_only": True},
    ):
        opened = AutoModel.from_pretrained(folder, **arguments)
        assert type(opened) is DapForSentenceEmbedding
        np.testing.assert_allclose(opened.encode(sentences), expected, atol=1e-6)
    for dtype in ({"dtype": torch.bfloat16}, {"torch_dtype": "bfloat16"}, {"torch_dtype": torch.bfloat16}):
        opened = AutoModel.from_pretrained(folder, **dtype)
        assert opened.dtype == opened.config.dtype == torch.bfloat16
        np.testing.assert_allclose(opened.encode(sentences), expected, atol=0.1)


def test_a_float16_export_is_opened_in_float16_unless_a_dtype_is_stated(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = _exported(encoder_folders["bert"], tmp_path / "out", "float16")
    assert AutoModel.from_pretrained(folder).dtype == torch.float16
    assert AutoModel.from_pretrained(folder, dtype="auto").dtype == torch.float16
    assert DapForSentenceEmbedding.from_pretrained(folder, dtype="auto").dtype == torch.float16
    assert AutoModel.from_pretrained(folder, dtype="float32").dtype == torch.float32
    assert AutoModel.from_pretrained(folder, torch_dtype=torch.float32).dtype == torch.float32


@torch.no_grad()
def test_changes_of_an_exports_config_have_an_effect(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = _exported(encoder_folders["bert"], tmp_path / "out")
    batch = _batch(encoder_folders["bert"], ["Where is the station?"])
    opened = AutoModel.from_pretrained(folder, output_hidden_states=True, hidden_dropout_prob=0.3)
    assert len(opened(**batch).hidden_states) == 4 and opened.encoder.config.hidden_dropout_prob == 0.3
    assert isinstance(AutoModel.from_pretrained(folder, return_dict=False)(**batch), tuple)
    config = AutoConfig.from_pretrained(folder, output_hidden_states=True)
    assert AutoModel.from_pretrained(folder, config=config)(**batch).hidden_states is not None
    assert config.hf_xsent["pooling"] == "mean"  # the caller's config is unchanged


@pytest.mark.parametrize("kind", [XlmrWithRTLHead, DapForSentenceEmbedding])
def test_an_export_trains_with_another_dropout(encoder_folders: dict[str, Path], tmp_path: Path, kind: Any) -> None:
    folder = str(_exported(encoder_folders["modernbert"], tmp_path / "out"))
    settings = {"objectives": RANKING, "dropout": 0.3}
    assert kind.from_backbone(folder, **settings).encoder.config.mlp_dropout == 0.3
    assert kind.from_pretrained(folder, **settings).encoder.config.attention_dropout == 0.3


def test_an_exports_dim_truncates_what_automodel_encodes_and_saves(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = _exported(encoder_folders["bert"], tmp_path / "out", normalize=True, dim=8)
    expected = SentenceTransformer(str(folder), device="cpu").encode(sentences)
    assert expected.shape == (len(sentences), 8)
    model = AutoModel.from_pretrained(folder)
    np.testing.assert_allclose(model.encode(sentences), expected, atol=1e-6)
    for dim in (4, 16, 99):  # encode's argument takes precedence over the model's
        theirs = SentenceTransformer(str(folder), device="cpu").encode(sentences, truncate_dim=dim)
        np.testing.assert_allclose(model.encode(sentences, truncate_dim=dim), theirs, atol=1e-6)
    model.save_pretrained(tmp_path / "plain")
    export_sentence_transformer(tmp_path / "plain", tmp_path / "again")
    for name in ("plain", "again"):
        for opened in (
            AutoModel.from_pretrained(tmp_path / name),
            SentenceTransformer(str(tmp_path / name), device="cpu"),
        ):
            np.testing.assert_allclose(opened.encode(sentences), expected, atol=1e-6)
        np.testing.assert_allclose(
            SentenceEmbedder.from_pretrained(str(tmp_path / name), device="cpu").encode(sentences), expected, atol=1e-6
        )
    export_sentence_transformer(model, tmp_path / "full", model.tokenizer, dim=32)
    assert AutoModel.from_pretrained(tmp_path / "full").encode(sentences).shape == (len(sentences), 32)


@pytest.mark.parametrize(
    "prompts",
    [
        None,
        {"query": "the dog: ", "passage": "the cat: "},
        {"query": "the dog: ", "document": "bread: ", "passage": "the cat: "},
        {"query": "the dog: ", "document": "", "passage": "the cat: "},  # as SentenceTransformer saves them
        {"document": "", "query": "the dog: ", "passage": "the cat: "},
        {"query": "the dog: ", "document": ""},
        {"query": "the dog: ", "document": "the cat: ", "passage": "the cat: "},
        {"corpus": "the cat: ", "other": "the dog: "},
        {"other": "the dog: "},
    ],
)
def test_queries_and_documents_have_the_prompts_of_sentence_transformers(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], prompts: dict[str, str] | None
) -> None:
    from sentence_transformers import SentenceTransformer

    settings = {"prompts": prompts, "default_prompt_name": next(iter(prompts))} if prompts else {}
    folder = _exported(encoder_folders["bert"], tmp_path / "out", **settings)
    theirs = SentenceTransformer(str(folder), device="cpu")
    run = DapForSentenceEmbedding.from_pretrained(str(folder))
    run.save_pretrained(tmp_path / "run")
    run.tokenizer.save_pretrained(tmp_path / "run")
    for ours in (
        AutoModel.from_pretrained(folder),
        SentenceEmbedder.from_pretrained(str(folder), device="cpu"),
        SentenceTransformer(str(tmp_path / "run"), device="cpu"),
    ):
        for name in ("encode", "encode_query", "encode_document"):
            expected = getattr(theirs, name)(sentences)
            np.testing.assert_allclose(getattr(ours, name)(sentences), expected, atol=1e-5, err_msg=name)
        for name in prompts or {}:
            expected = theirs.encode(sentences, prompt_name=name)
            np.testing.assert_allclose(ours.encode(sentences, prompt_name=name), expected, atol=1e-5, err_msg=name)
    default = next(iter((prompts or {}).values()), "")
    np.testing.assert_array_equal(run.encode(sentences), run.encode(sentences, prompt=default))
    if prompts and "passage" in prompts:
        model = AutoModel.from_pretrained(folder)
        expected = model.encode(sentences, prompt=prompts.get("document") or prompts["passage"])
        np.testing.assert_array_equal(model.encode_document(sentences), expected)
        query = model.encode(sentences, prompt=prompts["query"])
        np.testing.assert_array_equal(model.encode_document(sentences, prompt_name="query"), query)
        np.testing.assert_array_equal(
            model.encode(sentences, prompt="a ", prompt_name="query"), model.encode(sentences, prompt="a ")
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_opened_export_is_saved_in_its_dtype_by_the_main_process(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], dtype: torch.dtype
) -> None:
    model = AutoModel.from_pretrained(_exported(encoder_folders["bert"], tmp_path / "out"), dtype=dtype)
    model.save_pretrained(tmp_path / "other", is_main_process=False)
    assert not (tmp_path / "other").exists()
    model.save_pretrained(tmp_path / "again")
    assert {one.dtype for one in load_file(tmp_path / "again" / "model.safetensors").values()} == {dtype}
    again = AutoModel.from_pretrained(tmp_path / "again")
    assert again.dtype == dtype
    np.testing.assert_array_equal(again.encode(sentences), model.encode(sentences))


def test_an_opened_export_is_saved_in_files_of_the_stated_size(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    model = AutoModel.from_pretrained(_exported(encoder_folders["bert"], tmp_path / "out"))
    model.save_pretrained(tmp_path / "again", max_shard_size="50KB")
    assert len(list((tmp_path / "again").glob("model-*.safetensors"))) > 1
    np.testing.assert_array_equal(
        AutoModel.from_pretrained(tmp_path / "again").encode(sentences), model.encode(sentences)
    )


# Revisions of a Hub id


def test_config_tokenizer_and_heads_are_those_of_the_revision(encoder_folders: dict[str, Path]) -> None:
    from huggingface_hub.constants import HF_HUB_CACHE

    cached = Path(HF_HUB_CACHE) / "models--someone--revised"
    (cached / "refs").mkdir(parents=True)
    objectives = {"translation_ranking": 1.0, "translation_language_modeling": 1.0}
    for reference, commit, name, length in (("main", "1", "xlm-roberta", 20), ("v1", "2", "bert", 10)):
        (cached / "refs" / reference).write_text(commit * 40)
        folder = str(encoder_folders[name])
        model = XlmrWithRTLHead.from_backbone(folder, objectives=objectives, max_length=length)
        torch.nn.init.normal_(model.objectives["translation_language_modeling"].head.bias)
        model.save_pretrained(cached / "snapshots" / (commit * 40))
        AutoTokenizer.from_pretrained(folder).save_pretrained(cached / "snapshots" / (commit * 40))
    expected = model.encode(["Where is the station?"])
    for kind in (AutoModel, DapForSentenceEmbedding, XlmrWithRTLHead):
        opened = kind.from_pretrained("someone/revised", revision="v1")
        assert opened.config.max_length == 10 and opened.config.encoder_config.model_type == "bert"
        np.testing.assert_allclose(opened.encode(["Where is the station?"]), expected, atol=1e-6)
    started = XlmrWithRTLHead.from_backbone("someone/revised", revision="v1", objectives=objectives)
    heads = [one.objectives["translation_language_modeling"].head.bias for one in (started, model)]
    assert torch.equal(*heads) and started.config.mask_token_id == model.config.mask_token_id
    assert Origin.of(started).identity == f"someone/revised@{'2' * 40}"


def test_settings_changed_in_sentence_transformers_are_saved_by_it(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = _exported(encoder_folders["bert"], tmp_path / "out")
    prompts = {"query": "the dog: "}
    changed = SentenceTransformer(str(folder), device="cpu", prompts=prompts, default_prompt_name="query")
    changed.truncate_dim = 8
    changed.save_pretrained(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu", truncate_dim=8)
    assert again.default_prompt_name == "query"
    np.testing.assert_allclose(again.encode(sentences), changed.encode(sentences), atol=1e-6)


def test_a_model_over_a_truncated_sentence_transformer_is_saved_with_its_width(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = _exported(encoder_folders["bert"], tmp_path / "out")
    start = SentenceTransformer(str(folder), device="cpu", truncate_dim=8)
    SentenceEncoderForPreTraining.from_sentence_transformer(start).save_pretrained(tmp_path / "saved")
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    assert again.truncate_dim == 8
    np.testing.assert_allclose(again.encode(sentences), start.encode(sentences), atol=1e-6)
    SentenceEncoderForPreTraining.from_backbone(str(tmp_path / "saved")).save_pretrained(tmp_path / "second")
    assert SentenceTransformer(str(tmp_path / "second"), device="cpu").truncate_dim == 8


def test_a_model_saved_over_a_folder_of_sentence_transformers_replaces_its_settings(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = tmp_path / "saved"
    prompts = {"query": "the dog: "}
    earlier = SentenceTransformer(str(encoder_folders["bert"]), device="cpu", prompts=prompts, truncate_dim=8)
    earlier.default_prompt_name = "query"
    earlier.save_pretrained(str(folder))
    model = SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"]))
    model.save_pretrained(folder)
    for opened in (SentenceTransformer(str(folder), device="cpu"), AutoModel.from_pretrained(folder)):
        np.testing.assert_allclose(opened.encode(sentences), model.encode(sentences), atol=1e-6)


def _changed_in_sentence_transformers(export: Path, folder: Path, change: str) -> Any:
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling

    from sentence_transformers import SentenceTransformer

    model: Any = SentenceTransformer(str(export), device="cpu")
    if change == "pooling":
        model[1] = Pooling(32, pooling_mode="cls")
    elif change == "module":
        model.append(Dense(32, 32))
    else:
        del model[2]  # Normalize
        model.prompts, model.default_prompt_name, model.truncate_dim, model.max_seq_length = {}, None, 16, 5
    model.save_pretrained(str(folder))
    return model


@pytest.mark.parametrize("change", ["pooling", "settings"])
def test_automodel_encodes_with_what_sentence_transformers_changed(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], change: str
) -> None:
    settings = {"prompts": {"query": "the dog: "}, "default_prompt_name": "query", "normalize": True, "dim": 8}
    folder = _exported(encoder_folders["bert"], tmp_path / "out", **settings)
    expected = _changed_in_sentence_transformers(folder, tmp_path / "saved", change).encode(sentences)
    for kind in (AutoModel, DapForSentenceEmbedding):
        assert np.abs(kind.from_pretrained(folder).encode(sentences, truncate_dim=4) - expected[:, :4]).max() > 0.01
        for arguments in ((tmp_path / "saved", {}), (tmp_path, {"subfolder": "saved"})):
            opened = kind.from_pretrained(arguments[0], **arguments[1])
            np.testing.assert_allclose(opened.encode(sentences), expected, atol=1e-6)


def test_modules_of_an_export_are_those_of_the_revision(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    from huggingface_hub.constants import HF_HUB_CACHE

    cached = Path(HF_HUB_CACHE) / "models--someone--changed"
    (cached / "refs").mkdir(parents=True)
    for reference, commit in (("main", "1" * 40), ("v1", "2" * 40)):
        (cached / "refs" / reference).write_text(commit)
    _exported(encoder_folders["bert"], cached / "snapshots" / ("1" * 40))
    _changed_in_sentence_transformers(cached / "snapshots" / ("1" * 40), cached / "snapshots" / ("2" * 40), "pooling")
    found = {revision: AutoModel.from_pretrained("someone/changed", revision=revision) for revision in ("main", "v1")}
    assert {revision: model.config.pooling for revision, model in found.items()} == {"main": "mean", "v1": "cls"}


@pytest.mark.parametrize("normalize", [False, True])
def test_an_export_with_a_module_that_sentence_transformers_added(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], normalize: bool
) -> None:
    """A linear layer after pooling is ours, too; one after normalization is not."""
    from sentence_transformers import SentenceTransformer

    folder = _exported(encoder_folders["bert"], tmp_path / "out", normalize=normalize)
    changed = _changed_in_sentence_transformers(folder, tmp_path / "saved", "module")
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(again.encode(sentences), changed.encode(sentences), atol=1e-6)
    if normalize:
        assert type(AutoModel.from_pretrained(tmp_path / "saved")) is BertModel
        with pytest.raises(ModelError, match="has a module Dense: open it with sentence_transformers"):
            DapForSentenceEmbedding.from_pretrained(tmp_path / "saved")
        return
    for kind in (AutoModel, DapForSentenceEmbedding):
        opened = kind.from_pretrained(tmp_path / "saved")
        np.testing.assert_allclose(opened.encode(sentences), changed.encode(sentences), atol=1e-6)
