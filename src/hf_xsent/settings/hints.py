"""Suggest the setting that is meant by an unknown name."""

from __future__ import annotations

from collections.abc import Collection

from hf_xsent.errors import did_you_mean

OTHER_NAMES = {  # of other libraries, and the settings that mean the same: the first that a command has
    **dict.fromkeys(
        ("batch_size", "train_batch_size", "bs", "embedder_batch_size", "per_device_train_batch_size"),
        ("per_device_train_batch_size", "settings.per_device_train_batch_size"),
    ),
    **dict.fromkeys(("eval_batch_size", "encode_batch_size"), ("per_device_eval_batch_size",)),
    **dict.fromkeys(("epochs", "num_epochs", "n_epochs"), ("num_train_epochs", "max_steps", "budget")),
    **dict.fromkeys(("steps", "num_steps", "train_steps", "max_train_steps"), ("max_steps", "budget")),
    **dict.fromkeys(("lr", "lr_rate", "peak_lr", "learning_rate"), ("learning_rate", "settings.learning_rate")),
    **dict.fromkeys(("warmup", "warmup_ratio"), ("warmup_steps",)),
    **dict.fromkeys(
        ("train_file", "train_data", "train_dataset", "dataset", "dataset_name"),
        ("data", "train", "pairs", "source", "datasets"),
    ),
    **dict.fromkeys(
        ("eval_file", "validation_file", "eval_data", "eval_dataset", "dev_file"), ("dev", "pairs", "tasks")
    ),
    **dict.fromkeys(("data", "test_file", "test_data", "test_dataset"), ("test", "pairs", "tasks", "source", "dev")),
    **dict.fromkeys(
        ("model", "model_name_or_path", "model_name", "embedder_name_or_path", "base_model", "encoder", "checkpoint"),
        ("model", "folder"),
    ),
    **dict.fromkeys(
        ("max_seq_length", "max_len", "max_seq_len", "query_max_len", "passage_max_len", "max_length"),
        ("max_length", "settings.max_length"),
    ),
    **dict.fromkeys(
        ("out", "out_dir", "output_folder", "save_dir", "save_path", "output_path"), ("output_dir", "output")
    ),
    **dict.fromkeys(("overwrite_output_dir", "force"), ("overwrite",)),
    **dict.fromkeys(("grad_accum", "accumulation_steps"), ("gradient_accumulation_steps",)),
    **dict.fromkeys(("loss", "losses"), ("objectives",)),
    **dict.fromkeys(("train_group_size", "num_negatives"), ("hard_negatives", "negatives")),
    **dict.fromkeys(("langs", "language", "lang", "src_lang"), ("languages", "language")),
    **dict.fromkeys(("tgt_lang", "trg_lang"), ("target_language",)),
    **dict.fromkeys(("pooling_mode", "pooling_method", "sentence_pooling_method"), ("pooling", "poolings")),
    **dict.fromkeys(("normalize_embeddings", "normalized"), ("normalize",)),
    **dict.fromkeys(
        ("prompt", "prompt_name", "prefix", "query_prefix", "query_instruction_for_retrieval"), ("prompts",)
    ),
    **dict.fromkeys(("precision", "dtype", "torch_dtype", "fp16", "bf16", "half"), ("precision", "dtype", "bf16")),
    **dict.fromkeys(("device", "devices", "cuda", "gpu", "no_cuda"), ("device", "use_cpu")),
    **dict.fromkeys(("truncate_dim", "matryoshka_dims", "embedding_dim"), ("dims", "dim")),
    **dict.fromkeys(("top_k", "topk"), ("top", "k", "negatives")),
    **dict.fromkeys(("quantize", "optimize", "backend", "opset"), ("onnx",)),
    **dict.fromkeys(("exclude", "exclude_files"), ("rules.exclude", "settings.rules.exclude")),
    **dict.fromkeys(("metric", "main_metric"), ("metric_for_best_model",)),
    **dict.fromkeys(("max_pairs", "max_samples", "limit"), ("max_pairs", "tasks.TASK.max_pairs")),
    **dict.fromkeys(("repo_id", "hub_model_id", "push_to_hub"), ("repository",)),
}
_EXPLAINED = {  # names without such a setting, for commands that encode
    **dict.fromkeys(
        ("batch_size", "eval_batch_size", "encode_batch_size", "embedder_batch_size", "per_device_eval_batch_size"),
        "omit it: sentences are encoded in batches of up to 8,192 tokens",
    ),
    **dict.fromkeys(
        ("prompt", "prompts", "prompt_name", "prefix", "query_prefix", "query_instruction_for_retrieval"),
        "prompts are those that the model's folder states; pretrain sets them by --prompts",
    ),
    **dict.fromkeys(("normalize", "normalize_embeddings", "normalized"), "omit it: similarities are cosines"),
    **dict.fromkeys(("tokenizer", "tokenizer_name"), "the tokenizer is that of the model's folder"),
}


_EXPLAINED_OF_TASKS = {"metric": "all metrics of a task are measured"}  # the same, for commands with tasks


def suggestion(name: str, known: Collection[str]) -> str:
    """Return ``; did you mean 'x'?`` for the setting of this meaning or of a similar name, or the empty string.

    >>> suggestion("lr", ["learning_rate", "layers"]), suggestion("seeed", ["seed"])
    ("; did you mean 'learning_rate'?", "; did you mean 'seed'?")
    """
    meant = next((other for other in OTHER_NAMES.get(name, ()) if other.partition(".")[0] in known), None)
    explained = (_EXPLAINED if "model" in known else {}) | (_EXPLAINED_OF_TASKS if "tasks" in known else {})
    explained |= {"suite": "tasks takes the folder of a suite, too"} if {"tasks", "pairs"} <= {*known} else {}
    if meant is None and name in explained:
        return f"; {explained[name]}"
    return f"; did you mean {meant!r}?" if meant else did_you_mean(name, known)
