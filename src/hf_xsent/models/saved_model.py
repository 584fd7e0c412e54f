"""Open, start and save models, with the arguments of transformers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import create_branch, file_exists, upload_folder
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from hf_xsent.errors import ModelError, RecipeError, UnsupportedModuleError, did_you_mean
from hf_xsent.files import is_local
from hf_xsent.models.adapters import refuse_other_adapters
from hf_xsent.models.layer_selection import select_layers
from hf_xsent.models.linear_map import LinearMap
from hf_xsent.models.loading import (
    UNUSED_ARGUMENTS,
    has_tokenizer,
    hub_arguments,
    load_config,
    load_encoder,
    load_tokenizer,
    loading_arguments,
    split_config,
)
from hf_xsent.models.saved_form import OF_EXPORTS, check_languages, read_heads, save_model
from hf_xsent.models.sentence_transformer_files import (
    GENERAL_FILE,
    fitting,
    map_of_sentence_transformer,
    read_map,
    settings_of_sentence_transformer,
    starting_settings,
    stated_settings,
)
from hf_xsent.runs.run import RUN_FACTS
from hf_xsent.settings.convert import convert
from hf_xsent.settings.declare import types_of

if TYPE_CHECKING:
    from typing_extensions import Self


class SavedModel(PreTrainedModel):
    """A model over an encoder that starts from any encoder, and is saved as a plain one with a file of heads."""

    config_class: Any
    trains = False  # whether the class has the weights that only training needs
    linear_map: Any  # LinearMap | None: from pooled hidden states to embeddings
    _tokenizer: Any = None
    _saves_heads = True
    _source: str | None = None  # the folder or Hub id of the starting encoder
    _tokenizer_source: str | None = None
    _hub: Mapping[str, Any] = MappingProxyType({})  # the revision and other Hub arguments of the source

    @classmethod
    def from_backbone(cls, name_or_path: str, *, config: Any = None, **settings: Any) -> Self:
        """Start from a pretrained encoder or a model of this package, with a config or keyword arguments.

        ``config_class.setting_names()`` lists the keywords. ``revision``, ``dtype`` (default: float32), ``device_map``
        and transformers' other loading arguments are accepted, too. From a model that this package trained, matching
        heads and language embeddings are loaded.
        """
        name, loading = str(name_or_path), loading_arguments(settings)
        hub = hub_arguments(loading)
        encoder_config, stated = starting_settings(name, **hub)
        chosen = settings.keys() if config is None else None
        config = cls.config_of(config, settings).following(stated, chosen)
        if stated.get("model_type") == "dual-pivot" != config.model_type:
            raise RecipeError(f"{name!r} is dual pivot's mix of the layers of a frozen encoder: start from the encoder")
        model = cls._over_encoder(name, config, encoder_config, loading)
        model.start_weights([key for key in model.state_dict() if not key.startswith("encoder.")])
        if "model_type" in stated:
            model.load_matching(stated, model._read_heads(name, hub))
        model.set_linear_map(read_map(name, stated, **hub))  # that of the modules, which SentenceTransformer may train
        return model

    @classmethod
    def from_sentence_transformer(cls, model: Any, **settings: Any) -> Self:
        """Start from a loaded SentenceTransformer of transformer and pooling; both share the encoder's weights.

        Pooling, prompts and lengths are those of the SentenceTransformer, unless keyword arguments replace them.
        """
        try:
            stated = settings_of_sentence_transformer(model)
        except UnsupportedModuleError as error:
            raise UnsupportedModuleError(
                f"{str(error).rpartition(': ')[0]}: train it with AlignmentLoss and SentenceTransformerTrainer, or "
                "start from its encoder alone by SentenceEncoderForPreTraining.from_backbone(name)"
            ) from error
        if refused := [name for name in ("dropout", "lora_rank") if settings.get(name) is not None]:
            raise RecipeError(f"a SentenceTransformer trains without {refused[0]}: start by from_backbone(name)")
        encoder = getattr(model[0].auto_model, "encoder", None)
        if not isinstance(encoder, PreTrainedModel):  # else the whole is a model of this package
            encoder = model[0].auto_model
        refuse_other_adapters(encoder)
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None  # no embedding uses it, and trained weights need a gradient in every step
        stated = fitting(stated, encoder.config)
        settings = {"max_length": stated["max_length"]} | settings
        config = cls.config_of(None, settings).following(stated, settings)
        trained = cls._around(encoder, config, encoder.name_or_path or None, {}, model.tokenizer)
        trained.start_weights([key for key in trained.state_dict() if not key.startswith("encoder.")])
        trained.set_linear_map(map_of_sentence_transformer(model))
        return trained

    @classmethod
    def from_pretrained(cls, name_or_path: Any, *_: Any, config: Any = None, **settings: Any) -> Any:  # type: ignore[override]
        """Open a model of this package with all its weights, or start from another encoder.

        Keyword arguments replace settings of the saved model, and otherwise are those of ``from_backbone``.
        """
        name, with_info = str(name_or_path), settings.pop("output_loading_info", False)
        given = {key: value for key, value in settings.items() if value is not None or key == "default_prompt_name"}
        settings = {key: value for key, value in given.items() if key not in UNUSED_ARGUMENTS}
        loading = loading_arguments(settings)
        hub = hub_arguments(loading)
        of_folder = load_config(name, **hub)
        config = of_folder if config is None else config
        if not isinstance(config, type(of_folder)):
            raise RecipeError(
                "config takes what AutoConfig.from_pretrained returns: state settings as keyword arguments"
            )
        try:
            encoder_config, stated = stated_settings(name, config, **hub)
        except UnsupportedModuleError:
            if not ("_from_auto" in given and hasattr(config, "encoder_config")):
                raise
            encoder_config, stated = split_config(config)  # SentenceTransformer opens its first module
        earlier = split_config(of_folder)[1]
        stated |= {key: value for key, value in split_config(config)[1].items() if value != earlier.get(key)}
        encoder_config, saved = deepcopy(encoder_config), "model_type" in stated
        method, of_run = cls.config_class.model_type, cls.trains and "objectives" in stated
        theirs = stated.get("model_type", method)
        if theirs == "dual-pivot" != method or (of_run and theirs != method != "alignment"):
            other = "" if theirs == "dual-pivot" else f", or start from it by {cls.__name__}.from_backbone"
            raise ModelError(
                f"{name!r} is a model of the method {theirs}, not of {method}: open it with "
                f"AutoModelForPreTraining{other}"
            )
        names = cls.config_class.saved_names()
        for key in [key for key in settings if key not in names and hasattr(encoder_config, key)]:
            setattr(encoder_config, key, settings.pop(key))
        if saved:
            start = cls.config_class(**{key: value for key, value in stated.items() if key in names})
            start.encoder_layers = None  # it has only these
            if not cls.trains:
                start.lora_rank = None  # saved merged, too
            if "prompts" in settings:
                start.default_prompt_name = None  # one of the saved prompts
            config = cls.config_of(start, settings).following(stated, trains=cls.trains)
            check_languages(name, config, earlier)
        else:
            config = cls.config_of(None, settings).following(stated, settings)
        model = cls._over_encoder(name, config, encoder_config, loading)
        missing = model._load_saved(name, stated, hub)
        model.set_linear_map(read_map(name, stated, **hub))
        model.start_weights(missing)
        info: dict[str, Any] = {"missing_keys": {*missing} if saved else set(), "unexpected_keys": set()}
        info |= {"mismatched_keys": set(), "error_msgs": []}
        return (model.eval(), info) if with_info else model.eval()

    @classmethod
    def _over_encoder(cls, name: str, config: Any, encoder_config: PreTrainedConfig, loading: dict[str, Any]) -> Self:
        """Load the encoder, and build the model over it."""
        encoder = load_encoder(name, encoder_config, config.encoder_dropout, **loading)
        if is_local(name):
            encoder.config.name_or_path = ""  # do not publish local paths
        return cls._around(encoder, config, name, hub_arguments(loading))

    @classmethod
    def _around(
        cls, encoder: PreTrainedModel, config: Any, source: str | None, hub: Mapping[str, Any], tokenizer: Any = None
    ) -> Self:
        """Build the model over an encoder, in the encoder's dtype and on its device."""
        if config.encoder_layers is not None:
            select_layers(encoder, config.encoder_layers)
        model = cls(config.over(encoder.config), encoder=encoder)
        model._source, model._hub, model._tokenizer = source, hub, tokenizer
        model._tokenizer_source = os.path.abspath(source) if source and is_local(source) else source  # it is read later
        for name, weight in chain(model.named_parameters(), model.named_buffers()):
            if not name.startswith("encoder."):
                weight.data = weight.to(encoder.device, encoder.dtype if weight.is_floating_point() else None)
        return model

    def _load_saved(self, name: str, stated: Mapping[str, Any], hub: Mapping[str, Any]) -> list[str]:
        """Load the weights that are saved besides the encoder's; return the names of those that are missing."""
        saved, own = self._read_heads(name, hub), self.state_dict()
        for key in own.keys() & saved.keys():
            if own[key].shape != saved[key].shape:
                shapes = f"{tuple(saved[key].shape)}, but the settings need {tuple(own[key].shape)}"
                raise ModelError(f"{name!r} has {key} of shape {shapes}: use from_backbone to start new heads")
        self.load_state_dict({key: saved[key] for key in own.keys() & saved.keys()}, strict=False)
        return [key for key in own if key not in saved and not key.startswith("encoder.")]

    def _read_heads(self, name: str, hub: Mapping[str, Any]) -> dict[str, Tensor]:
        """Read the weights that are saved besides the encoder's."""
        return read_heads(name, **hub)

    def set_linear_map(self, linear_map: LinearMap | None) -> None:
        """Set the linear map from pooled hidden states to embeddings; None changes nothing."""
        if linear_map is not None:
            device: Any = self.encoder.device
            self.linear_map = linear_map.to(device)

    def start_weights(self, names: Sequence[str]) -> None:
        """Initialize new weights that depend on the encoder."""

    @torch.no_grad()
    def load_matching(self, earlier: Mapping[str, Any], heads: Mapping[str, Tensor]) -> None:
        """Load weights that this model shares with that of an earlier training stage, of these settings and heads."""
        check_languages(str(self._source), self.config, {"languages": earlier.get("languages")})
        for name, weight in self.named_parameters():
            of_objective = name.startswith(("encoder.", "objectives."))
            if not of_objective and name in heads and weight.shape == heads[name].shape:
                weight.copy_(heads[name])

    @property
    def not_plain(self) -> str | None:
        """Why no plain encoder can express this model, and what to train instead; None if one can."""
        if self.config.languages:
            return "a plain encoder has no language embeddings: train without languages"
        return None

    def save_pretrained(
        self,
        save_directory: Any,
        *_: Any,
        state_dict: Mapping[str, Tensor] | None = None,
        is_main_process: bool = True,
        max_shard_size: int | str = "50GB",
        safe_serialization: bool | None = None,
        push_to_hub: bool = False,
        repo_id: str | None = None,
        **hub: Any,
    ) -> None:
        """Save encoder, tokenizer, modules of sentence-transformers and, for training, the heads."""
        if is_main_process:
            folder = Path(save_directory)
            folder.mkdir(parents=True, exist_ok=True)
            if safe_serialization is None or _is_older(folder / GENERAL_FILE, folder / "modules.json"):
                (folder / GENERAL_FILE).unlink(missing_ok=True)  # else SentenceTransformer.save wrote it just before
            save_model(self, folder, state_dict, heads=self._saves_heads and self.trains, max_shard_size=max_shard_size)
            if push_to_hub:
                self.push_to_hub(repo_id or folder.name, **hub)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Upload the model as ``save_pretrained`` writes it, without the weights that only training needs."""
        self._saves_heads = False
        try:
            return super().push_to_hub(*args, **kwargs)
        finally:
            self._saves_heads = True

    def _upload_modified_files(  # type: ignore[override]
        self, working_dir: Any, repo_id: str, files_timestamps: Any, commit_message: str | None = None, **commit: Any
    ) -> Any:
        """Upload the folder, in place of the files of an earlier model, whose card an export also replaces."""
        revision, token = commit.get("revision"), commit.get("token")
        if revision is not None and not revision.startswith("refs/pr") and not commit.get("create_pr"):
            create_branch(repo_id, branch=revision, token=token, exist_ok=True)
        earlier = [*OF_EXPORTS]
        if file_exists(repo_id, RUN_FACTS, revision=revision, token=token):
            (Path(working_dir) / "README.md").unlink()
            earlier.append("README.md")
        message = commit_message or "Upload model"
        return upload_folder(
            repo_id=repo_id, folder_path=working_dir, commit_message=message, delete_patterns=earlier, **commit
        )

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of ``encode``; it is loaded at its first use, from the folder or Hub id of the model."""
        if self._tokenizer is None:
            if not self._tokenizer_source:
                raise ModelError("encode needs the model's tokenizer: set model.tokenizer = tokenizer")
            self._tokenizer = load_tokenizer(self._tokenizer_source, **self._hub)
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def find_tokenizer(self) -> Any:
        """Return the tokenizer; None if the model's folder has none."""
        try:
            return self.tokenizer
        except ModelError:
            if self._tokenizer_source and has_tokenizer(Path(self._tokenizer_source, self._hub.get("subfolder", ""))):
                raise  # it cannot be read
            return None

    @classmethod
    def config_of(cls, config: Any, settings: Mapping[str, Any]) -> Any:
        """Build a config without an encoder from settings, or apply the settings to the given config."""
        keys = cls.config_class.setting_names()
        for key in settings:
            if key not in keys:
                raise RecipeError(f"{cls.config_class.__name__} has no setting {key!r}" + did_you_mean(key, keys))
        hints = types_of(cls.config_class, settings)
        settings = {
            key: value if key == "objectives" else convert(key, value, hints[key]) for key, value in settings.items()
        }
        try:
            if config is not None and not settings:
                return config
            return cls.config_class(**settings) if config is None else config.replaced(**settings)
        except (TypeError, AttributeError, StrictDataclassError) as error:
            wrong = ", ".join(f"{key}={value!r}" for key, value in settings.items())
            raise RecipeError(f"a value has the wrong type among {wrong}: {' '.join(str(error).split())}") from error


def _is_older(path: Path, other: Path) -> bool:
    """Return whether a file was written before another; False if one of them does not exist."""
    return path.is_file() and other.is_file() and path.stat().st_mtime_ns <= other.stat().st_mtime_ns
