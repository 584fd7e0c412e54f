"""Make the data and models that the attack on commands needs: tiny random models, made once per attack."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import torch

from ..conftest import PAIRS, bert_encoder, make_wordpiece_tokenizer

RECIPE = {
    "method": "dap",
    "objectives": {"translation_ranking": 1, "representation_translation": {"head_layers": 1}},
    "clean": False,
    "dev_pairs": 4,
    "max_length": 24,
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 8,
    "max_steps": 8,
    "logging_steps": 1,
    "eval_steps": 2,
    "save_steps": 2,
    "save_total_limit": 1,
    "use_cpu": True,
    "report_to": "none",
}
LABELS = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True)
class World:
    """The folder of inputs, which no command changes."""

    folder: Path

    def __truediv__(self, name: str) -> str:
        return str(self.folder / name)

    def recipe(self, **changes: object) -> dict[str, object]:
        """Return the settings of a short training run."""
        data = {"de": self / "de.tsv", "fr": self / "fr.tsv"}
        return RECIPE | {"model": self / "encoder", "data": data, "output_dir": "out", "cache_dir": "cache"} | changes

    def write(self) -> None:
        """Write data, an encoder and settings."""
        self.folder.mkdir(parents=True)
        self._write_texts(random.Random(0))
        torch.manual_seed(0)
        tokenizer = make_wordpiece_tokenizer()
        bert_encoder(tokenizer, mlm=True).save_pretrained(self / "encoder")
        tokenizer.save_pretrained(self / "encoder")
        contrast = {"method": "ppa", "objectives": {"momentum_contrast": {"queue_size": 64}}}
        pivot = {"objectives": {"triplet_ranking": {"margin": 0.5}}, "method": "dual-pivot"}
        short = {"max_steps": 2, "cache_dir": self / "cache", "output_dir": self / "trained"}
        for name, changes in {"pretrain": {}, "contrast": contrast, "pivot": pivot, "short": short}.items():
            self._write(f"{name}.yaml", json.dumps(self.recipe(**changes)))  # JSON is YAML

    def preparation(self) -> list[list[str]]:
        """Return the commands that train and export the model that other commands read."""
        return [["pretrain", self / "short.yaml"], ["export", self / "trained", "-o", self / "export"]]

    def _write_texts(self, rng: random.Random) -> None:
        def random_pair() -> tuple[str, str]:
            chosen = rng.sample(PAIRS, rng.randint(1, 3))
            source, target = (" ".join(side) for side in zip(*chosen, strict=True))
            return source, target

        pairs = list(dict.fromkeys(random_pair() for _ in range(600)))
        self._write("de.tsv", "".join(f"{source}\t{target}\n" for source, target in pairs[:120]))
        self._write("fr.tsv", "".join(f"{source}\t{target}\n" for source, target in pairs[120:200]))
        for name, side in (("source", 0), ("target", 1)):
            self._write(f"{name}.txt", "".join(f"{pair[side]}\n" for pair in pairs[:300]))
            for number in range(3):
                lines = [pair[side] for pair in pairs[number * 40 : number * 40 + 30]]
                self._write(f"{name}/{number}.txt", "".join(f"{line}\n" for line in lines))
        for name, side in (("deu", 0), ("eng", 1)):
            lines = [pair[side] for pair in pairs[200:260]]
            self._write(f"tatoeba/tatoeba.deu-eng.{name}", "".join(f"{line}\n" for line in lines))
        for language, side in (("de", 0), ("en", 1)):
            sides = [pair[side] for pair in pairs[:40]]
            rows = [f"{text}\t{sides[-1 - row]}\t{LABELS[row % 3]}\n" for row, text in enumerate(sides)]
            for kind in ("train", "test"):
                self._write(f"xnli/{kind}-{language}.tsv", "".join(rows))

    def finetune(self, output_dir: str = "out") -> list[str]:
        """Return the command of a short fine-tuning run."""
        settings = {"model": self / "encoder", "output_dir": output_dir, "train": f"en={self / 'xnli/train-en.tsv'}"}
        settings |= {"xnli": self / "xnli", "max_length": "48", "per_device_train_batch_size": "8", "max_steps": "4"}
        settings |= {"save_steps": "2", "logging_steps": "1", "use_cpu": "true", "report_to": "none"}
        return ["finetune", "xnli", *(f"--{key}={value}" for key, value in settings.items())]

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
