"""Train any SentenceTransformer with our losses, measured on translation retrieval by our task.

python examples/train_with_sentence_transformers.py --model intfloat/multilingual-e5-small --data pairs.tsv
"""

from __future__ import annotations

import argparse

from sentence_transformers.sentence_transformer.evaluation import TranslationEvaluator

from hf_xsent import AlignmentLoss, load_bitext
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)

parser = argparse.ArgumentParser(description="Train a SentenceTransformer on sentence pairs.")
parser.add_argument("--model", default="intfloat/multilingual-e5-small")
parser.add_argument("--data", nargs="+", required=True, help="Files of pairs by language: de=pairs.tsv sw=OPUS.sw-en")
parser.add_argument("--output", default="runs/sentence-transformer")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--dev_pairs", type=int, default=100)
parser.add_argument("--dims", type=int, nargs="+", default=[384, 128, 64], help="Dimensions, including the full one.")
options = parser.parse_args()

train, dev = load_bitext(options.data).train_dev_split(options.dev_pairs)
model = SentenceTransformer(options.model)
loss = AlignmentLoss(model, {"matryoshka": {"dims": options.dims, "temperature": 0.05, "symmetric": True}})
pairs = dev.to_dataset()
evaluator = TranslationEvaluator(list(pairs["source"]), list(pairs["target"]), name="dev", write_csv=False)
arguments = SentenceTransformerTrainingArguments(
    options.output,
    max_steps=options.steps,
    per_device_train_batch_size=32,
    learning_rate=5e-5,
    eval_strategy="steps",
    eval_steps=max(1, options.steps // 2),
    save_strategy="no",
)
SentenceTransformerTrainer(
    model,
    arguments,
    train_dataset=train.to_dataset().select_columns(["source", "target"]),
    loss=loss,
    evaluator=evaluator,
).train()
model.save_pretrained(options.output)
