"""The recipes of the papers against docs/paper_values.md, the table of the papers' values and their sources."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_xsent.cli import load_command
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.finetuning.finetune import finetune
from hf_xsent.finetuning.settings import QuestionSettings
from hf_xsent.finetuning.trainer import FineTuningArguments
from hf_xsent.models import METHODS
from hf_xsent.objectives.registry import objective_class
from hf_xsent.settings.declare import default_of, settings_of
from hf_xsent.settings.recipes import recipe_file, recipe_names
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.pretrain import pretrain
from hf_xsent.training.settings import DataSettings

ROOT = Path(__file__).parents[2]
RECIPES = {name: recipe_file(name) for name in recipe_names()}
OURS = {
    "tr-small",
    "tr-wtr-small",
    "mlm-small",
    "dap-small",
    "rtl-head-small",
    "ppa-small",
    "wacse-small",
    "dual-pivot-small",
    "student-small",
    "interpolation-small",
    "xsent-small",
    "xsent-small-2",
    "mixed-small",
    "mixed-small-questions",
    "extend",
}
PAPERS = sorted({*RECIPES} - OURS)
SOURCE = r"text, (eq\. )?\d[\d., ]*|table \d+|authors' script|believed, \d\.\d|unstated"

# Settings that may be inherited although their defaults are on, because the trained model does not depend on them.
NO_EFFECT = {
    "average_tokens_across_devices",  # our losses are averaged already
    "columns", "on_error",  # how the user's files are written
    "dataloader_in_order", "dataloader_pin_memory", "ddp_timeout", "debug", "local_rank", "skip_memory_metrics",
    "eval_do_concat_batches", "eval_on_start", "per_device_eval_batch_size", "mlqa_split",
    "hub_strategy", "include_for_metrics", "include_num_input_tokens_seen", "log_level", "log_level_replica",
    "log_on_each_node", "logging_nan_inf_filter", "logging_steps", "logging_strategy", "project", "report_to",
    "length_column_name", "train_sampling_strategy", "remove_unused_columns",  # we have our own sampler and collator
    "save_total_limit",
}  # fmt: skip


@dataclass(frozen=True)
class Stated:
    """A row of the table."""

    value: Any
    source: str
    remark: str


def _paper_values() -> dict[str, dict[str, Stated]]:
    """Parse the tables: the headings name recipes, the rows their settings."""
    found: dict[str, dict[str, Stated]] = {}
    names: list[str] = []
    for line in (ROOT / "docs/paper_values.md").read_text("utf-8").splitlines():
        if line.startswith("#"):
            names = re.findall(r"`([^`]+)`", line)
        elif row := re.fullmatch(r"\| `([^`]+)` \| (.*) \| (.*) \| (.*) \|", line):
            for name in names:
                assert row[1] not in found.setdefault(name, {}), f"{name} has two rows of {row[1]}"
                found[name][row[1]] = Stated(yaml.safe_load(row[2]), row[3], row[4])
    return found


VALUES = _paper_values()


def _recipe(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load(RECIPES[name].read_text("utf-8")))


def _flat(recipe: dict[str, Any]) -> dict[str, Any]:
    """The stated settings, those of objectives and rules with their owner's name."""
    flat = {key: value for key, value in recipe.items() if key not in ("objectives", "rules")}
    flat |= {f"{name}.{key}": value for name, one in recipe.get("objectives", {}).items() for key, value in one.items()}
    return flat | {f"rules.{key}": value for key, value in recipe.get("rules", {}).items()}


def _defaults(name: str, recipe: dict[str, Any]) -> dict[str, Any]:
    """Every setting that the recipe could state, with its default."""
    kinds: list[Any] = [DataSettings, AlignmentTrainingArguments]
    found: dict[str, Any] = {}
    if "method" in recipe:
        config = METHODS[recipe["method"]][0]
        settings = {key: one for key, one in settings_of(config).items() if key in config.setting_names()}
        found |= {key: default_of(one) for key, one in settings.items() if key != "objectives"}
        for objective in recipe["objectives"]:
            settings = settings_of(objective_class(objective).Settings)
            found |= {f"{objective}.{key}": default_of(one) for key, one in settings.items()}
        if recipe.get("clean", True):
            found |= {f"rules.{one.name}": one.default for one in fields(CleaningRules)}
    else:
        kinds = [FineTuningArguments]
    unread = {one.name for one in fields(QuestionSettings)} if name.startswith("xnli") else set()
    return found | {
        one.name: default_of(one) for kind in kinds for one in fields(kind) if one.init and one.name not in unread
    }


def _inherited(name: str, recipe: dict[str, Any]) -> set[str]:
    """The settings that have an effect by their default, and that the recipe does not state."""
    silent = {key for key, default in _defaults(name, recipe).items() if default} - {*_flat(recipe)} - NO_EFFECT
    if "max_steps" in recipe or "num_train_epochs" in recipe:
        silent -= {"max_steps", "num_train_epochs"}
    if not recipe.get("max_pairs"):
        silent -= {"max_pairs_choice"}
    if not recipe.get("load_best_model_at_end"):  # then checkpoints decide nothing
        silent -= {"save_strategy", "save_steps", "metric_for_best_model", "eval_steps"}
    if "method" not in recipe:  # fine-tuning measures dev pairs only where they are given
        silent -= {"eval_strategy"}
    return silent


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_states_the_values_of_its_paper(name: str) -> None:
    stated = {key: value for key, value in _flat(_recipe(name)).items() if key not in NO_EFFECT}
    assert stated == {key: one.value for key, one in VALUES[name].items()}


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_inherits_nothing_that_changes_results(name: str) -> None:
    assert not _inherited(name, _recipe(name))


@pytest.mark.parametrize(
    ("removed", "missing"),
    [
        ({"warmup_steps": 0}, {"warmup_steps"}),
        (
            {"objectives": {"translation_ranking": {"weight": 1.0, "temperature": 0.05}}},
            {"translation_ranking.mask_repeated"},
        ),
        ({"clean": False}, {f"rules.{one.name}" for one in fields(CleaningRules) if one.default} | {"clean"}),
        ({"max_pairs_choice": "random", "adam_beta2": 0.999}, {"max_pairs_choice", "adam_beta2"}),
    ],
)  # fmt: skip
def test_a_value_that_is_omitted_is_found(removed: dict[str, Any], missing: set[str]) -> None:
    recipe = {key: value for key, value in _recipe("tr-mbert").items() if key not in removed}
    recipe["objectives"] = removed.get("objectives", _recipe("tr-mbert")["objectives"])
    assert _inherited("tr-mbert", recipe) == missing


def test_every_value_has_a_source_with_its_place_in_the_paper() -> None:
    assert sorted(VALUES) == PAPERS, "each recipe of a paper has a table, and each table a recipe"
    for name, rows in VALUES.items():
        for key, one in rows.items():
            assert re.fullmatch(SOURCE, one.source), f"{name}, {key}: {one.source}"
            assert name.startswith(("ppa", "xnli", "mlqa")) or "believed" not in one.source, "other texts are complete"


def test_settings_without_effect_exist() -> None:
    known = {key for name in ("tr-mbert", "mlqa-zero-shot") for key in _defaults(name, _recipe(name))}
    assert known >= NO_EFFECT


def test_runs_over_several_pairs_share_one_budget() -> None:
    """Table 5 of dual pivot: 16 million pairs, whether of 1 language or of 16."""
    recipe = _recipe("dual-pivot-multi")
    assert recipe["max_steps"] * recipe["per_device_train_batch_size"] == 16_000_000
    head = RECIPES["dual-pivot-multi"].read_text("utf-8")
    languages = set(re.findall(r"([a-z]{2})=\1-en\.tsv", head))
    assert languages == set(
        ["ar", "bg", "de", "el", "es", "fa", "fr", "hi", "id", "ru", "sw", "th", "tr", "ur", "vi", "zh"]
    )


@pytest.mark.parametrize("name", ["dap-mbert", "dap-xlmr", "tr-mbert", "tr-xlmr", "wacse-xlmr"])
def test_a_step_ranks_1024_pairs(name: str) -> None:
    recipe = _recipe(name)
    processes = int(re.search(r"--nproc_per_node (\d+)", RECIPES[name].read_text("utf-8"))[1])
    assert processes * recipe["per_device_train_batch_size"] * recipe["gradient_accumulation_steps"] == 1024


def test_the_study_of_thresholds_has_the_settings_of_bucc() -> None:
    """Section 5.2: n = 1, α = 0, λ = 5, κ = 2 for tables 2 and 6; section 5.3: n = 2, α = 0.2, λ = 10, κ = 2."""
    methods = yaml.safe_load((ROOT / "benchmarks/studies/dual_pivot.yaml").read_text("utf-8"))["methods"]
    for name, settings in (("unsupervised de-en, for BUCC", "bucc"), ("unsupervised de-en", "tatoeba")):
        objectives = _recipe(f"dual-pivot-unsupervised-{settings}")["objectives"]
        assert {*methods[name]["objectives"]} == {*objectives}
        for objective, stated in methods[name]["objectives"].items():
            assert stated.items() <= objectives[objective].items()


def test_the_papers_symbols_are_flags() -> None:
    flags = ["--negatives", "4", "--margin", "0.4", "--objectives", "adversarial=1", "cycle=7", "--critic_steps", "1"]
    recipe = pretrain.parse([str(RECIPES["dual-pivot-unsupervised-bucc"]), *flags, "--use_cpu"])
    cycle, adversarial = (recipe.config.objectives[name] for name in ("cycle", "adversarial"))
    assert (cycle.negatives, cycle.margin, cycle.weight, adversarial.critic_steps) == (4, 0.4, 7.0, 1)


# docs/reproduce.md

TABLES = {  # of each paper, in the order of the page
    "DAP": ([*range(1, 10)], [*range(1, 5)]),
    "PPA": ([*range(1, 6)], [1]),
    "WACSE": ([*range(1, 11)], [1, 2]),
    "Dual pivot": ([*range(1, 8)], [1, 2]),
}


def _rows(paper: str) -> dict[str, str]:
    """What the page says of each table and figure of a paper."""
    section = re.search(rf"^### {paper} \(.*?(?=^##|\Z)", REPRODUCE, re.MULTILINE | re.DOTALL)
    assert section is not None
    return dict(re.findall(r"^\| ((?:table|figure) \d+) \| (.*) \|$", section[0], re.MULTILINE))


REPRODUCE = (ROOT / "docs/reproduce.md").read_text("utf-8")


@pytest.mark.parametrize("paper", TABLES)
def test_each_table_and_figure_has_its_command_or_a_reason(paper: str) -> None:
    tables, figures = TABLES[paper]
    rows = _rows(paper)
    assert set(rows) == {f"table {number}" for number in tables} | {f"figure {number}" for number in figures}
    for name, text in rows.items():
        assert text.startswith("none: ") or re.search(r"`|the (same )?command", text), name
        for word in re.findall(r"`([a-z0-9]+(?:-[a-z0-9]+)+)`", text):
            assert word in RECIPES, f"{name} names no recipe: {word}"
        for recipe in re.findall(r"`hf-xsent (?:pretrain|finetune \w+) ([\w-]+)", text):
            assert recipe in RECIPES, name


@pytest.mark.parametrize("paper", TABLES)
def test_the_flags_of_the_tables_exist(paper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for name, text in _rows(paper).items():
        recipe: str | None = None  # the last one named before the flags
        for quoted in re.findall(r"`([^`]+)`", text):
            words = shlex.split(quoted)
            if quoted in RECIPES:
                recipe = quoted
            elif words[:2] in (["hf-xsent", "pretrain"], ["hf-xsent", "finetune"]):
                assert words[-1] in RECIPES, name
            elif words[0] == "hf-xsent":
                load_command(words[1]).parse(words[2:])
            elif len(words) > 1 and words[0].startswith("--") and recipe is not None:
                path = str(RECIPES[recipe])
                if "method" in _recipe(recipe):
                    pretrain.parse([path, *words, "--use_cpu"])
                else:
                    finetune.parse(["xnli", path, *words, "--use_cpu"])


def test_the_page_names_only_corpora_that_the_papers_name() -> None:
    data = REPRODUCE[REPRODUCE.index("## Data") : REPRODUCE.index("## Tables and figures")]
    corpora = set(re.findall(r"\b(JW300|TED2020|TED|QED|GNOME|Ubuntu|Books|NLLB|Tatoeba)\b", data))
    assert corpora == {"Tatoeba"}, "which the page tells not to train on"
    assert "do not train on it" in data and "exclude=tatoeba" in data
