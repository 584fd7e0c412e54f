"""Fine-tune an encoder on XNLI or MLQA."""

from __future__ import annotations

from hf_xsent.finetuning.mlqa import finetune_mlqa
from hf_xsent.finetuning.report import FineTuningReport
from hf_xsent.finetuning.running import check_settings
from hf_xsent.finetuning.trainer import FineTuningArguments
from hf_xsent.finetuning.xnli import finetune_xnli
from hf_xsent.settings.command import command


@command(FineTuningArguments)
def finetune(settings: FineTuningArguments) -> list[FineTuningReport]:
    """Fine-tune an encoder on ``xnli`` or ``mlqa``, save it, and measure every test set that is given.

    ```python
    from hf_xsent import finetune

    reports = finetune(
        "xnli", model="xlm-roberta-base", train={"en": "multinli.tsv"}, output_dir="runs/xnli", max_steps=1000
    )
    ```
    """
    return (finetune_xnli if settings.task == "xnli" else finetune_mlqa)(settings, check_settings(settings))
