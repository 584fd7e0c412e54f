"""Export models of every kind, open the exports in all runtimes that are installed, and write the results.

python benchmarks/runtimes.py --node .venv-runtimes/node --output benchmarks/results/runtimes.json
python benchmarks/runtimes.py --model path/to/multilingual-e5-small --only e5 --output benchmarks/results/runtimes.json
python benchmarks/runtimes.py --model path/to/multilingual-e5-small --only e5 --speed --keep exports --output …

Without --model, all encoders have random weights and tokenizers of 1,500 pieces, trained on the texts of the check.
Results of exports that are not run remain in the output file. Exports in the folder --keep are used again.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    ModernBertConfig,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
)

from hf_xsent import check_runtimes, export_gguf, export_sentence_transformer, trim_vocabulary
from hf_xsent.errors import ModelError
from hf_xsent.models.pretraining import AlignmentForSentenceEmbedding
from hf_xsent.publishing.check import check_sentences
from hf_xsent.publishing.export_folder import RUNTIMES_FILE
from hf_xsent.publishing.onnx import export_onnx, export_openvino, quantize_onnx
from hf_xsent.publishing.runtimes import GGUF

PIECES = 1500
SHAPE = {"num_hidden_layers": 3, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256}
SHAPE |= {"initializer_range": 0.08}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
PROMPT = {"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "query"}


def trained(tokenizer: Tokenizer, trainer: Any) -> PreTrainedTokenizerFast:
    """Train a tokenizer on the texts of the check, and let it add <s> and </s>."""
    tokenizer.train_from_iterator(check_sentences(64), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "pad_token": "<pad>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
        **names,
    )


def unigram() -> PreTrainedTokenizerFast:
    """XLM-R's kind, with the normalization of characters that Unicode calls NFKC."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return trained(
        tokenizer,
        trainers.UnigramTrainer(vocab_size=PIECES, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False),
    )


def wordpiece() -> PreTrainedTokenizerFast:
    """BERT's kind."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return trained(tokenizer, trainers.WordPieceTrainer(vocab_size=PIECES, special_tokens=SPECIAL, show_progress=False))


def byte_bpe() -> PreTrainedTokenizerFast:
    """ModernBERT's kind."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return trained(
        tokenizer,
        trainers.BpeTrainer(vocab_size=PIECES, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False),
    )


def character_bpe() -> PreTrainedTokenizerFast:
    """The kind of Gemma and mmBERT: characters, and bytes for those that have no piece."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    special = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    trained_tokenizer = trained(
        tokenizer, trainers.BpeTrainer(vocab_size=PIECES, special_tokens=special, show_progress=False)
    )
    content = json.loads(trained_tokenizer.backend_tokenizer.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] in SPECIAL]
    trained_tokenizer._tokenizer = Tokenizer.from_str(json.dumps(content))
    return trained_tokenizer


def bert(tokenizer: Any) -> Any:
    """A small BERT."""
    return BertConfig(vocab_size=len(tokenizer), pad_token_id=1, **SHAPE)


def xlm_roberta(tokenizer: Any) -> Any:
    """A small XLM-R."""
    return XLMRobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=514, type_vocab_size=1, **SHAPE)


def modernbert(tokenizer: Any) -> Any:
    """A small ModernBERT, with the rotary positions of mmBERT and attention to 8 tokens on each side."""
    ids = {"pad_token_id": 1, "bos_token_id": 0, "cls_token_id": 0, "eos_token_id": 2, "sep_token_id": 2}
    return ModernBertConfig(vocab_size=len(tokenizer), local_attention=16, local_rope_theta=160_000.0, **ids, **SHAPE)


CUT, TRIMMED = "64 of 128 dimensions", "trimmed"
KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], dict[str, Any]]] = {
    f"BERT, Unigram, mean, {CUT}": (unigram, bert, {"pooling": "mean", "normalize": True, "max_length": 64, **PROMPT}),
    f"XLM-R, Unigram, CLS, {TRIMMED}": (unigram, xlm_roberta, {"pooling": "cls", "max_length": 128, **PROMPT}),
    "XLM-R, Unigram, CLS": (unigram, xlm_roberta, {"pooling": "cls", "max_length": 128, **PROMPT}),
    "BERT, WordPiece, mean": (wordpiece, bert, {"pooling": "mean", "normalize": True, "max_length": 64}),
    "ModernBERT, BPE over bytes, mean": (byte_bpe, modernbert, {"pooling": "mean", "max_length": 128}),
    "ModernBERT, BPE over characters, CLS": (character_bpe, modernbert, {"pooling": "cls", "max_length": 128}),
}
SMALL = "multilingual-e5-small"


def export_kind(name: str, folder: Path, model: str | None) -> None:
    """Write one export."""
    plain = folder.with_name("plain") if name.endswith(TRIMMED) else folder
    dim = int(name.split()[-4]) if name.endswith("dimensions") else None
    if name.startswith(SMALL):
        settings: dict[str, Any] = {"pooling": "mean", "normalize": True, "max_length": 512, **PROMPT}
        encoder, tokenizer = str(model), AutoTokenizer.from_pretrained(model)
    else:
        make_tokenizer, make_config, settings = KINDS[name]
        tokenizer, encoder = make_tokenizer(), str(folder.with_name("encoder"))
        torch.manual_seed(0)
        AutoModel.from_config(make_config(tokenizer)).save_pretrained(encoder)
        tokenizer.save_pretrained(encoder)
    start = AlignmentForSentenceEmbedding.from_backbone(encoder, **settings)
    export_sentence_transformer(start.eval(), plain, tokenizer, dim=dim, verify=False, overwrite=True)
    if plain != folder:
        trim_vocabulary(str(plain), folder, {"texts": check_sentences(64)[::2]}, overwrite=True)
    export_onnx(folder)
    export_openvino(folder)
    quantize_onnx(folder)
    for precision in ("float16", "q8_0"):
        export_gguf(folder, precision)


def main() -> None:
    """Export and check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--model", help="folder of multilingual-e5-small")
    parser.add_argument("--node", help="folder in which npm installed the JavaScript packages")
    parser.add_argument("--only", default="", help="run exports whose name has this text")
    parser.add_argument("--keep", type=Path, help="write the exports into this folder, or use those that are there")
    parser.add_argument("--speed", action="store_true", help="keep sentences per second: the machine is idle")
    parser.add_argument("--kinds", type=int, help="run the first N kinds")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    results = json.loads(arguments.output.read_text("utf-8")) if arguments.output.is_file() else {}
    small = [SMALL, f"{SMALL}, {TRIMMED}", f"{SMALL}, 128 of 384 dimensions"] if arguments.model else []
    problems, absent = [], set()
    for name in [name for name in (*KINDS, *small) if arguments.only in name][: arguments.kinds]:
        with tempfile.TemporaryDirectory() as work:
            folder = Path(arguments.keep or work) / name.replace(", ", "-").replace(" ", "_")
            if not (folder / GGUF["q8_0"]).is_file():  # the last file that is written
                export_kind(name, folder, arguments.model)
            try:
                check_runtimes(folder, arguments.node)
            except ModelError as error:
                problems.append(f"{name}: {error}")
            rows = json.loads((folder / RUNTIMES_FILE).read_text("utf-8"))
        absent |= {row["runtime"] for row in rows if not row["version"]}
        if not arguments.speed:
            rows = [row | {"sentences_per_second": None} for row in rows]
        results[name] = rows
        arguments.output.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if absent:
        logging.warning("NOT CHECKED, because not installed: %s", ", ".join(sorted(absent)))
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main()
