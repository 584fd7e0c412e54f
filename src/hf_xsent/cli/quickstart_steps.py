"""Run the quickstart: one function per step, written with the package's public parts."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram
from tokenizers.trainers import UnigramTrainer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

from hf_xsent.data.bitext import Bitext, load_bitext, resolve_sources
from hf_xsent.data.languages import find_language
from hf_xsent.errors import DataError, MissingExtraError, did_you_mean
from hf_xsent.evaluation.retrieval import RetrievalAccuracy, retrieval_by_language
from hf_xsent.files import write_json, write_text
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import load_config, load_tokenizer, quiet_loading
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.pages.charts import bar_chart, curve_chart
from hf_xsent.pages.document import Document, Html, figures, legend
from hf_xsent.pages.tables import Table
from hf_xsent.publishing.sentence_transformer import export_sentence_transformer
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.trainer import AlignmentTrainer
from sentence_transformers import SentenceTransformer

SPECIAL_TOKENS = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}  # ids 0 to 4
POOLING, MAX_LENGTH = "mean", 64
OBJECTIVES = {"translation_ranking": {"symmetric": True}}  # works without an MLM head
# An encoder with random weights needs a higher learning rate than a pretrained one.
NEW_ENCODER: dict[str, Any] = {"max_steps": 300, "learning_rate": 2e-3, "per_device_train_batch_size": 128}
PRETRAINED_ENCODER: dict[str, Any] = {"max_steps": 100, "learning_rate": 5e-5, "per_device_train_batch_size": 32}
SHORT = 5  # --short trains a fifth of the steps
EXAMPLE_LENGTH = 40
BEFORE_AND_AFTER = "before training", "after training"


def run_quickstart(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read bitext, prepare the encoder, train, evaluate before and after, export, report."""
    started = time.perf_counter()
    set_seed(arguments.seed)
    output = Path(arguments.output)
    data = arguments.data or django_catalogues(arguments.languages)
    resolve_sources(data)
    if arguments.model:
        load_config(arguments.model)
        load_tokenizer(arguments.model)

    _heading("1. Reading bitext")
    train, held_out = load_bitext(data, on_error="skip").train_dev_split(arguments.dev_pairs, arguments.seed)
    print(f"{len(train)} training pairs; {len(held_out)} held-out pairs, which share no sentence with them")

    _heading("2. Preparing the encoder")
    start = arguments.model or new_encoder(train, output / "start")
    model = SentenceEncoderForPreTraining.from_backbone(
        start, pooling=POOLING, max_length=MAX_LENGTH, objectives=OBJECTIVES
    )
    tokenizer = load_tokenizer(start)
    print(f"{start}: {model.num_parameters() / 1e6:.1f} million parameters")

    _heading("3. Training")
    pairs = {language: held_out.pairs(language) for language in held_out.languages}
    embedder = SentenceEmbedder(model, tokenizer)
    before = retrieval_by_language(embedder, pairs)
    trainer = _train(arguments, model, train, tokenizer)
    after = retrieval_by_language(embedder, pairs)
    print(accuracy_table(before, after))

    _heading("4. Exporting to sentence-transformers")
    exported = export_sentence_transformer(model, output / "model", tokenizer)
    with quiet_loading():
        plain = SentenceTransformer(str(exported), device="cpu", local_files_only=True)
    search = search_examples(plain, pairs)
    print(Table(["query", "nearest neighbour", "cosine", ""], _marked(search)))

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
    write_text(output / "report.html", report(results).html(":root { --s0: #98a3ae; --s1: #3d7be6; }\n"))
    _heading("Done")
    print(f"report   {output / 'report.html'}\nresults  {output / 'results.json'}\nmodel    {exported}")
    print(f'use it:  SentenceTransformer("{exported}").encode(["…"])')
    return results


def django_catalogues(languages: Sequence[str]) -> dict[str, list[str]]:
    """Find the files of Django's translated messages by language, without importing Django."""
    spec = find_spec("django")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError('the built-in bitext is Django\'s: pip install "hf-xsent[demo]", or give --data')
    root = Path(spec.submodule_search_locations[0])
    known = sorted(folder.name for folder in (root / "conf" / "locale").iterdir() if folder.is_dir())
    for language in languages:
        if language not in known:
            raise DataError(f"Django has no messages in {language!r}" + did_you_mean(language, known))
    return {
        language: sorted(map(str, root.rglob(f"locale/{language}/LC_MESSAGES/django.po"))) for language in languages
    }


def new_encoder(train: Bitext, folder: Path) -> str:
    """Train a unigram tokenizer on the bitext; save it with a small BERT of random weights; return the folder."""
    tokenizer = Tokenizer(Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    special = [*SPECIAL_TOKENS.values()]
    trainer = UnigramTrainer(vocab_size=4000, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(_sentences(train), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {f"{name}_token": token for name, token in SPECIAL_TOKENS.items()} | {
        "cls_token": "<s>",
        "sep_token": "</s>",
    }
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=MAX_LENGTH, **names)
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


def accuracy_table(before: dict[str, RetrievalAccuracy], after: dict[str, RetrievalAccuracy]) -> Table:
    """Format accuracy@1 per language (mean of both directions) and its mean over languages."""
    rows: list[list[object]] = [[code, before[code].pairs, before[code].mean, after[code].mean] for code in before]
    rows.append(["mean", "", *(sum(one.mean for one in side.values()) / len(side) for side in (before, after))])
    return Table(["accuracy@1 (%)", "pairs", "before", "after"], rows)


def search_examples(model: SentenceTransformer, pairs: dict[str, tuple[list[str], list[str]]]) -> list[list[Any]]:
    """Find the nearest held-out target for one held-out sentence per language: query, found, cosine, translation."""
    targets = sorted({target for _, targets in pairs.values() for target in targets})
    queries = list(_different_pairs(pairs))
    scores = model.similarity(model.encode([query for query, _ in queries]), model.encode(targets))
    return [
        [query, targets[int(row.argmax())], float(row.max()), translation]
        for (query, translation), row in zip(queries, scores, strict=True)
    ]


def _different_pairs(pairs: dict[str, tuple[list[str], list[str]]]) -> Iterator[tuple[str, str]]:
    """Yield one pair of about 40 characters per language, if possible with a target that no earlier pair has."""
    used: set[str] = set()
    for sources, targets in pairs.values():
        both = list(zip(sources, targets, strict=True))
        unused = [pair for pair in both if pair[1] not in used] or both
        chosen = min(unused, key=lambda pair: abs(len(pair[0]) - EXAMPLE_LENGTH))
        used.add(chosen[1])
        yield chosen


def _marked(search: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [[query, found, cosine, _mark(found == translation)] for query, found, cosine, translation in search]


def _mark(right: bool) -> str:
    return "✓ right" if right else "✗ wrong"


def report(results: Mapping[str, Any]) -> Document:
    """Return the report with charts and tables."""
    accuracy, losses, search = results["accuracy"], results["losses"], results["search"]
    before, after = (sum(side[when] for side in accuracy.values()) / len(accuracy) for when in ("before", "after"))
    bars = {_name(code): [side["before"], side["after"]] for code, side in accuracy.items()}
    rows = [
        [query, nearest, cosine, _mark(nearest == translation) + f": {translation}" * (nearest != translation)]
        for query, nearest, cosine, translation in search
    ]
    counts = [
        (f"{len(accuracy)}", "languages"),
        (f"{sum(results['pairs'].values()):,}", "training pairs"),
        (f"{sum(results['held_out'].values()):,}", "held-out pairs"),
        (f"{results['steps']}", f"steps, {results['seconds']} s in total"),
    ]
    curve = "Too few steps for a curve."
    if len(losses) > 1:
        curve = Html(curve_chart("Training loss by step", {"loss": (1, losses)}, "step", from_zero=True))
    return Document(
        f"From {before:.1f}% to {after:.1f}% of translations found",
        [
            "Each held-out sentence retrieves its translation among those of its language, in both directions "
            "(accuracy@1 by cosine). No held-out sentence was in the training data, in any language.",
            figures(counts),
        ],
        {
            "Accuracy by language": [
                legend({name: number for number, name in enumerate(BEFORE_AND_AFTER)}),
                Html(bar_chart("Accuracy before and after training, by language", bars, BEFORE_AND_AFTER)),
            ],
            "Training loss (translation ranking)": [curve],
            "Search across languages": [
                "One held-out sentence per language, and its nearest neighbour among the held-out sentences of the "
                "other side, which is right if it is the translation; otherwise the translation follows. The "
                "embeddings are those of the exported model, opened with SentenceTransformer.",
                Table(["Query", "Nearest", "Cosine", "Translation"], rows),
            ],
            "Use the model": [
                f"The training started from {results['model']}. Open the exported folder model next to this page with "
                'SentenceTransformer("model"). All figures are in results.json.'
            ],
        },
    )


def _name(code: str) -> str:
    return "your pairs" if code == "und" else find_language(code).name


def _train(
    arguments: argparse.Namespace, model: SentenceEncoderForPreTraining, train: Bitext, tokenizer: Any
) -> AlignmentTrainer:
    settings = dict(PRETRAINED_ENCODER if arguments.model else NEW_ENCODER)
    steps = arguments.max_steps or settings["max_steps"]
    settings["max_steps"] = max(1, steps // SHORT) if arguments.short else steps
    folder = str(Path(arguments.output) / "training")
    training = AlignmentTrainingArguments(
        output_dir=folder, save_strategy="no", seed=arguments.seed, logging_steps=20, **settings
    )
    trainer = AlignmentTrainer(model=model, args=training, train_dataset=train, processing_class=tokenizer, alpha=1.0)
    trainer.train()
    return trainer


def _sentences(bitext: Bitext) -> Iterator[str]:
    for start in range(0, len(bitext), 1000):
        for pair in bitext.__getitems__(range(start, min(start + 1000, len(bitext)))):
            yield pair["source"]
            yield pair["target"]


def _heading(title: str) -> None:
    print(f"\n{title}\n{'─' * len(title)}", flush=True)
