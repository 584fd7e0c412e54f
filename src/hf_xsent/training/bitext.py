"""Check a recipe's sources of bitext and cleaning rules, then read the bitext."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from hf_xsent.data.bitext import Bitext, load_bitext
from hf_xsent.data.cleaning.excluded import exclude_as_files
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.data.languages import subtags_of
from hf_xsent.data.readers.columns import parse_columns
from hf_xsent.data.readers.fields import NEGATIVES
from hf_xsent.data.readers.in_memory import settings_as_files
from hf_xsent.data.readers.resolving import language_of_name, resolve_sources, state_columns
from hf_xsent.data.readers.sources import BitextSource, cache_folder, refuse_missing
from hf_xsent.data.sides import TextSides
from hf_xsent.errors import DataError, RecipeError
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.settings.declare import settings_of
from hf_xsent.settings.read import check_known
from hf_xsent.training.dual_pivot.features import FeatureCache, FeatureRows
from hf_xsent.training.settings import DataSettings

logger = logging.getLogger(__name__)

SPLITS = {"data": "train", "dev": "validation"}


def check_bitext(arguments: DataSettings) -> None:
    """Check files, columns and cleaning rules before any pair is read."""
    if arguments.unpaired:
        return _check_unpaired(arguments, arguments.unpaired)
    if not arguments.data:
        raise RecipeError("no bitext to train on: give --data, such as de=pairs.tsv")
    CleaningRules.parse(arguments.rules, arguments.clean).files()
    _resolve(arguments)


def as_files(settings: Any, splits: Mapping[str, str] = SPLITS) -> Any:
    """Return settings whose pairs, also those to exclude, are files; pairs in memory are written to the cache.

    ``splits`` are the names of the settings, and what is read of a DatasetDict.
    """
    if not isinstance(settings, Mapping):
        return settings
    folder = settings.get("cache_dir")
    written = settings_as_files(settings, splits, folder)
    rules: Any = settings.get("rules")
    if isinstance(rules, Mapping):
        check_known(rules, settings_of(CleaningRules), "rules: ")
        written["rules"] = exclude_as_files(rules, folder)
    return written


def _resolve(arguments: DataSettings) -> tuple[list[BitextSource], list[BitextSource]]:
    """Return the sources of a recipe."""
    columns = parse_columns(arguments.columns)
    return _sources(arguments.data or None, arguments.dev or None, arguments.target_language, columns)


def _sources(
    train: Any, dev: Any, target_language: str, columns: Any, others: bool = False
) -> tuple[list[BitextSource], list[BitextSource]]:
    """Return the sources of training and of dev pairs; ``columns`` may name those of either, and perhaps ``others``."""
    both = []
    for split, data in zip(SPLITS.values(), (train, dev), strict=True):
        options: dict[str, Any] = {"target_language": target_language, "columns": columns, "split": split}
        resolved = {} if data is None else resolve_sources(data, **options, others=True)
        both.append([*chain(*resolved.values())])
    sources = state_columns(chain(*both), columns, others)
    for source in sources:
        if (tag := subtags_of(source.language)) == subtags_of(target_language) != ("und",):
            raise DataError(
                f"{source.name}: source and target are both {tag[0]}: state the language of the source, as de=PATH, "
                "or target_language; pairs within a language have the code und"
            )
    return sources[: len(both[0])], sources[len(both[0]) :]


def _check_unpaired(arguments: DataSettings, files: Sequence[str]) -> None:
    if arguments.data:
        raise RecipeError("a run trains on unpaired files or on bitext, not on both: give --unpaired or --data")
    for name in ("columns", "max_pairs", "rules", "dev_share"):
        if getattr(arguments, name) is not None:
            raise RecipeError(f"--{name} has no effect on unpaired files, which are read as they are: drop it")
    if len(files) != 2:
        raise RecipeError(f"unpaired takes two files, one per language, not {len(files)}")
    for file in files:
        refuse_missing(Path(file))
    languages = [language_of_name(file, "und") or "und" for file in files]
    source, second, target = map(subtags_of, (*languages, arguments.target_language))
    if source == target != ("und",) or len({second[0], target[0]} - {"und"}) > 1:
        raise DataError(
            f"{', '.join(files)}: the names say {' and '.join(languages)}, but the target language is "
            f"{arguments.target_language}: give its file second, or state that of the second file as target_language"
        )


def languages_of(train: Any, dev: Any, target_language: str) -> set[str]:
    """Return the languages of all pairs."""
    return {*train.languages, *(dev.languages if dev else ()), target_language}


def check_has_what_objectives_read(train: Any, dev: Any, config: Any, target_language: str) -> None:
    """Raise an error if pairs lack what the objectives read: links, negatives, languages; warn of unread negatives."""
    if not isinstance(train, Bitext):
        return
    config.check_languages(languages_of(train, dev, target_language))
    if config.needs.links and "links" not in train.fields:
        raise RecipeError(
            "the objectives need word links, but no pair has any: train on the JSONL of hf-xsent align-words"
        )
    read, mined = negatives_read(config), train.fields.intersection(NEGATIVES)
    if read and mined.isdisjoint(read):
        cure = "set symmetric: true, which reads source_negatives, or " if mined else ""
        raise RecipeError(
            f"hard_negatives need {' or '.join(read)}, but no pair has any: {cure}train on the JSONL of "
            "hf-xsent mine-negatives"
        )
    if mined and not read:
        logger.warning("the mined negatives of the pairs are not read: set hard_negatives, such as 1, to use them")


def negatives_read(config: AlignmentConfig) -> list[str]:
    """Return the fields of mined negatives that objectives read; those of sources are for both directions."""
    return [f"{side}_negatives" for side in config.hard_negatives]


def training_rows(train: Any, config: AlignmentConfig, features: FeatureCache | None, seed: int) -> Any:
    """Return the rows that the sampler draws: pairs, sides that are shuffled alone, or features of a frozen encoder."""
    if isinstance(train, Bitext) and (features is not None or not config.keeps_pairs):
        train = TextSides.from_bitext(train, shuffle_independently=not config.keeps_pairs, seed=seed)
    if config.needs.pairs and getattr(train, "shuffle_independently", False):
        raise RecipeError("only objectives that need no pairs train on unpaired files: give --data for others")
    return train if train is None or features is None else FeatureRows(train, features, config.needs.teacher)


def load_train_and_dev(arguments: DataSettings) -> tuple[Bitext | TextSides, Bitext | None]:
    """Read the training data, and the dev bitext: that of ``dev``, or pairs held out of the training bitext."""
    options: dict[str, Any] = {
        "target_language": arguments.target_language,
        "on_error": arguments.on_error,
        "cache_dir": arguments.cache_dir,
    }
    train_sources, dev_sources = _resolve(arguments)
    dev = load_bitext(dev_sources, cleaning=None, **options) if dev_sources else None
    if arguments.unpaired:
        folder = cache_folder(arguments.cache_dir) / "sentences"
        return TextSides.from_files(arguments.unpaired[0], arguments.unpaired[1], folder, arguments.on_error), dev
    train = load_bitext(
        train_sources,
        cleaning=CleaningRules.parse(arguments.rules, arguments.clean),
        max_pairs=arguments.max_pairs,
        max_pairs_choice=arguments.max_pairs_choice,
        **options,
    )
    if not arguments.dev and arguments.dev_pairs:
        train, dev = train.train_dev_split(arguments.dev_pairs, share=arguments.dev_share)
        logger.info("%d pairs are held out of training as dev pairs (--dev_pairs, of each language)", len(dev))
    return train, dev


def as_bitexts(train: Any, dev: Any, target_language: str, columns: Any = None, others: bool = False) -> list[Any]:
    """Read training and dev pairs as bitext, of data sets these splits, unless ``load_bitext`` has read them already.

    ``columns`` may name those of either, and with ``others`` those of data that is not given here.
    """
    given = (train, dev)
    train, dev = (None if hasattr(data, "ranges") else data for data in given)
    both = _sources(train, dev, target_language, columns, others)
    return [
        load_bitext(sources, target_language=target_language, cleaning=None) if sources else data
        for data, sources in zip(given, both, strict=True)
    ]
