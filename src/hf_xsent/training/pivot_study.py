"""Many extractions over one frozen encoder: trained on the same features, measured on the same features."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, set_seed

from hf_xsent.data.benchmarks import TatoebaSet
from hf_xsent.data.bucc import BuccSet
from hf_xsent.data.sides import Sides
from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.mining_f1 import BuccTask
from hf_xsent.evaluation.report import write_json
from hf_xsent.evaluation.retrieval import TatoebaTask
from hf_xsent.evaluation.similarity import Sts17Task
from hf_xsent.models.dual_pivot import DualPivotConfig, DualPivotForPreTraining, DualPivotForSentenceEmbedding
from hf_xsent.models.encodes import SupportsEncode
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.dual_pivot.features import CachedEncoder, FeatureCache
from hf_xsent.training.dual_pivot.trainer import DualPivotTrainer

logger = logging.getLogger(__name__)

Figures = dict[str, float]
SUPERVISED: dict[str, Any] = {"objectives": {"triplet_ranking": 1.0}, "triplet_negatives": 1, "triplet_margin": 0.0}
UNSUPERVISED: dict[str, Any] = {  # the paper's for Tatoeba
    "objectives": {"adversarial": 1.0, "cycle": 10.0},
    "triplet_negatives": 2,
    "triplet_margin": 0.2,
    "critic_steps": 2,
}
WAYS = {"supervised": SUPERVISED, "unsupervised": UNSUPERVISED}


@dataclass(frozen=True)
class Variant:
    """One extraction: what its config says, and on which languages it is trained, if it is."""

    name: str
    settings: Mapping[str, Any]
    languages: Sequence[str] | None = None  # None: all there are
    trained: bool = True
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the training, where they differ


def layer_baselines(layers: int, every: int = 4) -> list[Variant]:
    """The sums of single layers, as they are, and of the average of all."""
    plain = {"layer_mix": False, "linear_map": False}
    some = [Variant(f"sum of layer {n}", {**plain, "layers": [n]}, trained=False) for n in range(0, layers + 1, every)]
    return [*some, Variant("average of the layers", plain, trained=False)]


def ablations(ways: Mapping[str, Mapping[str, Any]] = WAYS) -> list[Variant]:
    """Table 4: the mix or the map alone, the adversarial or the cycle loss alone."""
    unsupervised = ways["unsupervised"]
    losses = {f"L_{name}": {**unsupervised, "objectives": {name: 1.0}} for name in unsupervised["objectives"]}
    losses |= {"L_adversarial + λ L_cycle": {**unsupervised}, "L_supervised": {**ways["supervised"]}}
    parts = {"mix": {"linear_map": False}, "map": {"layer_mix": False}, "mix + map": {}}
    return [
        Variant(f"{loss}, {part}", {**settings, **left_out})
        for loss, settings in losses.items()
        for part, left_out in parts.items()
    ]


def single_layers(layers: int, every: int = 4, ways: Mapping[str, Mapping[str, Any]] = WAYS) -> list[Variant]:
    """Figure 2: trained on one layer at a time."""
    return [
        Variant(f"{way}, layer {layer}", {**settings, "layers": [layer], "layer_mix": False})
        for way, settings in ways.items()
        for layer in range(0, layers + 1, every)
    ]


def numbers_of_pairs(languages: Sequence[str], ways: Mapping[str, Mapping[str, Any]] = WAYS) -> list[Variant]:
    """Table 5: the first 1, 2, 4, 8, 16 language pairs."""
    counts = [count for count in (1, 2, 4, 8, 16) if count <= len(languages)]
    return [
        Variant(f"{way}, {count} pairs", settings, languages[:count])
        for way, settings in ways.items()
        for count in counts
    ]


def lines_of_layers(results: Mapping[str, Figures], name: str) -> dict[str, dict[int, float]]:
    """One figure of ``layer_baselines`` and ``single_layers`` by layer, a line for each way."""
    lines: dict[str, dict[int, float]] = {}
    for label, figures in results.items():
        way, _, layer = label.rpartition("layer ")
        lines.setdefault("as it is" if way == "sum of " else way.rstrip(", "), {})[int(layer)] = figures[name]
    return lines


class PivotStudy:
    """Trains and measures variants; a result that is in ``folder`` already is not made again."""

    def __init__(
        self,
        encoder: str,
        tokenizer: PreTrainedTokenizerBase,
        folder: str | Path,
        train: Sides | None,
        measures: Mapping[str, Callable[[SupportsEncode], Figures]],
        features: str | Path | None = None,
        max_length: int = 64,
        dtype: str = "float16",
        **arguments: Any,
    ) -> None:
        self.folder, self.train_data, self.measures = Path(folder), train, dict(measures)
        self.tokenizer, self.arguments = tokenizer, arguments
        self.base = DualPivotForSentenceEmbedding.from_backbone(encoder, max_length=max_length)
        module: torch.nn.Module = self.base
        module.to("cuda" if torch.cuda.is_available() and not arguments.get("use_cpu") else "cpu")
        self.cache = FeatureCache(features or self.folder / "features", self.base, tokenizer, dtype)

    @property
    def layers(self) -> int:
        """How many layers the encoder has beside its embeddings."""
        return int(self.base.config.encoder_config.num_hidden_layers)

    def run(self, variants: Iterable[Variant]) -> dict[str, Figures]:
        """The figures of each variant, by its name."""
        results: dict[str, Figures] = {}
        for variant in variants:
            stated = {**asdict(variant), **TRAINING, **self.arguments, **self.cache.stamp}
            if variant.trained:
                stated["data"] = [
                    self.cache.layer_sums(side).key for both in self._texts(variant).values() for side in both
                ]
            key = hashlib.sha256(json.dumps(stated, sort_keys=True, default=str).encode()).hexdigest()[:16]
            path = self.folder / "results" / f"{key}.json"
            known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
            figures = known.get("figures", {})
            if missing := [name for name in self.measures if name not in known.get("measures", ())]:
                model = self.model(variant, self.folder / "models" / key)
                for name in missing:
                    figures |= self.measures[name](CachedEncoder(self.cache, model))
                measured = sorted({*known.get("measures", ()), *missing})
                write_json(
                    path, {"name": variant.name, "measures": measured, "figures": figures, "stated": str(stated)}
                )
            results[variant.name] = figures
            logger.info("%s: %s", variant.name, ", ".join(f"{name} {value:.2f}" for name, value in figures.items()))
        return results

    def model(self, variant: Variant, folder: Path) -> DualPivotForSentenceEmbedding:
        """The variant's model, trained now if its folder does not hold it."""
        if (folder / "model.safetensors").is_file():
            loaded: DualPivotForSentenceEmbedding = DualPivotForSentenceEmbedding.from_pretrained(str(folder))
            return loaded
        base = self.base.config
        settings = {"encoder_config": base.encoder_config, "max_length": base.max_length, **variant.settings}
        named = {"encoder_name": base.encoder_name, "encoder_fingerprint": base.encoder_fingerprint}
        config = DualPivotConfig(**settings, **named)
        if not variant.trained:
            return DualPivotForSentenceEmbedding(config, encoder=self.base.encoder).eval()
        arguments = {"output_dir": str(folder), **TRAINING, **self.arguments, **variant.arguments}
        training = AlignmentTrainingArguments(**arguments)
        set_seed(training.seed)
        model = DualPivotForPreTraining(config, encoder=self.base.encoder)
        rows = Sides(self._texts(variant), apart=not model.config.needs_pairs)
        trainer = DualPivotTrainer(model, training, rows, processing_class=self.tokenizer, features=self.cache)
        trainer.train()
        trainer.save_model()
        return model

    def _texts(self, variant: Variant) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
        if self.train_data is None:
            raise RecipeError("no bitext to train on: give --data, such as de=pairs.tsv")
        texts = self.train_data.texts
        return {name: texts[name] for name in (texts if variant.languages is None else variant.languages)}


TRAINING: dict[str, Any] = {  # as the paper's, but for the number of steps
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "warmup_steps": 0,
    "max_grad_norm": 0.0,
    "max_steps": 2000,
    "save_strategy": "no",
    "eval_strategy": "no",
    "logging_steps": 500,
}


def tatoeba_measure(sets: Sequence[TatoebaSet], groups: Sequence[str] = ()) -> Callable[[SupportsEncode], Figures]:
    """Mean accuracy@1 of both directions over all sets, and over groups of which all were measured."""

    def measure(model: SupportsEncode) -> Figures:
        found = TatoebaTask(sets).score(model.encode).groups
        means = {f"Tatoeba {name}": found[name]["mean"] for name in groups if name in found}
        return means | {"Tatoeba": found["measured"]["mean"]}

    return measure


def bucc_measure(sets: Sequence[BuccSet]) -> Callable[[SupportsEncode], Figures]:
    """Table 6: F1 of each set at its own best threshold, and at that of the first, the pivots'."""

    def measure(model: SupportsEncode) -> Figures:
        found = BuccTask(sets).score(model.encode).languages
        pivots = sets[0].pair
        own = {f"BUCC {one.pair}": found[f"{one.pair} {one.split}"]["f1"] for one in sets}
        return own | {
            f"BUCC {one.pair}, threshold of {pivots}": found[f"{one.pair} {one.split} ({pivots})"]["f1"]
            for one in sets[1:]
        }

    return measure


def sts_measure(task: Sts17Task) -> Callable[[SupportsEncode], Figures]:
    """Table 7: Spearman of each track, and the mean of all."""

    def measure(model: SupportsEncode) -> Figures:
        found = task.score(model.encode)
        tracks = {f"STS {pair}": figures["spearman"] for pair, figures in found.languages.items()}
        return tracks | {"STS": found.groups["measured"]["spearman"]}

    return measure


def with_seeds(variants: Iterable[Variant], seeds: Sequence[int]) -> list[Variant]:
    """Each variant once a seed."""
    return [
        replace(one, name=f"{one.name}, seed {seed}", arguments={**one.arguments, "seed": seed})
        for one in variants
        for seed in seeds
    ]
