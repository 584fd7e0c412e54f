"""Train a cross-lingual sentence encoder on your pairs, compare it with the starting encoder, and export it.

python examples/train.py --model xlm-roberta-base --data de=pairs.tsv --output runs/example
"""

from __future__ import annotations

import argparse

from transformers import TrainingArguments

from hf_xsent import AlignmentTrainer, SentenceEncoderForPreTraining, export_sentence_transformer, load_bitext
from sentence_transformers import SentenceTransformer

parser = argparse.ArgumentParser(description="Train on sentence pairs.")
parser.add_argument("--model", default="xlm-roberta-base")
parser.add_argument("--data", nargs="+", required=True, help="Files of pairs by language: de=pairs.tsv sw=OPUS.sw-en")
parser.add_argument("--output", default="runs/example")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--dev_pairs", type=int, default=100)
options = parser.parse_args()

train, dev = load_bitext(options.data).train_dev_split(options.dev_pairs)
print(train, dev, train[0], sep="\n")

model = SentenceEncoderForPreTraining.from_pretrained(
    options.model, max_length=64, objectives={"translation_ranking": {"symmetric": True}}
)
arguments = TrainingArguments(
    options.output,
    max_steps=options.steps,
    per_device_train_batch_size=32,
    learning_rate=5e-5,
    eval_strategy="steps",
    eval_steps=max(1, options.steps // 2),
    save_steps=max(1, options.steps // 2),
)
trainer = AlignmentTrainer(model, arguments, train, dev)
before = trainer.evaluate()["eval_accuracy"]
trainer.train()
print(f"accuracy@1 on dev: {before:.1f} before, {trainer.evaluate()['eval_accuracy']:.1f} after")

folder = export_sentence_transformer(options.output, f"{options.output}-exported", overwrite=True)
opened = SentenceTransformer(str(folder))
print(opened.similarity(opened.encode(["Ein Hund rennt."]), opened.encode(["A dog runs.", "It rains."])))
