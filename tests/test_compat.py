"""Private parts of other libraries are as listed here, and only compat.py and overriding methods use them."""

from __future__ import annotations

import ast
import inspect
import platform
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoModel, BertConfig

from hf_xsent import compat
from hf_xsent.finetuning.trainer import FineTuner
from hf_xsent.models import METHODS
from hf_xsent.training.trainer import AlignmentTrainer

_TRAINER, _MODEL = "transformers.Trainer", "transformers.PreTrainedModel"

# Private or undocumented parts of transformers 5.19 to 5.23 and evaluate 0.4.6 that our code overrides or calls: owner,
# names, parameters that we use (None: not checked), why, and what breaks without them.
PRIVATE_PARTS = {
    f"{owner}.{name}": (parameters, f"our code uses it to {why}; without it, {breaks}")
    for owner, names, parameters, why, breaks in (
        (_TRAINER, "_save_checkpoint", ("model", "trial"),
         "rename a checkpoint when all processes have written it", "a killed run leaves half a checkpoint"),
        (_TRAINER, "_get_output_dir", ("trial",),
         "choose the temporary folder of a checkpoint", "the checkpoint is not in the folder that is renamed"),
        (_TRAINER, "_push_from_checkpoint", ("checkpoint_folder",),
         "upload the finished model only", "--push_to_hub uploads unfinished models, and copies them into the folder"),
        (_MODEL, "_upload_modified_files", ("working_dir", "repo_id", "files_timestamps", "commit_message"),
         "replace the files of an earlier model on the Hub", "push_to_hub leaves them, and they are read"),
        (_TRAINER, "save_model", ("output_dir", "_internal_call"),
         "save the final model into a temporary folder without a push", "an incomplete final model is pushed"),
        (_TRAINER, "set_initial_training_values", ("args", "dataloader"),
         "end a resumed run whose checkpoint has all steps", "--resume of such a run trains another step"),
        (_TRAINER, "_init_training_state", None,
         "apply the schedule of a resumed run, and find its best checkpoint in a moved folder",
         "changed save_steps are not applied, and the last model is taken for the best"),
        (_TRAINER, "_evaluate", ("trial", "ignore_keys_for_eval", "skip_scheduler"),
         "not measure a checkpoint again when a run resumes", "its metrics have a second line of this step"),
        (_TRAINER, "_save", ("output_dir", "state_dict"),
         "save our models in their own form", "checkpoints lack the heads"),
        (_TRAINER, "_load_from_checkpoint", ("resume_from_checkpoint", "model"),
         "load checkpoints strictly, heads included", "a resumed run starts with new heads"),
        (_TRAINER, "_load_best_model", (),
         "load the best checkpoint strictly, heads included", "the last model is taken for the best"),
        (_TRAINER, "_determine_best_metric", ("metrics", "trial"),
         "compare only measurements of steps with a checkpoint", "the last model is taken for the best"),
        (_TRAINER, "_get_grad_norm", ("model", "grad_norm"),
         "check gradients before the optimizer's step; no public hook runs there", "NaN gradients reach the weights"),
        (_TRAINER, "_prepare_inputs", ("inputs",),
         "move the critic's batch to the device", "dual pivot's critic reads tensors on another device"),
        (_TRAINER, "_save_optimizer_and_scheduler", ("output_dir",), "save the critic", "--resume resets its state"),
        (_TRAINER, "_load_optimizer_and_scheduler", ("checkpoint",), "load the critic", "--resume resets its state"),
        (_TRAINER, "_load_rng_state", ("checkpoint",),
         "name the checkpoint whose state is damaged", "--resume ends with an error that names no checkpoint"),
        (_MODEL, "_init_weights", ("module",),
         "initialize language embeddings, maps, biases and queues", "an untrained model differs from its encoder"),
        (_MODEL, "_from_config", None,
         "let AutoModel.from_config build plain encoders of families whose exports we load",
         "AutoModel.from_config of BERT and others fails after importing hf_xsent"),
        (_MODEL, "_keys_to_ignore_on_save", None,
         "save dual pivot without its frozen encoder", "each dual pivot checkpoint holds the encoder"),
        (_MODEL, "_keys_to_ignore_on_load_missing", None,
         "load dual pivot checkpoints, which have no encoder", "loading warns of each weight of the encoder"),
        (_MODEL, "_keys_to_ignore_on_load_unexpected", None,
         "load a training checkpoint without its heads", "loading warns of each weight of a head"),
        (_MODEL, "_supports_sdpa _supports_flash_attn", None,
         "accept every attn_implementation of the encoder", "sdpa, flash_attention_2 or registered ones are rejected"),
        ("evaluate.Metric", "_info _compute", None,
         "implement a metric; evaluate documents no public names", "evaluate.load of our metrics fails"),
    )
    for name in names.split()
}  # fmt: skip

PACKAGE = Path(compat.__file__).parent
LISTED = {name.rpartition(".")[2] for name in PRIVATE_PARTS}
ALLOWED = {
    "_internal_call",  # Trainer.save_model's, in the table
    "_exit",  # os._exit, which is public
}


@pytest.mark.parametrize("name", PRIVATE_PARTS)
def test_private_part_is_as_we_use_it(name: str) -> None:
    pytest.importorskip(name.partition(".")[0])
    owner, _, attribute = name.rpartition(".")
    parameters, reason = PRIVATE_PARTS[name]
    part = getattr(resolve_name(owner), attribute, None)
    assert hasattr(resolve_name(owner), attribute), reason
    if parameters is not None:
        declared = [each for each in inspect.signature(part).parameters.values() if each.name != "self"]
        assert tuple(each.name for each in declared[: len(parameters)]) == parameters, reason
        assert all(each.default is not each.empty for each in declared[len(parameters) :]), reason


def _private_names(tree: ast.AST) -> tuple[set[str], set[str]]:
    """Return the private attributes that a file uses and those that it defines."""
    used, defined = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Attribute):
            (defined if isinstance(node.ctx, ast.Store) and _is_self(node.value) else used).add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            used.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
    used, defined = (
        {name for name in names if name.startswith("_") and not name.startswith("__")} for names in (used, defined)
    )
    return used, defined


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def test_only_compat_uses_private_parts_of_others() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path.name != "compat.py"]
    names = {path: _private_names(ast.parse(path.read_text("utf-8"))) for path in files}
    ours = set().union(*(defined for _, defined in names.values())) | LISTED | ALLOWED
    foreign = {path.name: used - ours for path, (used, _) in names.items() if used - ours}
    assert not foreign, "private parts of other libraries belong into compat.py, with version, reason and test"


@pytest.mark.parametrize(
    "kind",
    [AlignmentTrainer, FineTuner, *(kind for kinds in METHODS.values() for kind in kinds)],
    ids=lambda kind: kind.__name__,
)
def test_overridden_private_parts_are_listed(kind: type) -> None:
    foreign = {name for base in kind.__mro__ if not base.__module__.startswith("hf_xsent") for name in vars(base)}
    ours = {name for base in kind.__mro__ if base.__module__.startswith("hf_xsent") for name in vars(base)}
    overridden = {name for name in ours & foreign if name.startswith("_") and not name.startswith("__")}
    assert overridden - LISTED == set()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("GeluBackward0", functional.gelu),
        ("GeluBackward0", lambda x: functional.gelu(x, approximate="tanh")),
        ("SiluBackward0", functional.silu),
        ("MulBackward0", lambda x: x * (x + 1)),
    ],
)
def test_outputs_of_autograd_nodes_are_recomputed(name: str, function: Any) -> None:
    result = function(torch.randn(4, 3, requires_grad=True))
    assert result.grad_fn.name() == name
    assert torch.equal(compat.ELEMENTWISE_NODES[name](result.grad_fn), result)


def test_reshaping_nodes_have_their_names() -> None:
    values = torch.randn(4, 3, requires_grad=True)
    assert values.view(12).grad_fn.name() in compat.RESHAPING_NODES
    assert torch.ops.aten._unsafe_view(values, [12]).grad_fn.name() in compat.RESHAPING_NODES
    assert torch.ops.aten._reshape_alias(values, [12], [1]).grad_fn.name() in compat.RESHAPING_NODES


def _tiny_bert() -> Any:
    return AutoModel.from_config(
        BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    )


def test_attention_is_read_and_chosen() -> None:
    model = _tiny_bert()
    model.set_attn_implementation("eager")
    assert compat.attention_of(model.config) == "eager"
    states = []
    for name in ("eager", "sdpa"):
        compat.set_attention(model.config, name)
        assert compat.attention_of(model.config) == name
        states.append(model(torch.tensor([[1, 2, 3]]), output_attentions=True).attentions)
    assert states[0] and states[0][0] is not None
    assert not states[1] or states[1][0] is None  # the fused attention has no weights to show


def test_marked_modules_keep_their_weights() -> None:
    model = _tiny_bert()
    query, key = model.encoder.layer[0].attention.self.query, model.encoder.layer[0].attention.self.key
    for module in model.modules():
        module._is_hf_initialized = False
    for module in (query, key):
        nn.init.ones_(module.weight)
    compat.mark_initialized(query)
    model.init_weights()
    assert (query.weight == 1).all()
    assert not (key.weight == 1).any()


def test_glibc_reuses_freed_memory() -> None:
    code = "from hf_xsent_cli import main; from hf_xsent.compat import keep_freed_memory; print(keep_freed_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(platform.libc_ver()[0] == "glibc")


def test_importing_it_imports_no_library() -> None:
    code = "import sys, hf_xsent_cli, hf_xsent.compat; print({'torch', 'transformers', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
