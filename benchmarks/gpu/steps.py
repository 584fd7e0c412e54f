"""Measure training steps of TR and DAP: ours, the trainer of sentence-transformers, and a padded Hugging Face loop."""

from __future__ import annotations

import tempfile
from typing import Any

from setting import Setting, Skipped, operations, peak_mib, peak_operations, sentences, synchronized, token_counts

WARMUP = 3
TR: dict[str, Any] = {"translation_ranking": 1.0}


class Clock:
    """Count steps after the first ones, until their number or the time is reached."""

    def __init__(self, setting: Setting, batch: int, warmup: int, steps: int) -> None:
        self.setting, self.batch, self.warmup, self.most = setting, batch, warmup, warmup + steps
        self.steps, self.started, self.ended = 0, 0.0, 0.0

    def step(self) -> bool:
        """Count a step; return whether it was the last."""
        self.steps += 1
        if self.steps == self.warmup:
            self.started = synchronized(self.setting.device)
        if self.steps <= self.warmup:
            return False
        self.ended = synchronized(self.setting.device)
        return self.steps == self.most or self.setting.left < 0.3 * self.setting.seconds

    def as_callback(self) -> Any:
        """Return a Trainer callback that ends the run at the last step."""
        from transformers import TrainerCallback

        clock = self

        class Steps(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                control.should_training_stop = control.should_training_stop or clock.step()

        return Steps()

    @property
    def pairs_per_second(self) -> float:
        """Return the pairs per second after the first steps."""
        return self.batch * (self.steps - self.warmup) / (self.ended - self.started)


def train(
    setting: Setting,
    contender: str,
    precision: str = "bf16",
    method: str = "TR",
    batch: int | None = None,
    longest: bool = False,
    **options: Any,
) -> None:
    """Train and report pairs per second, peak memory, and the share of the peak by counted operations."""
    import torch

    batch = batch or setting.batch
    if precision == "fp16" and not setting.device.startswith("cuda"):
        raise Skipped("fp16 training needs a CUDA device")
    warmup, steps = (1, 2) if setting.quick or batch > setting.batch else (WARMUP, 20)
    clock = Clock(setting, batch, warmup, steps)
    distinct = min(batch * (warmup + steps), 24 * 1024 if not setting.quick else 24)
    texts = sentences(setting, 2 * distinct, longest=longest)
    pairs = [*zip(texts[::2], texts[1::2], strict=True)]
    note = {"ours": ours, "sentence-transformers": sentence_transformers, "padded loop": padded_loop}[contender](
        setting, pairs, clock, precision, method, options
    )
    row: dict[str, Any] = {"pairs_per_second": round(clock.pairs_per_second, 1), "peak_mib": peak_mib(setting.device)}
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    done = 3 * (operations(setting, token_counts(texts)) / distinct + _head(setting, texts, method) / distinct)
    row["share_of_peak"] = round(done * clock.pairs_per_second / peak_operations(setting, dtype), 4)
    setting.report(**row, steps=clock.steps - warmup, **({"note": note} if note else {}))


def _head(setting: Setting, texts: list[str], method: str) -> float:
    """Count the operations of DAP's head: layers over both sentences of each pair, and the vocabulary."""
    if method == "TR":
        return 0.0
    hidden, counts = setting.shape["hidden"], token_counts(texts)
    joined = [source + target - 2 for source, target in zip(counts[::2], counts[1::2], strict=True)]
    predicted = sum(counts[1::2]) - len(joined)
    layers = operations(setting, joined) * 2 / setting.shape["layers"]
    return layers + 2 * predicted * hidden * (hidden + _restricted(setting))


def _restricted(setting: Setting) -> int:
    return min(setting.shape["vocabulary"], 30_000)


def trainer_options(setting: Setting, clock: Clock, precision: str) -> dict[str, Any]:
    """Return the options that both trainers share."""
    return {
        "per_device_train_batch_size": clock.batch,
        "max_steps": clock.most,
        "learning_rate": 2e-5,
        "save_strategy": "no",
        "logging_steps": 10_000,
        "disable_tqdm": True,
        "report_to": "none",
        "dataloader_num_workers": 0 if setting.quick else 4,
        "use_cpu": setting.device == "cpu",
        precision: True,
    }


def ours(setting: Setting, pairs: list[Any], clock: Clock, precision: str, method: str, options: dict[str, Any]) -> str:
    """Train with AlignmentTrainer."""
    from torch.utils.data import DataLoader
    from transformers.utils import is_flash_attn_2_available

    from hf_xsent import AlignmentTrainer, AlignmentTrainingArguments, XlmrWithRTLHead
    from hf_xsent.models.loading import load_tokenizer

    class InOrder(AlignmentTrainer):
        def get_train_dataloader(self) -> Any:
            return DataLoader(
                self.train_dataset, clock.batch, collate_fn=self.data_collator, pin_memory=True,
                num_workers=self.args.dataloader_num_workers,
            )  # fmt: skip

    attention = {name: options.pop(name) for name in ("attn_implementation", "dropout") if name in options}
    if "attn_implementation" in attention and not is_flash_attn_2_available():
        raise Skipped("flash_attn is not installed")
    rtl = {"weight": 0.8, "restrict_vocabulary": True, "vocabulary_size": _restricted(setting)}
    objectives = TR if method == "TR" else TR | {"representation_translation": rtl}
    model = XlmrWithRTLHead.from_backbone(
        setting.encoder, pooling="mean", max_length=32, objectives=objectives, **attention
    )
    examples: Any = [{"source": source, "target": target, "language": "und"} for source, target in pairs]
    with tempfile.TemporaryDirectory() as folder:
        arguments = AlignmentTrainingArguments(
            output_dir=folder, **trainer_options(setting, clock, precision), **options
        )
        trainer = InOrder(model, arguments, examples, processing_class=load_tokenizer(setting.encoder))
        trainer.add_callback(clock.as_callback())
        trainer.train()
    return ""


def sentence_transformers(
    setting: Setting, pairs: list[Any], clock: Clock, precision: str, method: str, options: dict[str, Any]
) -> str:
    """Train with SentenceTransformerTrainer; with flash attention, it drops padding."""
    from datasets import Dataset
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    model, note = sentence_transformer(setting)
    dataset = Dataset.from_dict({"anchor": [a for a, _ in pairs], "positive": [b for _, b in pairs]})
    with tempfile.TemporaryDirectory() as folder:
        trainer = SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(output_dir=folder, **trainer_options(setting, clock, precision)),
            train_dataset=dataset,
            loss=MultipleNegativesRankingLoss(model),
        )
        trainer.add_callback(clock.as_callback())
        trainer.train()
    return note


def sentence_transformer(setting: Setting, **options: Any) -> tuple[Any, str]:
    """Return the encoder as a SentenceTransformer with the fastest attention there is, and the attention's name."""
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers.utils import is_flash_attn_2_available

    from sentence_transformers import SentenceTransformer

    flash = setting.device.startswith("cuda") and is_flash_attn_2_available()
    attention = "flash_attention_2" if flash else "sdpa"
    transformer = Transformer(
        setting.encoder, max_seq_length=32, model_kwargs={"attn_implementation": attention, **options}
    )
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), "mean")]
    return SentenceTransformer(modules=modules, device=setting.device), f"{attention}{', unpadded' * flash}"


def padded_loop(
    setting: Setting, pairs: list[Any], clock: Clock, precision: str, method: str, options: dict[str, Any]
) -> str:
    """Train with a plain loop: each side padded to its longest, two forward passes, cross entropy."""
    import torch
    from torch.nn import functional as F
    from transformers import AutoModel, AutoTokenizer

    device = torch.device(setting.device)
    tokenizer = AutoTokenizer.from_pretrained(setting.encoder)
    model = AutoModel.from_pretrained(setting.encoder, add_pooling_layer=False).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16

    def embed(texts: list[str]) -> Any:
        batch = tokenizer(texts, padding=True, truncation=True, max_length=32, return_tensors="pt").to(device)
        mask = batch["attention_mask"][..., None]
        return (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)

    step, last = 0, False
    while not last:
        start = step * clock.batch % max(1, len(pairs) - clock.batch + 1)
        with torch.autocast(device.type, dtype):
            sides = zip(*pairs[start : start + clock.batch], strict=True)
            source, target = (F.normalize(embed(list(side)).float(), dim=-1) for side in sides)
        loss = F.cross_entropy(source @ target.T / 0.05, torch.arange(len(source), device=device))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        step, last = step + 1, clock.step()
    return "sdpa, padded"
