"""Dual pivot: train an extraction (a mix of layers and a linear map) over a frozen encoder (Tien and others, 2022)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.utils import can_return_tuple

from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.input_shuffling import SIDES
from hf_xsent.models.linear_map import LinearMap
from hf_xsent.models.pretraining import AlignmentOutput, SentenceEncoderForPreTraining
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.models.sentence_transformer_files import read_extraction, read_modules
from hf_xsent.objectives.base import SentenceObjective
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.registry import objective_class
from hf_xsent.settings.declare import setting
from hf_xsent.settings.model import VARIANT_OBJECTIVES, VARIANTS, ExtractionSettings
from hf_xsent.tensors.packing import PackedSentences, hash_sentences, pack, pool

if TYPE_CHECKING:
    from typing_extensions import Self


@strict
class DualPivotConfig(ExtractionSettings, AlignmentConfig):
    """f(x): a softmax-weighted mix of all layers, summed over the tokens, then a linear map (section 3.1).

    The supervised objective is ``triplet_ranking``. Without pairs, L = L_adv + λ L_cycle is
    ``{adversarial: 1, cycle: λ}`` (section 3.2). The critic, too, reads normalized embeddings, as in the authors' code.

    The variant ``authors`` is the authors' code: dropout and a layer norm of each token's mix (neither of them with
    ``layer_mix: false``), the mean over tokens, maps with biases and dropout, costs without hinge.
    """

    model_type = "dual-pivot"
    freezes_encoder = True
    decide_embeddings = (
        *AlignmentConfig.decide_embeddings,
        *("variant", "layers", "layer_mix", "linear_map", "layer_norm", "map_bias"),
    )

    objectives: dict[str, Any] = field(default_factory=lambda: {"triplet_ranking": 1.0})
    pooling: str | None = setting(  # never None after __post_init__
        None,
        "Pool a sentence's tokens by their sum or their mean; default: the variant's.",
        choices=("sum", "mean"),
    )
    normalize: bool = setting(True, "Scale sentence embeddings to length 1.")
    dropout: float | None = setting(
        None,
        "Dropout of each token's mix of layers and of the outputs of the linear map, the cycle's maps and the critic; "
        "default: the variant's.",
        at_least=0,
        below=1,
    )

    def __post_init__(self, **kwargs: Any) -> None:
        """Fill in the variant's defaults; reject objectives and settings that train the encoder."""
        for name, value in VARIANTS.get(self.variant, {}).items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        super().__post_init__(**kwargs)
        for name in self.objectives:
            kind = objective_class(name)
            if not issubclass(kind, SentenceObjective) or kind.needs.mask_token or kind.needs.momentum_encoder:
                raise RecipeError(f"dual pivot freezes the encoder, which {name} trains: use objectives over sentences")
        for name in ("languages", "lora_rank", "training_mlp", "random_input_shuffling", "encoder_layers"):
            if getattr(self, name):
                raise RecipeError(f"dual pivot trains only a mix of layers and a linear map: remove {name}")

    def following(self, start: Mapping[str, Any], chosen: Collection[str] | None = None, trains: bool = True) -> Self:
        """Return the config that follows a starting model, also in its layers."""
        config = super().following(start, chosen, trains)
        return config if config.layers is not None else config.copied(layers=start.get("layers"))

    @property
    def refuses_map(self) -> str:
        """Why no model with a linear layer is a start."""
        return "dual pivot trains a new linear map"

    def check_encoder(self) -> None:
        """Raise an error if the encoder lacks one of the layers."""
        super().check_encoder()
        if self.encoder_config is not None and self.layers is not None:
            last = self.encoder_config.num_hidden_layers
            if not self.layers or max(self.layers) > last:
                raise RecipeError(f"layers {self.layers} do not exist: this encoder has 0 (embeddings) to {last}")

    @property
    def objective_defaults(self) -> dict[str, Any]:
        """The variant's settings of triplet ranking and cycle."""
        return VARIANT_OBJECTIVES.get(self.variant, {})

    @property
    def keeps_pairs(self) -> bool:
        """Whether an objective needs pairs, or ``paired_rows`` keeps them."""
        return super().keeps_pairs or bool(self.paired_rows)

    @property
    def encoder_dropout(self) -> float | None:
        """None: the frozen encoder keeps its config."""
        return None

    @property
    def caches_features(self) -> bool:
        """Whether embeddings can be computed from sums over the tokens: not with a layer norm or dropout per token."""
        return self.pooling == "sum" and not (self.layer_mix and (self.layer_norm or self.dropout))

    def check_objectives(self) -> None:
        """Check that the mix of layers or the linear map trains."""
        super().check_objectives()
        if not (self.linear_map or self.layer_mix):
            raise RecipeError("layer_mix and linear_map are both false, so that nothing trains: set one to true")


class DualPivotForSentenceEmbedding(SentenceEncoder):
    """A frozen encoder and an extraction."""

    config_class = DualPivotConfig

    def __init__(self, config: DualPivotConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config, encoder)
        count, width = config.encoder_config.num_hidden_layers + 1, config.encoder_config.hidden_size
        self.layers = _mixed_layers(config.layers, count)
        self.layer_scores = nn.Parameter(torch.zeros(len(self.layers))) if config.layer_mix else None
        self.token_dropout = nn.Dropout(config.dropout or 0.0)
        self.layer_norm = nn.LayerNorm(width) if config.layer_norm and config.layer_mix else None
        self.linear_map = self.new_map(width) if config.linear_map else None
        self.encoder.requires_grad_(False).eval()
        self.post_init()

    def _same_layers(self, earlier: Mapping[str, Any]) -> bool:
        """Whether the layer scores of a model of these settings are of the layers of this one."""
        return _mixed_layers(earlier.get("layers"), self.config.encoder_config.num_hidden_layers + 1) == self.layers

    def load_matching(self, earlier: Mapping[str, Any], heads: Mapping[str, Tensor]) -> None:
        """Load what the models share; the scores of other layers are not those of this model."""
        same = self._same_layers(earlier)
        super().load_matching(earlier, {name: heads[name] for name in heads if same or name != "layer_scores"})

    def _load_saved(self, name: str, stated: Mapping[str, Any], hub: Mapping[str, Any]) -> list[str]:
        """Load the extraction of the same layers."""
        if "model_type" in stated and self.layer_scores is not None and not self._same_layers(stated):
            raise ModelError(f"{name!r} mixes other layers than {self.layers}: use from_backbone to start new heads")
        return super()._load_saved(name, stated, hub)

    def _read_heads(self, name: str, hub: Mapping[str, Any]) -> dict[str, Tensor]:
        """Read the extraction from an export's modules, if it is not saved with the weights of training."""
        if heads := super()._read_heads(name, hub):
            return heads
        modules = read_modules(name, **hub)
        return read_extraction(name, modules, self.layers, **hub) if "mix" in modules else {}

    @property
    def not_plain(self) -> str | None:
        """Why sentence-transformers has no modules for this extraction, and what to train instead."""
        if self.layer_norm is not None:
            return "sentence-transformers has no layer norm of each token: train with layer_norm: false"
        if self.config.pooling == "sum" and self.config.map_bias:
            return "sentence-transformers has no sum over tokens with map_bias: train with pooling: mean"
        return None

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialize the maps, and the mix to the average, which variant ``paper`` returns before training."""
        if isinstance(module, LinearMap):
            module.start(identity=module is getattr(self, "linear_map", None) and self.config.map_start == "identity")
        elif module is self and self.layer_scores is not None:
            init.zeros_(self.layer_scores)
        else:
            super()._init_weights(module)

    def new_map(self, width: int) -> LinearMap:
        """Build a linear map from sentence embeddings to vectors of this width."""
        config = self.config
        return LinearMap(config.encoder_config.hidden_size, width, bool(config.map_bias), config.dropout or 0.0)

    def trained_weights(self) -> list[nn.Parameter]:
        """Return all weights but the encoder's, without a slow walk over its modules, since each step needs them."""
        own = [] if self.layer_scores is None else [self.layer_scores]
        parts = [module.parameters() for name, module in self.named_children() if name != "encoder"]
        return [*own, *chain.from_iterable(parts)]

    def train(self, mode: bool = True) -> Self:
        """Set the training mode of all modules but the encoder."""
        self.training = mode
        for name, module in self.named_children():
            if name != "encoder":
                module.train(mode)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the trained weights."""
        for weight in self.trained_weights():
            weight.grad = None

    @property
    def mixing_weights(self) -> Tensor:
        """L + 1 weights of the hidden states, which add up to 1; zero for layers that are not in the mix."""
        device, dtype = self.device, torch.promote_types(self.dtype, torch.float32)
        if self.layer_scores is None:
            used = torch.full((len(self.layers),), 1 / len(self.layers), device=device, dtype=dtype)
        else:
            used = self.layer_scores.to(dtype).softmax(0)
        count = self.config.encoder_config.num_hidden_layers + 1
        if len(self.layers) == count:
            return used
        places = torch.tensor(self.layers, device=device)
        return torch.zeros(count, device=device, dtype=dtype).index_put((places,), used)

    @torch.no_grad()
    def layer_sums(self, input_ids: Sequence[Tensor], attention_masks: Sequence[Tensor]) -> Tensor:
        """Sum each layer's hidden states over the tokens: N × (L + 1) × d features, which training caches."""
        packed = pack(input_ids, attention_masks)
        return _layer_sums(self.backbone.hidden_states(packed), packed)

    def extract(self, sums: Tensor) -> Tensor:
        """Return N × d embeddings from N × (L + 1) × d sums; mixing layers and summing over tokens commute."""
        weights = self.mixing_weights
        return self._finish(torch.einsum("l,nld->nd", weights, sums.to(weights.dtype)).to(self.dtype))

    def extract_tokens(self, states: Iterable[Tensor], packed: PackedSentences) -> Tensor:
        """Return N × d embeddings from the T × d hidden states of each of the L + 1 layers."""
        if self.config.caches_features:
            return self.extract(_layer_sums(states, packed))
        weights = self.mixing_weights
        mixed = sum(weight * state.to(weights.dtype) for weight, state in zip(weights, states, strict=True))
        if self.config.layer_mix:
            mixed = self.token_dropout(mixed)
        if self.layer_norm is not None:
            mixed = self.layer_norm(mixed.to(self.dtype))
        return self._finish(pool(mixed, packed, self.config.pooling)[packed.restore].to(self.dtype))

    def _encode_last(self, packed: PackedSentences, language_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        states, vectors = self._encode_layers(packed, language_ids)
        return states[-1], vectors

    def _encode_layers(self, packed: PackedSentences, language_ids: Tensor | None) -> tuple[list[Tensor], Tensor]:
        with torch.no_grad():
            states = list(self.backbone.hidden_states(packed))
        return states, self.extract_tokens(states, packed)

    @property
    def default_layer(self) -> int | None:
        """None: the mix of layers."""
        return None


class DualPivotForPreTraining(DualPivotForSentenceEmbedding, SentenceEncoderForPreTraining):
    """The extraction with its objectives, trained on token ids or on layer sums."""

    @can_return_tuple
    def forward(self, **batch: Any) -> Any:
        """Compute the losses of a batch of ``sentence_pairs``."""
        loss, losses = self.sentence_loss(self.sentence_pairs(batch), batch)
        return AlignmentOutput(loss=loss, losses=losses)

    def train_critics(self, batch: Mapping[str, Any], learning_rate: float) -> Mapping[str, Any]:
        """Train the critic on a batch; return it with the hidden states, which are computed once."""
        return super().train_critics(self.encoded(batch), learning_rate)

    @torch.no_grad()
    def encoded(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Add the frozen encoder's hidden states to a batch of token ids, to share them between extractions."""
        if "layer_sums" in batch or "layer_states" in batch:
            return dict(batch)
        ids, masks = ([batch[f"{side}_{key}"] for side in SIDES] for key in ("input_ids", "attention_mask"))
        packed = pack(ids, masks)
        identities = {
            f"{side}_identity": hash_sentences(*batch) for side, *batch in zip(SIDES, ids, masks, strict=True)
        }
        return {**batch, **identities, "layer_states": [*self.backbone.hidden_states(packed)], "packed": packed}

    def sentence_pairs(self, batch: Mapping[str, Any]) -> SentencePairs:
        """Embed both sides from ``layer_sums`` (2N, sources first) with hashes of the sentences, or from token ids."""
        batch = self.encoded(batch)
        if "layer_sums" in batch:
            vectors = self.extract(batch["layer_sums"])
        else:
            vectors = self.extract_tokens(batch["layer_states"], batch["packed"])
        source, target = vectors.chunk(2)
        return SentencePairs(
            source=source,
            target=target,
            source_identity=batch["source_identity"],
            target_identity=batch["target_identity"],
        )


def _mixed_layers(layers: Collection[int] | None, count: int) -> list[int]:
    """Return the layers of a mix in the order of their scores: of ``count`` layers, those that the setting names."""
    return list(range(count)) if layers is None else sorted({*layers})


def _layer_sums(states: Iterable[Tensor], packed: PackedSentences) -> Tensor:
    return torch.stack([pool(hidden, packed, "sum") for hidden in states], 1)[packed.restore]
