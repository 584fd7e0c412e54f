"""Read bitext, train, evaluate before and after, export and report, with the package's public parts."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram
from tokenizers.trainers import UnigramTrainer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, set_seed

from hf_xsent.data.bitext import Bitext, load_bitext
from hf_xsent.errors import DataError, MissingExtraError, OutputError, did_you_mean
from hf_xsent.evaluation.retrieval import retrieval_by_language
from hf_xsent.files import write_json, write_text
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import load_tokenizer, quiet_loading
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.pages.tables import Table
from hf_xsent.publishing.sentence_transformer import export_sentence_transformer
from hf_xsent.quickstart.report import report, search_table
from hf_xsent.quickstart.settings import QuickstartSettings
from hf_xsent.settings.command import command
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.trainer import AlignmentTrainer
from sentence_transformers import SentenceTransformer

logger = logging.getLogger(__name__)

SPECIAL_TOKENS = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}  # ids 0 to 4
POOLING, MAX_LENGTH = "mean", 64
OBJECTIVES = {"translation_ranking": {"symmetric": True}}  # works without an MLM head
# An encoder with random weights needs a higher learning rate than a pretrained one.
NEW_ENCODER: dict[str, Any] = {"max_steps": 300, "learning_rate": 2e-3, "per_device_train_batch_size": 128}
PRETRAINED_ENCODER: dict[str, Any] = {"max_steps": 100, "learning_rate": 5e-5, "per_device_train_batch_size": 32}
EXAMPLE_LENGTH = 40


@dataclass(frozen=True)
class QuickstartResults:
    """The content of results.json, and its folder."""

    data: Mapping[str, Any]
    folder: Path

    def __str__(self) -> str:
        """Format accuracy by language, the examples of search, and what to do next."""
        accuracy = self.data["accuracy"]
        rows: list[list[object]] = [[code, *scores.values()] for code, scores in accuracy.items()]
        means = (sum(scores[when] for scores in accuracy.values()) / len(accuracy) for when in ("before", "after"))
        table = Table(["accuracy@1 (%)", "before", "after"], [*rows, ["mean", *means]])
        files = [f"report   {self.folder / 'report.html'}", f"results  {self.folder / 'results.json'}"]
        files += [f"model    {self.folder / 'model'}"]
        use = f'use it:  SentenceTransformer("{self.folder / "model"}").encode(["…"])'
        return "\n".join([str(table), "", str(search_table(self.data["search"])), "", *files, use])


@command(QuickstartSettings)
def quickstart(settings: QuickstartSettings) -> QuickstartResults:
    """Read bitext, prepare the encoder, train, evaluate before and after, export, report."""
    started, output = time.perf_counter(), _empty_folder(settings.output)
    set_seed(settings.seed)
    data: Any = settings.data or django_catalogues(settings.languages)
    if settings.model:
        load_tokenizer(settings.model)  # a mistake raises its error before data is read
    train, held_out = load_bitext(data, on_error="skip").train_dev_split(settings.dev_pairs, settings.seed)
    logger.info("%d training pairs; %d held-out pairs, which share no sentence with them", len(train), len(held_out))

    start = settings.model or new_encoder(train, output / "start")
    model = SentenceEncoderForPreTraining.from_backbone(
        start, pooling=POOLING, max_length=MAX_LENGTH, objectives=OBJECTIVES
    )
    tokenizer = load_tokenizer(start)
    logger.info("training %s, with %.1f million parameters", start, model.num_parameters() / 1e6)
    pairs = {language: held_out.pairs(language) for language in held_out.languages}
    embedder = SentenceEmbedder(model, tokenizer)
    before = retrieval_by_language(embedder, pairs)
    trainer = _train(settings, output, model, train, tokenizer)
    after = retrieval_by_language(embedder, pairs)

    exported = export_sentence_transformer(model, output / "model", tokenizer)
    with quiet_loading():
        plain = SentenceTransformer(str(exported), device="cpu", local_files_only=True)
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
        "search": search_examples(plain, pairs),
        "seconds": round(time.perf_counter() - started),
    }
    write_json(output / "results.json", results)
    write_text(output / "report.html", report(results).html(":root { --s0: #98a3ae; --s1: #3d7be6; }\n"))
    return QuickstartResults(results, output)


def _empty_folder(output: str | None) -> Path:
    """Return the output folder, which must be new or empty; by default the first free name."""
    if output is None:
        names = chain(["quickstart"], (f"quickstart-{number}" for number in count(2)))
        return Path(next(name for name in names if not Path(name).exists()))
    folder = Path(output)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file: choose a folder with --output")
    if folder.exists() and any(folder.iterdir()):
        raise OutputError(f"{folder} is not empty: choose another folder with --output")
    return folder


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
    tokenizer.train_from_iterator(chain(train.sentences("source"), train.sentences("target")), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    names = {f"{name}_token": token for name, token in SPECIAL_TOKENS.items()}
    names |= {"cls_token": "<s>", "sep_token": "</s>"}
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


def search_examples(model: SentenceTransformer, pairs: Mapping[str, tuple[list[str], list[str]]]) -> list[list[Any]]:
    """Find the nearest held-out target for one held-out sentence per language: query, nearest, cosine, translation."""
    targets = sorted({target for _, targets in pairs.values() for target in targets})
    queries = []
    for place, (sources, translations) in enumerate(pairs.values()):  # another place, because languages share targets
        by_length = sorted(zip(sources, translations, strict=True), key=lambda pair: abs(len(pair[0]) - EXAMPLE_LENGTH))
        queries.append(by_length[place % len(by_length)])
    scores = model.similarity(model.encode([query for query, _ in queries]), model.encode(targets))
    return [
        [query, targets[int(row.argmax())], float(row.max()), translation]
        for (query, translation), row in zip(queries, scores, strict=True)
    ]


def _train(
    settings: QuickstartSettings, output: Path, model: SentenceEncoderForPreTraining, train: Bitext, tokenizer: Any
) -> AlignmentTrainer:
    options = PRETRAINED_ENCODER if settings.model else NEW_ENCODER
    options = options | ({"max_steps": settings.max_steps} if settings.max_steps else {})
    arguments = AlignmentTrainingArguments(
        output_dir=str(output / "training"), save_strategy="no", seed=settings.seed, logging_steps=20, **options
    )
    trainer = AlignmentTrainer(model=model, args=arguments, train_dataset=train, processing_class=tokenizer, alpha=1.0)
    trainer.train()
    return trainer
