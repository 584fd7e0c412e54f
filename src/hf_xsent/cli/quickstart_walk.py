"""The quickstart's steps, one function each, over the same public pieces that any script would use."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram
from tokenizers.trainers import UnigramTrainer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

from hf_xsent.cli.quickstart_report import write_report
from hf_xsent.data.bitext import Bitext, load_bitext, resolve_sources
from hf_xsent.errors import DataError, MissingExtraError, nearest
from hf_xsent.evaluation.report import render_table
from hf_xsent.evaluation.retrieval import RetrievalAccuracy, retrieval_by_language
from hf_xsent.files import write_json
from hf_xsent.logs import quiet_logs
from hf_xsent.models.dap import XlmrWithRTLHead
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import load_config, load_tokenizer, quiet_loading
from hf_xsent.publishing.sentence_transformer import export_sentence_transformer
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.trainer import AlignmentTrainer

SPECIAL_TOKENS = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}
POOLING, MAX_LENGTH = "mean", 64
OBJECTIVES = {"translation_ranking": {"symmetric": True}}  # needs no masked-language head to start from


@dataclass(frozen=True)
class Budget:
    """How long and how fast to train; a new encoder takes larger steps than a pretrained one."""

    steps: int
    learning_rate: float
    pairs_a_step: int


NEW_ENCODER, PRETRAINED_ENCODER = Budget(300, 2e-3, 128), Budget(100, 5e-5, 32)
SHORT = 5  # --short trains a fifth of the steps


def walk(arguments: argparse.Namespace) -> dict[str, Any]:
    """Bitext → encoder → training → accuracy before and after → export → report."""
    started = time.perf_counter()
    quiet_logs()
    set_seed(arguments.seed)
    output = Path(arguments.output)
    data = arguments.data or django_catalogues(arguments.languages)
    resolve_sources(data)
    if arguments.model:
        load_config(arguments.model)
        load_tokenizer(arguments.model)

    _say("1. Reading bitext")
    train, held_out = load_bitext(data, on_error="skip").train_dev_split(arguments.held_out, arguments.seed)
    print(f"{len(train)} pairs to learn from; {len(held_out)} held out, none of whose sentences is among them")

    _say("2. Preparing the encoder")
    start = arguments.model or new_encoder(train, output / "start")
    model = XlmrWithRTLHead.from_backbone(start, pooling=POOLING, max_length=MAX_LENGTH, objectives=OBJECTIVES)
    tokenizer = load_tokenizer(start)
    print(f"{start}: {model.num_parameters() / 1e6:.1f} million weights")

    _say("3. Training")
    pairs = {language: held_out.pairs(language) for language in held_out.languages}
    embedder = SentenceEmbedder(model, tokenizer)
    before = retrieval_by_language(embedder, pairs)
    trainer = _train(arguments, model, train, tokenizer)
    after = retrieval_by_language(embedder, pairs)
    print(accuracy_table(before, after))

    _say("4. Exporting to sentence-transformers")
    exported = export_sentence_transformer(model, output / "model", tokenizer)
    with quiet_loading():
        plain = SentenceTransformer(str(exported), device="cpu", local_files_only=True)
    search = search_examples(plain, pairs)
    print(render_table(["query", "nearest of the other side", "cosine"], search))

    results = {
        "model": start,
        "steps": trainer.state.global_step,
        "pairs": train.languages,
        "held_out": held_out.languages,
        "accuracy": {
            language: {"before": round(before[language].mean, 2), "after": round(after[language].mean, 2)}
            for language in before
        },
        "losses": [[log["step"], log["loss"]] for log in trainer.state.log_history if "loss" in log],
        "search": search,
        "seconds": round(time.perf_counter() - started),
    }
    write_json(output / "results.json", results)
    write_report(output / "report.html", results)
    _say("Done")
    print(f"report   {output / 'report.html'}\nresults  {output / 'results.json'}\nmodel    {exported}")
    print(f'use it:  SentenceTransformer("{exported}").encode(["…"])')
    return results


def django_catalogues(languages: tuple[str, ...] | list[str]) -> dict[str, list[str]]:
    """The translations of Django's messages, by language; Django itself is not imported."""
    spec = find_spec("django")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            'the built-in translations come with Django: pip install "hf-xsent[demo]", or give --data'
        )
    root = Path(spec.submodule_search_locations[0])
    known = sorted(folder.name for folder in (root / "conf" / "locale").iterdir() if folder.is_dir())
    for language in languages:
        if language not in known:
            raise DataError(f"Django has no messages in {language!r}" + nearest(language, known))
    return {
        language: sorted(map(str, root.rglob(f"locale/{language}/LC_MESSAGES/django.po"))) for language in languages
    }


def new_encoder(train: Bitext, folder: Path) -> str:
    """A unigram tokenizer trained on the bitext and a small BERT with random weights, as an ordinary folder."""
    tokenizer = Tokenizer(Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    special = [SPECIAL_TOKENS[name] for name in ("bos_token", "pad_token", "eos_token", "unk_token", "mask_token")]
    trainer = UnigramTrainer(vocab_size=4000, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(_sentences(train), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", model_max_length=MAX_LENGTH, **SPECIAL_TOKENS
    )
    config = BertConfig(
        vocab_size=len(wrapped),
        hidden_size=256,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=128,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
    )
    with quiet_loading():
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
        wrapped.save_pretrained(folder)
    return str(folder)


def accuracy_table(before: dict[str, RetrievalAccuracy], after: dict[str, RetrievalAccuracy]) -> str:
    """Each language's accuracy@1, mean of both directions, and their mean."""
    rows: list[list[object]] = [[code, before[code].pairs, before[code].mean, after[code].mean] for code in before]
    rows.append(["mean", "", *(sum(one.mean for one in side.values()) / len(side) for side in (before, after))])
    return render_table(["accuracy@1 (%)", "pairs", "before", "after"], rows)


def search_examples(model: SentenceTransformer, pairs: dict[str, tuple[list[str], list[str]]]) -> list[list[Any]]:
    """For one held-out sentence of each language, the nearest of all held-out target sentences."""
    targets = sorted({target for _, targets in pairs.values() for target in targets})
    queries = [max(sources, key=lambda text: (len(text) < 60, len(text))) for sources, _ in pairs.values()]
    scores = model.similarity(model.encode(queries), model.encode(targets))
    return [[query, targets[int(row.argmax())], float(row.max())] for query, row in zip(queries, scores, strict=True)]


def _train(arguments: argparse.Namespace, model: XlmrWithRTLHead, train: Bitext, tokenizer: Any) -> AlignmentTrainer:
    budget = PRETRAINED_ENCODER if arguments.model else NEW_ENCODER
    steps = arguments.steps or budget.steps
    settings = AlignmentTrainingArguments(
        output_dir=str(Path(arguments.output) / "training"),
        max_steps=max(1, steps // SHORT) if arguments.short else steps,
        per_device_train_batch_size=budget.pairs_a_step,
        learning_rate=budget.learning_rate,
        save_strategy="no",
        seed=arguments.seed,
        logging_steps=20,
    )
    trainer = AlignmentTrainer(model=model, args=settings, train_dataset=train, processing_class=tokenizer, alpha=1.0)
    trainer.train()
    return trainer


def _sentences(bitext: Bitext) -> Iterator[str]:
    for start in range(0, len(bitext), 1000):
        for pair in bitext.__getitems__(range(start, min(start + 1000, len(bitext)))):
            yield pair["source"]
            yield pair["target"]


def _say(title: str) -> None:
    print(f"\n{title}\n{'─' * len(title)}", flush=True)
