from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

from hf_xsent import (
    DapForSentenceEmbedding,
    SentenceEmbedder,
    SentenceEncoderForPreTraining,
    export_sentence_transformer,
)
from hf_xsent.errors import DataError, ModelError, OutputError, RecipeError
from hf_xsent.models import sentence_transformer_files
from hf_xsent.models.pretraining import AlignmentForSentenceEmbedding
from hf_xsent.publishing import sentence_transformer

# Runs where hf_xsent cannot be imported.
_FOREIGN = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_xsent":
            raise ImportError("hf_xsent is not installed here")

sys.meta_path.insert(0, Refuse())
try:
    import hf_xsent
except ImportError:
    pass
else:
    raise SystemExit("hf_xsent can be imported: this test proves nothing")

import json
import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

facts = {}
for folder in json.loads(sys.argv[1]):
    sentences = json.loads(sys.argv[2])
    model = SentenceTransformer(folder, device="cpu")
    np.save(folder + ".theirs.npy", model.encode(sentences))
    plain, report = AutoModel.from_pretrained(folder, output_loading_info=True)
    batch = AutoTokenizer.from_pretrained(folder)(sentences, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        states = plain.eval()(**batch).last_hidden_state
    np.save(folder + ".states.npy", states.float().numpy())
    facts[folder] = {
        "max_seq_length": model.max_seq_length,
        "modules": [type(module).__name__ for module in model],
        "class": type(plain).__name__,
        "tokens": batch["input_ids"].shape[1],
        "unexpected": sorted(report["unexpected_keys"]),
        "missing": sorted(report["missing_keys"]),
    }
print(json.dumps(facts))
"""


def _foreign_process(folders: list[Path], sentences: list[str]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _FOREIGN, json.dumps([str(folder) for folder in folders]), json.dumps(sentences)],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def _model(folder: Path, **settings: Any) -> tuple[DapForSentenceEmbedding, PreTrainedTokenizerBase]:
    return DapForSentenceEmbedding.from_backbone(str(folder), **settings).eval(), AutoTokenizer.from_pretrained(folder)


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.slow
def test_an_export_opens_without_our_code(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    """Three families, three poolings, two lengths, with and without normalisation, opened without hf_xsent."""
    choices: dict[str, dict[str, Any]] = {
        "bert": {"pooling": "cls", "max_length": 12, "normalize": True},
        "xlm-roberta": {"pooling": "mean", "max_length": 128, "normalize": False},
        "modernbert": {"pooling": "max", "max_length": 20, "normalize": True},
    }
    ours = {}
    for name, settings in choices.items():
        model, tokenizer = _model(encoder_folders[name], **settings)
        folder = export_sentence_transformer(model, tmp_path / name, tokenizer)
        assert folder == tmp_path / name
        ours[folder] = SentenceEmbedder(model, tokenizer).encode(sentences)
    opened = _foreign_process(list(ours), sentences)
    for folder, vectors in ours.items():
        settings, facts = choices[folder.name], opened[str(folder)]
        np.testing.assert_allclose(np.load(f"{folder}.theirs.npy"), vectors, atol=1e-5)
        assert facts["max_seq_length"] == settings["max_length"]
        assert facts["modules"] == ["Transformer", "Pooling", *["Normalize"] * settings["normalize"]]
        assert facts["tokens"] == min(settings["max_length"], facts["tokens"])
        assert facts["class"] in ("BertModel", "XLMRobertaModel", "ModernBertModel")
        assert not facts["unexpected"] and not facts["missing"]
        if settings["pooling"] == "cls":
            first = np.load(f"{folder}.states.npy")[:, 0]
            first /= np.linalg.norm(first, axis=1, keepdims=True)
            np.testing.assert_allclose(first, vectors, atol=1e-5)


def test_an_export_is_plain(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    model, tokenizer = _model(encoder_folders["bert"], pooling="mean", normalize=True, max_length=17)
    folder = export_sentence_transformer(model, tmp_path / "out", tokenizer)
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "bert" and config["architectures"] == ["BertModel"]
    assert not any("auto_map" in path.read_text() for path in folder.rglob("*.json"))
    assert not any(str(encoder_folders["bert"]) in path.read_text() for path in folder.rglob("*.json"))
    assert not list(folder.rglob("*.bin")) and not list(folder.rglob("*.py"))
    modules = json.loads((folder / "modules.json").read_text())
    assert [module["type"] for module in modules] == [
        "sentence_transformers.models.Transformer",
        "sentence_transformers.models.Pooling",
        "sentence_transformers.models.Normalize",
    ]
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert pooling == {
        "word_embedding_dimension": 32,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_weightedmean_tokens": False,
        "pooling_mode_lasttoken": False,
    }
    special = json.loads((folder / "special_tokens_map.json").read_text())
    assert special["pad_token"]["content"] == "[PAD]" and special["pad_token"]["lstrip"] is False
    assert json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"] == 17
    assert json.loads((folder / "tokenizer_config.json").read_text())["model_max_length"] == 17
    assert "mean" in (folder / "README.md").read_text() and "17 tokens" in (folder / "README.md").read_text()
    pooler = {"pooler.dense.weight", "pooler.dense.bias"}  # so that AutoModel has no weights to warn of
    assert set(load_file(folder / "model.safetensors")) == set(model.encoder.state_dict()) | pooler


def test_only_the_length_of_the_export_is_stated_whatever_the_tokenizer_truncated_to_before(
    tiny_encoders: Path, tmp_path: Path, sentences: list[str]
) -> None:
    trained = SentenceEncoderForPreTraining.from_backbone(str(tiny_encoders), max_length=8)
    trained.encode(sentences)
    trained.save_pretrained(tmp_path / "run")
    settings = json.loads((tmp_path / "run" / "tokenizer_config.json").read_text())
    earlier = {"max_length": 8, "stride": 0, "truncation_strategy": "longest_first"}  # as of some models on the Hub
    (tmp_path / "run" / "tokenizer_config.json").write_text(json.dumps(settings | earlier))
    folder = export_sentence_transformer(str(tmp_path / "run"), tmp_path / "out", max_length=16, verify=False)
    stated = json.loads((folder / "tokenizer_config.json").read_text())
    assert stated["model_max_length"] == 16 and not earlier.keys() & stated.keys()
    for each in (tmp_path / "run", folder):
        tokenizer = json.loads((each / "tokenizer.json").read_text())
        assert tokenizer["truncation"] is None and tokenizer["padding"] is None


def test_the_callers_model_and_tokenizer_stay_as_they_were(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    model, tokenizer = _model(encoder_folders["bert"], max_length=9)
    model.train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    config, longest = model.config.to_dict(), tokenizer.model_max_length
    export_sentence_transformer(model, tmp_path / "out", tokenizer, dtype="float16")
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert {weight.dtype for weight in model.state_dict().values()} == {torch.float32}
    assert (model.config.to_dict(), tokenizer.model_max_length) == (config, longest)
    assert model.training


def test_a_tokenizer_that_pads_on_the_left_is_exported_with_padding_on_the_right(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    """BERT counts positions from the padding on; our embeddings do not depend on padding."""
    model, _ = _model(encoder_folders["bert"], pooling="mean")
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"], padding_side="left")
    folder = export_sentence_transformer(model, tmp_path / "out", tokenizer)  # compares the vectors itself
    assert AutoTokenizer.from_pretrained(folder).padding_side == "right" and tokenizer.padding_side == "left"


def test_float16_halves_the_file_and_nearly_keeps_the_vectors(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    model, tokenizer = _model(encoder_folders["xlm-roberta"], pooling="mean", normalize=True)
    full = export_sentence_transformer(model, tmp_path / "full", tokenizer)
    half = export_sentence_transformer(model, tmp_path / "half", tokenizer, dtype="float16")
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (full, half)]
    assert sizes[1] < 0.6 * sizes[0]
    assert {weight.dtype for weight in load_file(half / "model.safetensors").values()} == {torch.float16}
    assert json.loads((half / "config.json").read_text())["dtype"] == "float16"
    ours = SentenceEmbedder(model, tokenizer).encode(sentences)
    theirs = SentenceEmbedder.from_pretrained(str(half), device="cpu").encode(sentences)
    np.testing.assert_allclose(theirs, ours, atol=5e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_of_half_precision_in_memory_is_exported(
    encoder_folders: dict[str, Path], tmp_path: Path, dtype: torch.dtype
) -> None:
    model, tokenizer = _model(encoder_folders["bert"], pooling="mean", dtype=dtype)
    folder = export_sentence_transformer(model, tmp_path / "out", tokenizer)
    assert {weight.dtype for weight in load_file(folder / "model.safetensors").values()} == {torch.float32}


# Files of the user are not overwritten; no partial export remains


def test_a_folder_that_is_not_an_export_is_never_overwritten(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    model, tokenizer = _model(encoder_folders["bert"])
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(OutputError):
            export_sentence_transformer(model, tmp_path / "thesis", tokenizer, overwrite=overwrite)
    with pytest.raises(OutputError):
        export_sentence_transformer(model, tmp_path / "thesis" / "chapter.txt", tokenizer, overwrite=True)
    assert _names(tmp_path) == ["thesis", "thesis/chapter.txt"]
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


def test_an_older_export_is_replaced_only_when_asked(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    model, tokenizer = _model(encoder_folders["bert"], normalize=True)
    folder = export_sentence_transformer(model, tmp_path / "out", tokenizer, verify=False)
    with pytest.raises(OutputError, match="exists already: choose another folder or replace it with (--)?overwrite"):
        export_sentence_transformer(model, folder, tokenizer)
    other, tokenizer = _model(encoder_folders["xlm-roberta"])
    export_sentence_transformer(other, folder, tokenizer, overwrite=True, verify=False)
    assert json.loads((folder / "config.json").read_text())["model_type"] == "xlm-roberta"
    assert len(json.loads((folder / "modules.json").read_text())) == 2
    assert _names(tmp_path)[0] == "out" and not any(name.endswith(".part") for name in _names(tmp_path))


@pytest.mark.parametrize("name", ["checkpoint-500", "run_state.json", "trainer_state.json"])
def test_a_run_or_checkpoint_is_not_replaced_by_an_export(
    encoder_folders: dict[str, Path], tmp_path: Path, name: str
) -> None:
    model, tokenizer = _model(encoder_folders["bert"])
    folder = export_sentence_transformer(model, tmp_path / "out", tokenizer, verify=False)
    (folder / name).mkdir()
    with pytest.raises(OutputError, match="is not an export"):
        export_sentence_transformer(model, folder, tokenizer, overwrite=True, verify=False)


@pytest.mark.parametrize("kind", [str, Path])
def test_an_empty_folder_may_be_written_into(encoder_folders: dict[str, Path], tmp_path: Path, kind: Any) -> None:
    model, tokenizer = _model(encoder_folders["bert"])[0], kind(encoder_folders["bert"])
    (tmp_path / "out").mkdir()
    assert (export_sentence_transformer(model, tmp_path / "out", tokenizer, verify=False) / "modules.json").is_file()


def test_the_current_folder_is_not_replaced(
    encoder_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell of the user would stay in a deleted folder, and show no files."""
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    for folder in (".", tmp_path / "out"):
        with pytest.raises(OutputError, match="is the current folder, or holds it: name another folder"):
            export_sentence_transformer(encoder_folders["bert"], folder)


@pytest.mark.parametrize("older", [False, True])
def test_a_failed_check_leaves_everything_as_it_was(
    encoder_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    model, tokenizer = _model(encoder_folders["bert"])
    if older:
        export_sentence_transformer(model, tmp_path / "out", tokenizer, verify=False)
    before = _names(tmp_path)
    monkeypatch.setattr(sentence_transformer, "_LARGEST_DIFFERENCE", {"float32": -1.0})
    with pytest.raises(ModelError, match=r"differ from the model's by \d\.\de-\d\d \(relative\): nothing was written"):
        export_sentence_transformer(model, tmp_path / "out", tokenizer, overwrite=True)
    assert _names(tmp_path) == before


def test_the_check_notices_a_wrong_export(
    encoder_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = _model(encoder_folders["bert"], pooling="mean")
    flags = {"pooling_mode_mean_tokens": "cls", "pooling_mode_cls_token": "mean", "pooling_mode_max_tokens": "max"}
    monkeypatch.setattr(sentence_transformer_files, "_POOLING_FLAGS", flags)
    with pytest.raises(ModelError, match="differ from the model"):
        export_sentence_transformer(model, tmp_path / "out", tokenizer)
    assert _names(tmp_path) == []


def test_a_failure_while_writing_leaves_nothing(
    encoder_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = _model(encoder_folders["bert"], max_length=9)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    longest = tokenizer.model_max_length
    monkeypatch.setattr(type(tokenizer), "save_pretrained", fail)
    with pytest.raises(OSError, match="no space left"):
        export_sentence_transformer(model, tmp_path / "out", tokenizer)
    assert _names(tmp_path) == []
    assert tokenizer.model_max_length == longest


# What cannot be exported


def test_language_embeddings_cannot_be_exported(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    model, tokenizer = _model(encoder_folders["bert"], languages=["de", "en"])
    with pytest.raises(ModelError, match="^this model cannot be exported: a plain encoder has no language embeddings"):
        export_sentence_transformer(model, tmp_path / "out", tokenizer)
    assert _names(tmp_path) == []


def test_missing_tokenizers_and_folders_are_named(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    model, tokenizer = _model(encoder_folders["bert"])
    with pytest.raises(ModelError, match="^the model's folder has no tokenizer: pass one with the model$"):
        export_sentence_transformer(type(model)(model.config), tmp_path / "out")
    with pytest.raises(ModelError, match="nowhere"):
        export_sentence_transformer(tmp_path / "nowhere", tmp_path / "out")
    model.save_pretrained(tmp_path / "bare")
    for path in (tmp_path / "bare").glob("tokenizer*"):
        path.unlink()
    with pytest.raises(ModelError, match="holds no tokenizer"):
        export_sentence_transformer(tmp_path / "bare", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_of_another_encoder_is_refused(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    """Its ids and its padding are wrong, so that the export would be useless."""
    model, _ = _model(encoder_folders["bert"])
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"])
    tokenizer.add_tokens([f"new{number}" for number in range(50)])
    with pytest.raises(ModelError, match=f"tokenizer .* has {len(tokenizer)} tokens, but the encoder only "):
        export_sentence_transformer(model, tmp_path / "out", tokenizer)
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"], pad_token=None)
    with pytest.raises(ModelError, match="tokenizer .* has no padding token: set pad_token and save it"):
        export_sentence_transformer(model, tmp_path / "out", tokenizer)
    assert not (tmp_path / "out").exists()


def test_a_cut_export_states_its_width(encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]) -> None:
    from sentence_transformers import SentenceTransformer

    model, tokenizer = _model(encoder_folders["xlm-roberta"], normalize=True)
    folder = export_sentence_transformer(model, tmp_path / "cut", tokenizer, dim=6)
    theirs = SentenceTransformer(str(folder), device="cpu").encode(sentences)
    whole = SentenceEmbedder(model, tokenizer).encode(sentences)
    np.testing.assert_allclose(theirs, whole[:, :6], atol=1e-5)
    with pytest.raises(ModelError, match="^dim 33 does not exist: the embeddings of this model have 32 dimensions$"):
        export_sentence_transformer(model, tmp_path / "wide", tokenizer, dim=33)
    assert not (tmp_path / "wide").exists()


@pytest.mark.parametrize("loaded", [False, True])
def test_an_export_may_read_more_than_training_did(
    encoder_folders: dict[str, Path], tmp_path: Path, loaded: bool
) -> None:
    from sentence_transformers import SentenceTransformer

    model = DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), max_length=8)
    model.save_pretrained(tmp_path / "run")
    given = model if loaded else tmp_path / "run"
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"])
    folder = export_sentence_transformer(given, tmp_path / "long", tokenizer, max_length=24)
    opened, text = SentenceTransformer(str(folder), device="cpu"), " ".join(["the dog runs in the garden"] * 9)
    assert opened.max_seq_length == 24 and model.config.max_length == 8
    expected = SentenceEmbedder(model, tokenizer, 24).encode([text])
    np.testing.assert_allclose(opened.encode([text]), expected, atol=1e-5)
    assert "truncated to 24 tokens" in (folder / "README.md").read_text("utf-8")
    with pytest.raises(ModelError, match="max_length 9999 does not fit: this encoder takes 3 to"):
        export_sentence_transformer(given, tmp_path / "longer", tokenizer, max_length=9999)
    (tmp_path / "de.txt").write_text("Ein Hund.\n", encoding="utf-8")
    with pytest.raises(DataError, match="needs texts of two languages"):  # and leaves the model as it was
        options = {"max_length": 24, "remove_language": [f"de={tmp_path}/de.txt"]}
        export_sentence_transformer(given, tmp_path / "neutral", tokenizer, **options)
    assert model.config.max_length == 8


# What servers read, by their sources


def _flags_of_text_embeddings_inference(folder: Path) -> str:
    """Return the pooling that text-embeddings-inference reads (router/src/lib.rs, get_backend_model_type, PoolConfig).

    It reads 1_Pooling/config.json only. Versions up to 1.2 need all four flags; cls takes precedence over mean.
    """
    config = json.loads((folder / "1_Pooling" / "config.json").read_text())
    flags = [
        config[f"pooling_mode_{name}"] for name in ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    ]
    assert all(isinstance(flag, bool) for flag in flags) and sum(flags) == 1
    return "cls" if flags[0] else "mean" if flags[1] else "unsupported"


def _pooling_of_vllm(folder: Path) -> tuple[str | None, bool]:
    """Return pooling and normalisation that vLLM reads (vllm/transformers_utils/config.py, get_pooling_config)."""
    modules = json.loads((folder / "modules.json").read_text())
    paths = [one["path"] for one in modules if one["type"] == "sentence_transformers.models.Pooling"]
    config = json.loads((folder / paths[0] / "config.json").read_text())
    names = (
        [config["pooling_mode"]]
        if "pooling_mode" in config
        else [key for key, value in config.items() if value is True]
    )
    types = [name.removeprefix("pooling_mode_").split("_", 1)[0].upper() for name in names]
    found = [kind for kind in types if kind in ("CLS", "LAST", "MEAN")]
    normalised = any(one["type"] == "sentence_transformers.models.Normalize" for one in modules)
    return (found[-1] if found else None), normalised


@pytest.mark.parametrize(("pooling", "normalize"), [("cls", True), ("mean", False), ("max", False)])
def test_servers_read_the_pooling(
    encoder_folders: dict[str, Path], tmp_path: Path, pooling: str, normalize: bool
) -> None:
    model, tokenizer = _model(encoder_folders["xlm-roberta"], pooling=pooling, normalize=normalize, max_length=30)
    folder = export_sentence_transformer(model, tmp_path / "out", tokenizer, verify=False)
    served = pooling != "max"
    assert _flags_of_text_embeddings_inference(folder) == (pooling if served else "unsupported")
    assert _pooling_of_vllm(folder) == (pooling.upper() if served else None, normalize)
    # text-embeddings-inference: ModelConfig, STConfig; vLLM: get_sentence_transformer_tokenizer_config
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["XLMRobertaModel"] and isinstance(config["pad_token_id"], int)
    assert config["model_type"] == "xlm-roberta" and "max_position_embeddings" in config and "id2label" not in config
    transformer = json.loads((folder / "sentence_bert_config.json").read_text())
    assert transformer["max_seq_length"] == 30 and transformer["do_lower_case"] is False
    assert (folder / "tokenizer.json").is_file()


def test_servers_read_the_widths_of_matryoshka(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    """vLLM refuses ``dimensions`` without is_matryoshka or matryoshka_dimensions (vllm/config/model.py)."""
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"])
    model = AlignmentForSentenceEmbedding.from_backbone(
        str(encoder_folders["bert"]), pooling="mean", objectives={"matryoshka": {"weight": 1.0, "dims": [32, 16, 8]}}
    )
    folder = export_sentence_transformer(model, tmp_path / "out", tokenizer)
    config = AutoConfig.from_pretrained(folder)
    assert config.is_matryoshka is True and config.matryoshka_dimensions == [8, 16, 32]
    again = export_sentence_transformer(folder, tmp_path / "again")
    assert AutoConfig.from_pretrained(again).matryoshka_dimensions == [8, 16, 32]
    narrow = export_sentence_transformer(folder, tmp_path / "narrow", dim=4)
    assert AutoConfig.from_pretrained(narrow).matryoshka_dimensions == [4, 8, 16, 32]
    plain, _ = _model(encoder_folders["bert"])
    folder = export_sentence_transformer(plain, tmp_path / "plain", tokenizer, verify=False)
    assert not hasattr(AutoConfig.from_pretrained(folder), "is_matryoshka")
    folder = export_sentence_transformer(plain, tmp_path / "cut", tokenizer, dim=8, verify=False)
    assert AutoConfig.from_pretrained(folder).matryoshka_dimensions == [8, 32]


def test_transformers_4_and_5_read_the_same_modernbert(
    encoder_folders: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, tokenizer = _model(encoder_folders["modernbert"])
    folder = export_sentence_transformer(model, tmp_path / "out", tokenizer)
    config = json.loads((folder / "config.json").read_text())
    read = {name: config.pop(name) for name in ("rope_parameters", "layer_types")}
    assert {name: getattr(AutoConfig.from_pretrained(folder), name) for name in read} == read
    (folder / "config.json").write_text(json.dumps(config))  # the rest is what transformers 4 knows
    assert {name: getattr(AutoConfig.from_pretrained(folder), name) for name in read} == read
    assert not caplog.records
    model.encoder.config.layer_types = ["sliding_attention", "full_attention", "full_attention"]
    export_sentence_transformer(model, tmp_path / "other", tokenizer, verify=False)
    assert "transformers 4 cannot compute this ModernBERT" in caplog.text


def test_prompts_of_training_are_those_of_the_export(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    from sentence_transformers import SentenceTransformer

    prompts = {"query": "query: ", "passage": "passage: "}
    model, tokenizer = _model(encoder_folders["xlm-roberta"], prompts=prompts, default_prompt_name="query")
    folder = export_sentence_transformer(model, tmp_path / "out", tokenizer)
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert prompts.items() <= theirs.prompts.items() and theirs.default_prompt_name == "query"
    vectors = SentenceEmbedder(model, tokenizer).encode(sentences)
    without = SentenceEmbedder(model, tokenizer, prompt="").encode([f"query: {one}" for one in sentences])
    np.testing.assert_allclose(vectors, without, atol=1e-6)
    np.testing.assert_allclose(theirs.encode(sentences), vectors, atol=1e-5)
    again = export_sentence_transformer(folder, tmp_path / "again")
    for one in (folder, again):
        assert json.loads((one / "config_sentence_transformers.json").read_text())["prompts"] == prompts | {
            "document": "passage: "
        }
    model.save_pretrained(tmp_path / "run")
    tokenizer.save_pretrained(tmp_path / "run")
    np.testing.assert_allclose(
        SentenceEmbedder.from_pretrained(str(tmp_path / "run")).encode(sentences), vectors, atol=1e-5
    )
    with pytest.raises(RecipeError, match="default_prompt_name 'other' is not among the prompts: query, passage"):
        _model(encoder_folders["xlm-roberta"], prompts=prompts, default_prompt_name="other")
