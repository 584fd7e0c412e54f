"""Read bitext, train, and search a pool of all languages before and after, with the package's public parts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain, count
from pathlib import Path
from typing import Any

from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizer, set_seed

from hf_xsent.data.bitext import load_bitext
from hf_xsent.errors import MissingExtraError, OutputError
from hf_xsent.files import write_json, write_text
from hf_xsent.logs import quiet
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import quiet_loading
from hf_xsent.pages.charts import standalone
from hf_xsent.quickstart.pool import PoolSearch, neighbour_lines, pool_chart, pool_table
from hf_xsent.quickstart.settings import QuickstartSettings
from hf_xsent.settings.command import command
from hf_xsent.training.pretrain import pretrain

LANGUAGES = ("de", "es", "fr", "tr", "ru", "el", "ar", "he", "hi", "ja", "ko", "zh_Hans")  # of Django's messages
VOCABULARY, MAX_LENGTH = 4000, 64
# An encoder with random weights needs a higher learning rate than a pretrained encoder.
NEW_ENCODER: dict[str, Any] = {"max_steps": 300, "learning_rate": 2e-3, "per_device_train_batch_size": 128}
PRETRAINED_ENCODER: dict[str, Any] = {"max_steps": 100, "learning_rate": 5e-5, "per_device_train_batch_size": 32}
TOO_EASY = 95.0  # percent of queries whose translation comes first before training
_TOO_EASY = (
    "the held-out pairs are too easy to show what training changes: the translation came first for {:.1f}% of queries "
    "before it. Hold out more pairs (--dev_pairs), or measure pairs that are hard to distinguish: hf-xsent evaluate "
    "--pairs FILE"
)


@dataclass(frozen=True)
class QuickstartResults:
    """The content of results.json, and its folder."""

    data: Mapping[str, Any]
    folder: Path

    def __str__(self) -> str:
        """Format the search by language, the neighbours of the example, and what to do next."""
        parts = [f"One pool of {self.data['sentences']} sentences: % of queries whose translation comes first, and"]
        parts += ["% of sentences of the query's own language among its ten nearest", ""]
        parts += [str(pool_table(self.data["pool"])), "", f"query: {self.data['example']['query']}"]
        for when in ("before", "after"):
            parts += ["", f"nearest sentences {when} training:", *neighbour_lines(self.data["example"][when])]
        if warning := self.data["warning"]:
            parts += ["", f"warning: {warning}"]
        parts += ["", f"chart    {self.folder / 'pool.svg'}", f"results  {self.folder / 'results.json'}"]
        parts += [f"model    {self.folder / 'model'}"]
        return "\n".join([*parts, f'use it:  SentenceTransformer("{self.folder / "model"}").encode(["…"])'])


@command(QuickstartSettings)
def quickstart(settings: QuickstartSettings) -> QuickstartResults:
    """Prepare the encoder, train, search with the encoder before and after."""
    started, output = time.perf_counter(), _empty_folder(settings.output)
    set_seed(settings.seed)
    data: Any = settings.data or django_catalogues()
    start = settings.model or new_encoder(data, output / "start")
    options = PRETRAINED_ENCODER if settings.model else NEW_ENCODER
    trainer = pretrain(
        model=start,
        data=data,
        on_error="skip",
        dev_pairs=settings.dev_pairs,
        alpha=1.0,
        output_dir=str(output / "model"),
        max_length=MAX_LENGTH,
        objectives={"translation_ranking": {"symmetric": True}},
        eval_strategy="epoch",  # "no" holds out no pairs
        eval_on_start=False,
        load_best_model_at_end=False,
        save_strategy="no",
        logging_steps=20,
        seed=settings.seed,
        **options | ({"max_steps": settings.max_steps} if settings.max_steps else {}),
    )
    assert trainer is not None  # a run in a new folder is not finished already
    train: Any = trainer.train_dataset
    held_out: Any = trainer.eval_dataset  # shares no sentence with the training pairs
    pairs = {language: held_out.pairs(language) for language in held_out.languages}
    before, after = (
        PoolSearch(SentenceEmbedder.from_pretrained(model, max_length=MAX_LENGTH), pairs)
        for model in (start, str(output / "model"))
    )
    measured, measured_after = before.figures(), after.figures()
    easy = sum(figures["translation_first"] for figures in measured.values()) / len(measured)
    example = before.example(max(measured, key=lambda language: measured[language]["own_language"]))
    results = {
        "model": start,
        "steps": trainer.state.global_step,
        "pairs": train.languages,
        "held_out": held_out.languages,
        "pool": {
            language: {"before": figures, "after": measured_after[language]} for language, figures in measured.items()
        },
        "sentences": len(before.texts),
        "example": {
            "query": f"{before.texts[example]} ({before.meanings[example][0]})",
            "before": before.neighbours(example),
            "after": after.neighbours(example),
        },
        "warning": _TOO_EASY.format(easy) if easy >= TOO_EASY else None,
        "seconds": round(time.perf_counter() - started),
    }
    write_json(output / "results.json", results)
    write_text(output / "pool.svg", standalone(pool_chart(results["pool"])))
    return QuickstartResults(results, output)


def _empty_folder(output: str | None) -> Path:
    """Return the output folder, which must be new or empty; by default the first free name."""
    if output is None:
        names = chain(["quickstart"], (f"quickstart-{number}" for number in count(2)))
        return Path(next(name for name in names if not Path(name).exists()))
    folder = Path(output)
    if folder.exists() and any(folder.iterdir()):
        raise OutputError(f"{folder} is not empty: choose another folder with --output")
    return folder


def django_catalogues() -> dict[str, list[str]]:
    """Find the files of Django's translated messages by language, without importing Django."""
    spec = find_spec("django")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError('the built-in bitext is Django\'s: pip install "hf-xsent[demo]", or give --data')
    root = Path(spec.submodule_search_locations[0])
    return {
        language: sorted(map(str, root.rglob(f"locale/{language}/LC_MESSAGES/django.po"))) for language in LANGUAGES
    }


def new_encoder(data: Any, folder: Path) -> str:
    """Train a unigram tokenizer on the bitext; save it with a small XLM-R of random weights; return the folder."""
    with quiet():  # training logs the counts of the same pairs
        bitext = load_bitext(data, on_error="skip")
    texts = chain(bitext.sentences("source"), bitext.sentences("target"))
    tokenizer = XLMRobertaTokenizer().train_new_from_iterator(texts, VOCABULARY, show_progress=False)
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=256,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=2 * MAX_LENGTH,
    )
    with quiet_loading():
        XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return str(folder)
