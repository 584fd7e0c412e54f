"""What a model hands to the objectives that it builds: sizes, special ids and new modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from hf_xsent.errors import RecipeError
from hf_xsent.models.last_layers import LastLayers
from hf_xsent.models.loading import build_encoder
from hf_xsent.models.masked_language_head import MaskedLanguageHead

if TYPE_CHECKING:
    from hf_xsent.models.config import AlignmentConfig


class EncoderParts:
    """``objectives.base.Parts`` of an encoder's config."""

    def __init__(self, config: AlignmentConfig) -> None:
        self.config = config
        self.encoder_config: Any = config.encoder_config
        self.max_length = config.max_length
        self.languages = config.languages
        self.unknown_token_id = config.unknown_token_id
        self.special_token_ids: Sequence[int] = config.special_token_ids or ()

    @property
    def mask_token_id(self) -> int:
        """The tokenizer's id of its mask piece."""
        if self.config.mask_token_id is None:
            raise RecipeError(
                "the config has no mask_token_id, the tokenizer's id of its mask piece: an objective masks"
            )
        return self.config.mask_token_id

    def encoder(self) -> nn.Module:
        """Build another encoder of the same config."""
        return build_encoder(self.encoder_config)

    def last_layers(self, count: int, embeddings: bool = True, attention_dropout: bool = True) -> LastLayers:
        """Build transformer layers like the encoder's last, after its embedding module or without it."""
        return LastLayers(self.encoder_config, count, embeddings, attention_dropout)

    def masked_language_head(self, **options: Any) -> MaskedLanguageHead:
        """Build a masked-language head."""
        return MaskedLanguageHead(self.encoder_config, **options)
