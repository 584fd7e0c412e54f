"""Suggest the setting that is meant by an unknown name."""

from __future__ import annotations

from collections.abc import Collection

from hf_xsent.errors import did_you_mean

OTHER_NAMES = {  # of other libraries, and the settings that mean the same
    **dict.fromkeys(("batch_size", "train_batch_size", "bs"), ("per_device_train_batch_size",)),
    **dict.fromkeys(("epochs", "num_epochs", "n_epochs"), ("num_train_epochs",)),
    **dict.fromkeys(("steps", "num_steps", "train_steps", "max_train_steps"), ("max_steps",)),
    **dict.fromkeys(("lr", "lr_rate", "peak_lr"), ("learning_rate",)),
    **dict.fromkeys(("warmup", "warmup_ratio"), ("warmup_steps",)),
    **dict.fromkeys(("train_file", "train_data", "train_dataset", "dataset", "dataset_name"), ("data", "train")),
    **dict.fromkeys(("eval_file", "validation_file", "eval_data", "eval_dataset", "dev_file"), ("dev",)),
    **dict.fromkeys(("model_name_or_path", "model_name", "base_model", "encoder", "checkpoint"), ("model",)),
    **dict.fromkeys(("max_seq_length", "max_len", "max_seq_len"), ("max_length",)),
    **dict.fromkeys(("out", "out_dir", "output_folder", "save_dir"), ("output_dir", "output")),
    **dict.fromkeys(("overwrite_output_dir", "force"), ("overwrite",)),
    **dict.fromkeys(("grad_accum", "accumulation_steps"), ("gradient_accumulation_steps",)),
    **dict.fromkeys(("loss", "losses"), ("objectives",)),
    **dict.fromkeys(("data", "test_file", "test_data"), ("pairs", "tasks")),
    **dict.fromkeys(("langs", "language"), ("languages",)),
}


def suggestion(name: str, known: Collection[str]) -> str:
    """Return ``; did you mean 'x'?`` for the setting of this meaning or of a similar name, or the empty string.

    >>> suggestion("lr", ["learning_rate", "layers"]), suggestion("seeed", ["seed"])
    ("; did you mean 'learning_rate'?", "; did you mean 'seed'?")
    """
    meant = next((other for other in OTHER_NAMES.get(name, ()) if other in known), None)
    return f"; did you mean {meant!r}?" if meant else did_you_mean(name, known)
