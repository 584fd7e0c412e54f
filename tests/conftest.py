"""What every test may use: the real assets where they lie, and tokenizers and encoders built on the spot."""

from __future__ import annotations

import gc
import logging
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

_CACHE = tempfile.TemporaryDirectory(prefix="hf-xsent-tests-")  # removed when the interpreter ends
os.environ.update(
    HF_HUB_OFFLINE="1",  # no test downloads
    HF_HOME=_CACHE.name,  # no test reads or fills the user's caches
    HF_HUB_DISABLE_PROGRESS_BARS="1",
    HF_DATASETS_DISABLE_PROGRESS_BARS="1",
    TOKENIZERS_PARALLELISM="false",
)

import torch  # noqa: E402
import transformers  # noqa: E402

hypothesis.settings.register_profile("no deadline", deadline=None)  # disks and machines may be busy
hypothesis.settings.load_profile("no deadline")

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

transformers.utils.logging.disable_progress_bar()

PAIRS = [
    ("Der Hund schläft im Garten.", "The dog sleeps in the garden."),
    ("Die Katze trinkt Milch.", "The cat drinks milk."),
    ("Wo ist der Bahnhof?", "Where is the station?"),
    ("Ich lese ein gutes Buch.", "I am reading a good book."),
    ("Le chat dort sur la chaise.", "The cat sleeps on the chair."),
    ("Nous mangeons du pain.", "We eat bread."),
    ("Il fait froid ce matin.", "It is cold this morning."),
    ("Elle habite à Paris.", "She lives in Paris."),
    ("El tren llega tarde.", "The train arrives late."),
    ("Mi hermana toca el piano.", "My sister plays the piano."),
    ("Мы живём в большом городе.", "We live in a big city."),
    ("Она пишет письмо другу.", "She writes a letter to a friend."),
    ("Kedi sütü içiyor.", "The cat drinks the milk."),
    ("Bugün hava çok güzel.", "The weather is very nice today."),
    ("今日は寒いです。", "It is cold today."),
    ("私は本を読みます。", "I read a book."),
]


def pytest_collection_finish() -> None:
    """Leave the objects of imported modules out of each garbage collection, of which every training starts one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    transformers.set_seed(0)


@pytest.fixture(autouse=True)
def _log_levels_and_environment_end_with_the_test() -> Iterator[None]:
    """A command sets the log levels of its process, and transformers writes some settings into the environment."""
    loggers = [logging.getLogger(name) for name in ("hf_xsent", "huggingface_hub", "transformers")]
    levels, environment = [logger.level for logger in loggers], dict(os.environ)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    for name in os.environ.keys() - environment.keys() - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    os.environ.update({name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"})


@pytest.fixture(autouse=True)
def _one_thread_for_tiny_models(request: pytest.FixtureRequest) -> None:
    """They only get slower on more, above all where other work wants the cores; real models take a few."""
    torch.set_num_threads(min(4, os.cpu_count() or 1) if "assets" in request.fixturenames else 1)


@pytest.fixture(scope="session")
def assets() -> Path:
    """The folder of real data, models and papers that CI has beside the checkout."""
    named = os.environ.get("HF_XSENT_ASSETS")
    if not named:
        pytest.skip("HF_XSENT_ASSETS is not set: it names the folder with data/, models/ and parity/")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"HF_XSENT_ASSETS names {folder}, which is no folder here")
    return folder


@pytest.fixture
def projected(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an objective that is in the registry during this test, and trains weights of its own."""
    from projected import register_projected

    return register_projected(monkeypatch.setitem)


@pytest.fixture
def pairs() -> list[tuple[str, str]]:
    """Sixteen real sentence pairs, six languages with English; the tiny tokenizers know all of their words."""
    return list(PAIRS)


# Tokenizers. Their vocabularies are laid out by hand: the same ids on every machine, which trainers do not promise.


def _words() -> list[str]:
    from tokenizers.pre_tokenizers import BertPreTokenizer

    split = BertPreTokenizer().pre_tokenize_str
    found = [word for pair in PAIRS for sentence in pair for word, _ in split(sentence)]
    return list(dict.fromkeys(found))


def _characters() -> list[str]:
    latin = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789,;:!-'"
    return sorted(set("".join(_words())) | set(latin))


def make_wordpiece_tokenizer() -> PreTrainedTokenizerFast:
    """BERT's kind: [CLS] sentence [SEP], [PAD] is 0; whole words where known, else characters."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordPiece
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    characters = _characters()
    pieces = dict.fromkeys([*special, *_words(), *characters, *(f"##{character}" for character in characters)])
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, handle_chinese_chars=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=128,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def make_unigram_tokenizer() -> PreTrainedTokenizerFast:
    """XLM-R's kind: <s> sentence </s>, <pad> is 1, words carry a leading ▁; no token types."""
    from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, processors
    from tokenizers.models import Unigram
    from transformers import PreTrainedTokenizerFast

    scores = dict.fromkeys(["<s>", "<pad>", "</s>", "<unk>"], 0.0)
    for rank, word in enumerate(_words()):
        scores.setdefault(f"▁{word}", -2.0 - rank / 100)
        scores.setdefault(word, -4.0 - rank / 100)
    for character in ["▁", *_characters()]:
        scores.setdefault(character, -12.0)
    scores["<mask>"] = 0.0
    pieces = list(scores)
    tokenizer = Tokenizer(Unigram(list(scores.items()), unk_id=3))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", pieces.index("<s>")), ("</s>", pieces.index("</s>"))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        cls_token="<s>",
        sep_token="</s>",
        mask_token=AddedToken("<mask>", lstrip=True),
        model_max_length=128,
        model_input_names=["input_ids", "attention_mask"],
    )


@pytest.fixture(scope="session")
def wordpiece_tokenizer() -> PreTrainedTokenizerFast:
    """BERT's kind."""
    return make_wordpiece_tokenizer()


@pytest.fixture(scope="session")
def unigram_tokenizer() -> PreTrainedTokenizerFast:
    """XLM-R's kind."""
    return make_unigram_tokenizer()


# Encoders. Weights are drawn wide (initializer_range 0.08), so that different sentences get clearly different vectors.

_SHAPE = {
    "num_hidden_layers": 3,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "initializer_range": 0.08,
}


def bert_encoder(tokenizer: PreTrainedTokenizerFast, mlm: bool) -> PreTrainedModel:
    from transformers import BertConfig, BertForMaskedLM, BertModel

    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **_SHAPE)
    return BertForMaskedLM(config) if mlm else BertModel(config)


def xlm_roberta_encoder(tokenizer: PreTrainedTokenizerFast, mlm: bool) -> PreTrainedModel:
    from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM, XLMRobertaModel

    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=258,  # positions are counted from pad_token_id + 1
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        bos_token_id=0,
        pad_token_id=1,
        eos_token_id=2,
        **_SHAPE,
    )
    return XLMRobertaForMaskedLM(config) if mlm else XLMRobertaModel(config)


def _modernbert(tokenizer: PreTrainedTokenizerFast, mlm: bool) -> PreTrainedModel:
    from transformers import ModernBertConfig, ModernBertForMaskedLM, ModernBertModel

    config = ModernBertConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=256,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        local_rope_theta=160_000.0,  # mmBERT's, not the default
        local_attention=8,  # four tokens to each side: short enough to matter in a test sentence
        initializer_cutoff_factor=2.0,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        bos_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        eos_token_id=tokenizer.sep_token_id,
        **_SHAPE,
    )
    return ModernBertForMaskedLM(config) if mlm else ModernBertModel(config)


@pytest.fixture(scope="session")
def encoder_folders(
    tmp_path_factory: pytest.TempPathFactory,
    wordpiece_tokenizer: PreTrainedTokenizerFast,
    unigram_tokenizer: PreTrainedTokenizerFast,
) -> dict[str, Path]:
    """Folders as the Hub has them: three families, each bare and (``…-mlm``) with its MLM head."""
    families: dict[str, tuple[Callable[..., PreTrainedModel], PreTrainedTokenizerFast]] = {
        "bert": (bert_encoder, wordpiece_tokenizer),
        "xlm-roberta": (xlm_roberta_encoder, unigram_tokenizer),
        "modernbert": (_modernbert, wordpiece_tokenizer),
    }
    root = tmp_path_factory.mktemp("encoders")
    folders = {}
    for name, (build, tokenizer) in families.items():
        for mlm in (False, True):
            folder = root / (name + "-mlm" * mlm)
            torch.manual_seed(0)
            build(tokenizer, mlm).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            folders[folder.name] = folder
    return folders


@pytest.fixture(params=["bert", "xlm-roberta", "modernbert"])
def tiny_encoders(request: pytest.FixtureRequest, encoder_folders: dict[str, Path]) -> Path:
    """The folder of one tiny encoder; a test that asks for it runs once a family."""
    return encoder_folders[request.param]


@pytest.fixture
def sentences() -> list[str]:
    """Many lengths out of order, some equal, two of them far longer than ModernBERT's local window."""
    sides = [sentence for pair in PAIRS[:6] for sentence in pair]
    return [sides[0], "a", " ".join(sides[:5]), *sides[1:], "We", " ".join(sides[6:12]), sides[3]]


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may grow beyond 64 kB; writing more fails as on a full disk."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files and folders as they are flushed to the disk, and ``rename NAME``, in their order."""
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("reads the names of open files from /proc")
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def recording_fsync(number: int) -> None:
        fsync(number)
        events.append(Path(f"/proc/self/fd/{number}").readlink().name)

    def recording_replace(path: Path, target: Path) -> Path:
        events.append(f"rename {path.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(Path, "replace", recording_replace)
    return events
