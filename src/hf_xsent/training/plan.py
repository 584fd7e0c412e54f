"""Check a recipe before data is read or a model loaded, and complete its config from the data."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase

from hf_xsent.data.bitext import Bitext
from hf_xsent.data.sides import TextSides
from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.retention import RetentionTask
from hf_xsent.models.backbone import check_frozen_layers
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.layer_selection import reduced_config
from hf_xsent.models.loading import check_tokenizer, load_tokenizer
from hf_xsent.models.sentence_transformer_files import starting_settings
from hf_xsent.runs.run import Run
from hf_xsent.training.bitext import check_bitext, check_has_what_objectives_read, languages_of, negatives_read
from hf_xsent.training.conflicts import UNUSED_DEV, facts_of_arguments, facts_of_model, refuse_conflicts
from hf_xsent.training.dual_pivot.features import NO_FEATURES
from hf_xsent.training.recipe import Recipe
from hf_xsent.training.settings import DataSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """A checked recipe, the starting encoder and its tokenizer."""

    recipe: Recipe
    encoder: str  # Hub id or folder of the starting encoder
    tokenizer: PreTrainedTokenizerBase
    run: Run

    @classmethod
    def of(cls, recipe: Recipe, tokenizer: PreTrainedTokenizerBase | None = None) -> Plan:
        """Check the recipe before data is read; ``tokenizer`` is the start's, if it is loaded already."""
        encoder, training = recipe.start.model, recipe.training
        if encoder is None:
            raise RecipeError("no starting encoder: give --model, a Hub id such as xlm-roberta-base or a folder")
        check_bitext(recipe.data)
        if training.output_dir in (None, "trainer_output"):
            raise RecipeError("no output folder: give --output_dir, a folder for this run")
        flags = recipe.run
        run = Run(str(training.output_dir), flags.resume, flags.resume_with_changes, flags.overwrite, start=encoder)
        if training.should_save and not flags.dry_run:
            run.check()
        encoder_config, stated = starting_settings(encoder)
        if recipe.config.encoder_layers is not None:
            encoder_config = reduced_config(encoder_config, recipe.config.encoder_layers)
        config = recipe.config.following(stated, recipe.stated).copied(encoder_config=encoder_config)
        config.check_objectives()
        config.teachers()  # raises an error if an objective lacks its teacher
        data, facts = recipe.data, facts_of_arguments(training) | facts_of_model(config, training)
        if UNUSED_DEV in facts:
            data = replace(data, dev_pairs=0)
        refuse_conflicts(facts | {"dev" if data.dev else "dev_pairs" if data.dev_pairs else "no dev pairs"})
        _check_kind_of_data(data, config)
        check_frozen_layers(training.frozen_layers, encoder_config)
        if (retention := getattr(training, "retention", None)) is not None:
            RetentionTask.load(retention)  # raises an error before data is read
        tokenizer = load_tokenizer(encoder) if tokenizer is None else tokenizer
        check_tokenizer(tokenizer, encoder_config, config.needs.links)
        return cls(replace(recipe, config=config, data=data), encoder, tokenizer, run)

    def check_data(self, train: Bitext | TextSides, dev: Bitext | None) -> None:
        """Check that the data has the word links and the languages that the objectives need."""
        check_has_what_objectives_read(train, dev, self.recipe.config, self.recipe.data.target_language)
        if not isinstance(train, TextSides):
            if self.recipe.config.needs.links:
                logger.info("%d of %d pairs have word links", train.count_pairs_with("links"), len(train))
            if read := negatives_read(self.recipe.config):
                logger.info("%d of %d pairs have %s", train.count_pairs_with(*read), len(train), " or ".join(read))

    def with_data(self, train: Bitext | TextSides, dev: Bitext | None) -> Plan:
        """Check the data, and return the plan with the data's languages and word pieces in its config."""
        self.check_data(train, dev)
        if isinstance(train, TextSides):
            return self
        languages = languages_of(train, dev, self.recipe.data.target_language)
        config = self.recipe.config.fit(languages, train.sentences, self.tokenizer)
        return replace(self, recipe=replace(self.recipe, config=config))


def _check_kind_of_data(data: DataSettings, config: AlignmentConfig) -> None:
    """Check that the model can train on unpaired files and cached features, where they are given."""
    if data.unpaired and (config.needs.pairs or not config.freezes_encoder):
        raise RecipeError(
            "unpaired files are for dual pivot without pairs: give --method dual-pivot and --objectives adversarial=1 "
            "cycle=N, where N is the paper's λ: 10 for Tatoeba, 5 for BUCC; other objectives read pairs by --data, "
            "also masked_language_modeling (recipe mlm-small)"
        )
    if not config.caches_features and data.features not in (None, "none"):
        other = "--features caches sums of the frozen encoder of dual pivot, which other methods do not have: drop it"
        raise RecipeError(NO_FEATURES if config.freezes_encoder else other)
